/*
 * unit.c
 *		One transaction of a run.
 *
 * Called by run.c and items.c. What a transaction changes in memory is kept in run->next and counts only
 * once it is committed, so that one which fails leaves the run as it was.
 *
 * Every transaction first passes the gate, see sweep_sql_open_gate(): while somebody alters or drops
 * the extension, the run waits outside of any transaction and then sees what became of it.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/elsewhere.h"
#include "base/lease.h"
#include "engine/guard.h"
#include "engine/report.h"
#include "engine/run_row.h"
#include "engine/share.h"
#include "engine/unit.h"

static void set_synchronous_commit(SweepRun *run, const char *value, GucAction action);
static void enter_job_code(SweepRun *run);
static void leave_job_code(SweepRun *run);
static int32 batches_to_save(const SweepRun *run);
static void set_outcome(SweepRunChange *change, const SweepRun *run);
static void save_by_statement(SweepRun *run);
static void set_jsonb(SweepRunChange *change, SweepRunColumn column, const Jsonb *value);
static Jsonb *copy_jsonb(Jsonb *source);

bool
sweep_unit_transact(SweepRun *run, SweepWork work, void *arg, ErrorData **error)
{
	for (;;)
	{
		if (sweep_sql_transaction(work, arg, run->batch_context, error))
			return true;
		sweep_share_undo(run);
		sweep_guard_disarm_statement(run);
		if (!run->gate_closed)
			return false;
		FreeErrorData(*error);
		sweep_run_pause(run, SWEEP_GATE_PAUSE_MS);
		if (run->reason == SWEEP_STOP_NONE && pg_atomic_read_u32(&run->slot->stop_request) != 0)
			return true;
	}
}

bool
sweep_unit_begin(SweepRun *run)
{
	run->next = run->state;
	run->gate_closed = true;
	if (!sweep_sql_open_gate())
	{
		run->status = "cancelled";
		run->reason = SWEEP_STOP_CANCELLED;
		run->ended = true;
	}
	run->gate_closed = false;
	if (run->ended)
		return false;

	/*
	 * With flush 'run' no commit but the last one waits for the disk: a crash can then undo only whole
	 * batches at the end, each with its counters. A worker has the settings for good: that is cheaper than
	 * to set them, and to look at all settings at the end, in each transaction.
	 */
	if (synchronous_commit != SYNCHRONOUS_COMMIT_OFF)
		set_synchronous_commit(run, "off", sweep_sql_in_call() ? GUC_ACTION_LOCAL : GUC_ACTION_SET);
	if (sweep_sql_in_call())
		sweep_run_set_environment();
	return true;
}

/*
 * Whoever keeps the row locked must not keep our worker: the scheduler starts another one once it is free. In a
 * session nobody but that waits for it.
 */
bool
sweep_unit_is_locked(const SweepRun *run)
{
	Datum		run_id = Int64GetDatum(run->run_id);

	return !sweep_sql_in_call() && sweep_sql_execute(SWEEP_SQL_LOCK_RUN, &run_id, NULL) == 1 && sweep_sql_is_null(1);
}

void
sweep_unit_is_last(SweepRun *run)
{
	set_synchronous_commit(run, run->synchronous_commit, GUC_ACTION_LOCAL);
}

static void
set_synchronous_commit(SweepRun *run, const char *value, GucAction action)
{
	if (!run->flush_batch)
		(void) set_config_option("synchronous_commit", value, PGC_USERSET, PGC_S_SESSION, action, true, 0, false);
}

SweepBatch
sweep_unit_batch(SweepRun *run)
{
	bool		divided = run->share != NULL && run->share->held;

	return (SweepBatch) {
		.size = sweep_loop_next_size(&run->state.loop),
		.cursor = run->state.cursor,
		.args = run->args,
		.as_of = run->as_of != 0 ? run->as_of : GetCurrentTimestamp(),
		.run_id = run->run_id,
		.bucket = divided ? run->share->claim.bucket : 0,
		.buckets = divided ? run->share->buckets : 0,
	};
}

void
sweep_unit_call(SweepRun *run, SweepStep *step, const SweepBatch *batch, SweepProgress *progress)
{
	enter_job_code(run);
	sweep_step_call(step, batch, progress, run->batch_context);
	leave_job_code(run);
	sweep_share_hold(run);
}

int32
sweep_unit_count(SweepRun *run, SweepStep *count, const SweepBatch *batch)
{
	int32		buckets;

	enter_job_code(run);
	buckets = sweep_step_count(count, batch);
	leave_job_code(run);
	return buckets;
}

int
sweep_unit_pick(SweepRun *run, const SweepBatch *batch, Jsonb ***items)
{
	int			count;

	enter_job_code(run);
	count = sweep_step_pick(run->pick, batch, items, run->batch_context);
	leave_job_code(run);
	return count;
}

void
sweep_unit_rescue(SweepRun *run, const SweepBatch *batch, Jsonb *error, SweepProgress *progress)
{
	enter_job_code(run);
	sweep_step_rescue(run->rescue, batch, error, progress, run->batch_context);
	leave_job_code(run);
	sweep_share_hold(run);
}

static void
enter_job_code(SweepRun *run)
{
	if (!sweep_sql_in_call())
		sweep_guard_arm_statement(run);
}

static void
leave_job_code(SweepRun *run)
{
	sweep_guard_disarm_statement(run);
	if (sweep_lease_is_held(run->run_as, run->lease_key, sweep_run_lease_mode(run)))
		return;
	/* What released it has released the lock that says that the run is alive, too: it must record its end itself. */
	(void) sweep_lease_acquire_run(run->run_id);
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("job \"%s\" has released its own lease", run->job),
			 errhint("A step must not call pg_advisory_unlock_all().")));
}

void
sweep_unit_end_batch(SweepRun *run, bool drained)
{
	run->reason = sweep_loop_end_batch(&run->next.loop, drained, sweep_monotonic_us());
	if (run->reason == SWEEP_STOP_NONE && (pg_atomic_read_u32(&run->slot->stop_request) & SWEEP_STOP_REQUEST_CANCEL) != 0)
		run->reason = SWEEP_STOP_CANCELLED;
	if (run->reason == SWEEP_STOP_NONE)
		return;
	run->status = run->reason == SWEEP_STOP_CANCELLED ? "cancelled" : "succeeded";
	sweep_unit_is_last(run);
}

/*
 * In place, without SQL: that takes longer for it than the engine for all the rest, and a process whose run
 * is short would have to plan the statement for a single use.
 */
void
sweep_unit_save(SweepRun *run)
{
	SweepRunChange change = {0};
	/* In a session that is an error, as it is for any other change; what runs in a worker is recorded in any case. */
	bool		read_only = sweep_sql_in_call() && XactReadOnly;

	sweep_run_row_set(&change, RUN_COLUMN_BATCHES, Int32GetDatum(batches_to_save(run)));
	sweep_run_row_set(&change, RUN_COLUMN_ROWS, Int64GetDatum(run->next.loop.rows));
	sweep_run_row_set(&change, RUN_COLUMN_RESCUED, Int64GetDatum(run->next.rescued));
	sweep_run_row_set(&change, RUN_COLUMN_QUARANTINED, Int64GetDatum(run->next.quarantined));
	set_jsonb(&change, RUN_COLUMN_CURSOR, run->next.cursor);
	set_jsonb(&change, RUN_COLUMN_DETAIL, run->next.detail);
	if (run->reason != SWEEP_STOP_NONE)
		set_outcome(&change, run);
	if (read_only || !sweep_run_row_change(&run->next.tid, run->run_id, "running", &change))
		save_by_statement(run);
	if (run->reason != SWEEP_STOP_NONE)
		sweep_share_end(run);
	/* A crash of this server would undo its part alone. */
	if (sweep_elsewhere_prepare_commit() && run->flush_may_wait)
		set_synchronous_commit(run, run->synchronous_commit, GUC_ACTION_LOCAL);
}

/* They are kept in the row of the run, which others read: the history, the views, the next run. */
void
sweep_unit_check_size(const SweepRun *run)
{
	bool		cursor = run->next.cursor != NULL && VARSIZE(run->next.cursor) > SWEEP_PROGRESS_SIZE;

	if (!cursor && (run->next.detail == NULL || VARSIZE(run->next.detail) <= SWEEP_PROGRESS_SIZE))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
			 errmsg("%s of job \"%s\" is too large: %zu bytes", cursor ? "cursor" : "detail", run->job,
					(Size) VARSIZE(cursor ? run->next.cursor : run->next.detail)),
			 errdetail("It may have %d bytes.", SWEEP_PROGRESS_SIZE),
			 errhint("Keep the data in a table and return a key.")));
}

static int32
batches_to_save(const SweepRun *run)
{
	return (int32) Min(run->next.loop.batches, PG_INT32_MAX);
}

static void
set_outcome(SweepRunChange *change, const SweepRun *run)
{
	sweep_run_row_set(change, RUN_COLUMN_STATUS, CStringGetTextDatum(run->status));
	sweep_run_row_set(change, RUN_COLUMN_STOP_REASON, CStringGetTextDatum(sweep_loop_stop_name(run->reason)));
	sweep_run_row_set(change, RUN_COLUMN_FINISHED_AT, TimestampTzGetDatum(GetCurrentTimestamp()));
	if (run->error == NULL)
		return;
	sweep_run_row_set(change, RUN_COLUMN_SQLSTATE, CStringGetTextDatum(unpack_sql_state(run->error->sqlerrcode)));
	sweep_run_row_set(change, RUN_COLUMN_ERROR, CStringGetTextDatum(sweep_report_error_text(run->error)));
}

/*
 * Found by its place, not by its key: with an old snapshot around, a look-up by key would walk all
 * versions of the row that the batches before left behind.
 */
static void
save_by_statement(SweepRun *run)
{
	const char *reason = sweep_loop_stop_name(run->reason);
	const ErrorData *error = run->error;
	Datum		values[12] = {0};
	char		nulls[13] = "            ";

	values[0] = PointerGetDatum(&run->next.tid);
	values[1] = Int32GetDatum(batches_to_save(run));
	values[2] = Int64GetDatum(run->next.loop.rows);
	values[3] = run->next.cursor ? JsonbPGetDatum(run->next.cursor) : (Datum) 0;
	nulls[3] = run->next.cursor ? ' ' : 'n';
	values[4] = run->next.detail ? JsonbPGetDatum(run->next.detail) : (Datum) 0;
	nulls[4] = run->next.detail ? ' ' : 'n';
	values[5] = CStringGetTextDatum(reason ? run->status : "running");
	values[6] = reason ? CStringGetTextDatum(reason) : (Datum) 0;
	nulls[6] = reason ? ' ' : 'n';
	values[7] = error ? CStringGetTextDatum(unpack_sql_state(error->sqlerrcode)) : (Datum) 0;
	values[8] = error ? CStringGetTextDatum(sweep_report_error_text(error)) : (Datum) 0;
	nulls[7] = nulls[8] = error ? ' ' : 'n';
	values[9] = Int64GetDatum(run->run_id);
	values[10] = Int64GetDatum(run->next.rescued);
	values[11] = Int64GetDatum(run->next.quarantined);
	/* VACUUM FULL moves it; then the key finds it. */
	if (sweep_sql_execute(SWEEP_SQL_SAVE_RUN, values, nulls) != 1 &&
		sweep_sql_execute(SWEEP_SQL_SAVE_RUN_BY_KEY, values, nulls) != 1)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("row of run %lld in sweep.run_live was changed by somebody else", (long long) run->run_id)));
	run->next.tid = sweep_sql_tid(1);
}

static void
set_jsonb(SweepRunChange *change, SweepRunColumn column, const Jsonb *value)
{
	if (value != NULL)
		sweep_run_row_set(change, column, JsonbPGetDatum(value));
	else
		sweep_run_row_set_null(change, column);
}

void
sweep_unit_accept(SweepRun *run)
{
	SweepRunState old = run->state;
	MemoryContext caller_context = MemoryContextSwitchTo(run->context);

	run->state = run->next;
	run->state.cursor = copy_jsonb(run->next.cursor);
	if (run->next.detail != old.detail)
		run->state.detail = copy_jsonb(run->next.detail);
	MemoryContextSwitchTo(caller_context);
	if (old.cursor != NULL)
		pfree(old.cursor);
	if (old.detail != NULL && old.detail != run->state.detail)
		pfree(old.detail);
	run->ended = run->reason != SWEEP_STOP_NONE;
	run->last_batch_us = sweep_monotonic_us() - run->batch_started_us;
	sweep_report_batch(run);
}

void
sweep_unit_fail(SweepRun *run, ErrorData *error)
{
	uint32		request = pg_atomic_read_u32(&run->slot->stop_request);
	bool		cancelled = error == NULL || error->sqlerrcode == ERRCODE_QUERY_CANCELED;
	bool		timed_out = sweep_guard_statement_timed_out(run);

	/* One that fired as its call ended takes effect a moment later, when it is no longer timed. */
	if (error != NULL && StatementTimeout > 0 && !sweep_sql_in_call() && (request & SWEEP_STOP_REQUEST_CANCEL) == 0)
		timed_out = true;

	QueryCancelPending = false;
	run->status = "failed";
	run->reason = SWEEP_STOP_ERROR;
	if (cancelled && (request & SWEEP_STOP_REQUEST_LEASE) != 0)
	{
		run->reason = SWEEP_STOP_LEASE_EXPIRED;
		run->error = sweep_report_lease_error(run);
	}
	else if (cancelled && !timed_out)
	{
		run->status = "cancelled";
		run->reason = SWEEP_STOP_CANCELLED;
	}
	else
		run->error = error;
}

static Jsonb *
copy_jsonb(Jsonb *source)
{
	return source == NULL ? NULL : DatumGetJsonbPCopy(JsonbPGetDatum(source));
}
