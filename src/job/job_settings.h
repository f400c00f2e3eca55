/*
 * job_settings.h
 *		The settings of a job that a run reads, one line each.
 *
 * Each line generates the member of SweepRun (engine/run_state.h), the column of the statements that read a job
 * (engine/definition.h), and the code that reads and passes it on (engine/definition.c). A setting that no run reads has no line
 * here: SQL alone reads schedule, timezone, overlap, catch_up, jitter, max_attempts and priority.
 *
 * A line is X(kind, member, column). Columns are selected as they are and converted in C: in a new process, parsing conversions
 * in SQL would take longer. The kinds:
 *
 *		TEXT, JSONB			NULL as NULL
 *		INT32, INT64		0 if NULL
 *		INT32_OR(n)			n if NULL
 *		INTERVAL(n)			in microseconds, n if NULL
 *		BOOL, ROLE
 *		IS_NULL, IS("word")	true if the column is NULL, or that word; a column may have several such lines
 */
#ifndef SWEEP_JOB_SETTINGS_H
#define SWEEP_JOB_SETTINGS_H

/* Columns of j, the row of sweep.job. */
#define SWEEP_JOB_SETTINGS(X) \
	X(TEXT, step_name, "j.step") \
	X(IS("sweep.copy_step"), may_leave_rows, "j.step")	/* its detail names the transactions that the rows wait for */ \
	X(TEXT, sql, "j.sql")	/* executed once; NULL = there are batches */ \
	X(TEXT, batch_sql, "j.batch_sql") \
	X(JSONB, args, "j.args")	/* the process of the run merges the args of the run over them */ \
	X(ROLE, run_as, "sweep._role_oid(j.run_as)") \
	X(TEXT, pick_name, "j.pick")	/* item jobs; NULL = the step finds its rows itself */ \
	X(TEXT, rescue_name, "j.rescue") \
	X(IS("row"), item_per_transaction, "j.transaction") \
	X(INT32, row_retries, "j.row_retries") \
	X(INT32, batch_size, "j.batch_size") \
	X(INT32, max_batches, "j.max_batches")	/* 0 = no limit */ \
	X(INT64, max_rows, "j.max_rows")	/* 0 = no limit */ \
	X(INTERVAL(-1), stop_after_us, "j.stop_after")	/* -1 = no limit, 0 = exactly one batch */ \
	X(INTERVAL(0), timeout_us, "j.timeout")	/* 0 = no hard limit */ \
	X(INTERVAL(0), pause_us, "j.pause")	/* 0 = none */ \
	X(JSONB, settings, "j.settings") \
	X(TEXT, lock_key, "j.lock_key") \
	X(INT32, lock_retries, "j.lock_retries") \
	X(INTERVAL(0), lock_retry_delay_us, "j.lock_retry_delay") \
	X(IS("run"), begins_anew, "j.cursor")	/* does not begin with the cursor of the run before */ \
	X(IS("always"), keep_cursor_always, "j.cursor")	/* begins with it even if that run drained */ \
	X(IS("batch"), flush_batch, "j.flush")	/* each commit waits for the disk */ \
	X(IS_NULL, flush_may_wait, "j.flush")	/* flush is NULL: commits in which other servers take part wait for the disk */ \
	X(TEXT, estimate, "j.estimate")	/* NULL = the last run that drained says how many rows to expect */ \
	X(BOOL, has_on_start, "j.on_start IS NOT NULL") \
	X(BOOL, has_on_success, "j.on_success IS NOT NULL") \
	X(BOOL, has_on_failure, "j.on_failure IS NOT NULL") \
	X(INT32, bucket_count, "j.buckets")	/* divided jobs; 0 = not divided */ \
	X(TEXT, bucket_store, "j.bucket_store") \
	X(INTERVAL(0), bucket_recovery_us, "j.bucket_recovery") \
	X(TEXT, bucket_key, "j.bucket_key") \
	X(TEXT, buckets_function, "j.buckets_function")	/* NULL = there are always so many */

/*
 * Columns of r, the row of the run. CALL sweep.run in a session has no such row before it begins, and uses the
 * last argument of a line in place of the column: X(kind, member, column, instead).
 */
#define SWEEP_RUN_SETTINGS(X) \
	X(JSONB, run_args, "r.args", "$2")	/* as given by the scheduler: not merged yet */ \
	X(INT32_OR(-1), shares_left, "r.shares_left", "NULL::int")	/* how many shares follow this one; -1 = not begun as a share */ \
	X(INT32_OR(-1), wanted_bucket, "r.bucket", "NULL::int")	/* the bucket that it prefers; -1 = any */ \
	/* if the run was not started by the schedule: while another run has the lock, it waits again instead of being skipped */ \
	X(BOOL, waits_for_lock, "r.trigger NOT IN ('schedule', 'catch_up')", "false")

#endif							/* SWEEP_JOB_SETTINGS_H */
