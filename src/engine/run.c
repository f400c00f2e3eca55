/*
 * run.c
 *		Begins a run, executes its batches, ends it.
 *
 * Called by runner.c in a background worker and by call.c in a session. A batch is one transaction: the
 * step, and the row of the run with its counters, cursor and detail, are committed together; in the
 * last batch so is the outcome. See batch.c for the transaction, items.c for jobs that pick their items, and script.c
 * for jobs with sql, which have no batches.
 *
 * There are two memory contexts: one for the run, and one for the batch, which is reset before each batch. The cursor
 * and detail that a batch leaves for the next one are copied to the context of the run after the commit, and the old
 * ones are freed, so the memory of a run does not grow with its length.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "base/cancel.h"
#include "base/clock.h"
#include "base/compat.h"
#include "base/detail.h"
#include "base/lock.h"
#include "base/log_context.h"
#include "base/worker.h"
#include "engine/batch.h"
#include "engine/bucket_run.h"
#include "engine/definition.h"
#include "engine/environment.h"
#include "engine/estimate.h"
#include "engine/items.h"
#include "engine/report.h"
#include "engine/run.h"
#include "engine/run_row.h"
#include "engine/script.h"
#include "engine/timers.h"
#include "engine/watch.h"

static SweepStatement kept_cursor_sql = {
	.text = "SELECT sweep._kept_cursor($1)",
	.types = {TEXTOID}};
static SweepStatement has_quarantine_sql = {
	.text = "SELECT FROM sweep.quarantined_item q WHERE q.job = $1 LIMIT 1",
	.types = {TEXTOID}};
static SweepStatement start_hooks_sql = {
	.text = "SELECT sweep._start_hooks($1)",
	.types = {INT8OID}};
static SweepStatement note_unreplicated_sql = {
	.text = "SELECT sweep._note_unreplicated($1)",
	.types = {INT8OID}};

/* Delay before a share tries again to end while another share of the job is ending, in ms. */
#define END_RETRY_MS 20L

static bool begin_run(SweepRun *run);
static bool take_lock(SweepRun *run);
static SweepTxnEnd record(SweepRun *run, SweepWork work, ErrorData **error);
static bool another_ends(SweepRun *run);
static void start_work(void *arg);
static void queue_hooks(SweepRun *run);
static void end_unbegun(SweepRun *run);
static void unbegun_work(void *arg);
static void execute_batch(SweepRun *run);
static void batch_work(void *arg);
static void end_run(SweepRun *run);
static void see_others(void);
static void end_work(void *arg);
static void note_unreplicated(SweepRun *run);
static void note_work(void *arg);

void
sweep_run_perform(SweepRun *run)
{
	sweep_worker_watch_postmaster(true);
	if (!sweep_sql_in_call())
		sweep_log_context_say(psprintf("job \"%s\", run %lld", run->job, (long long) run->run_id));
	if (begin_run(run))
	{
		if (!sweep_sql_in_call())
			sweep_worker_allow_cancel(true);
		if (run->estimate != NULL)
			sweep_estimate_ask(run);
		run->times.work_started_us = sweep_monotonic_us();
		while (run->reason == SWEEP_STOP_NONE)
		{
			MemoryContextReset(run->batch_context);
			execute_batch(run);
			if (run->pause_us > 0)
				sweep_brake_pause(run);
		}
		if (!sweep_sql_in_call())
			sweep_worker_allow_cancel(false);
		if (run->stage != RUN_ENDED)
			end_run(run);
	}
	if (run->timeout_us > 0)
		sweep_timers_disarm_timeout(run);
	if (run->unreplicated)
		note_unreplicated(run);
	if (run->buckets != NULL)
		sweep_bucket_run_close(run);
	sweep_step_free(run->step);
	sweep_step_free(run->pick);
	sweep_step_free(run->rescue);
	sweep_lock_give_back(&run->lock);
	sweep_lock_give_back_number(SWEEP_LOCK_RUN, run->run_id);
	if (!sweep_sql_in_call())
		sweep_log_context_say(NULL);
	sweep_worker_watch_postmaster(false);
}

/* Takes the lock, then a bucket, and commits the row that says that the run is in progress. */
static bool
begin_run(SweepRun *run)
{
	SweepTxnEnd end = TXN_COMMITTED;
	SweepLimits limits;

	run->is_share = run->shares_left >= 0;
	/* Buckets that are ranges of a key are each done once, so the last share to end must see that the others have ended. */
	run->ends_apart = (run->buckets_function != NULL && strcmp(run->buckets_function, "sweep.range_count") == 0) ||
		((run->bucket_count > 0 || DefaultXactIsoLevel > XACT_READ_COMMITTED) && (run->has_on_success || run->has_on_failure));
	if (!take_lock(run))
	{
		run->reason = sweep_brake_is_stopped(run) ? SWEEP_STOP_CANCELLED : SWEEP_STOP_SKIPPED;
		if (run->waits_for_lock && run->reason == SWEEP_STOP_SKIPPED)
			run->stage = RUN_PUT_BACK;
		else
			end_unbegun(run);
		return false;
	}
	if (run->timeout_us > 0)
		sweep_timers_arm_timeout(run);
	/* The settings are set in a transaction of their own: one that fails would lose them. In a session each transaction sets them. */
	if (!sweep_sql_in_call() && sweep_environment_is_needed(run))
		end = sweep_batch_transact(run, sweep_environment_set, run, &run->error);
	if (end == TXN_COMMITTED && (run->bucket_count > 0 || (run->has_on_start && !run->is_share)) && !sweep_bucket_run_open(run, &run->error))
		end = TXN_FAILED;
	if (end == TXN_COMMITTED)
		end = record(run, start_work, &run->error);
	if (end == TXN_STOPPED)
		run->reason = SWEEP_STOP_CANCELLED;
	if (end == TXN_FAILED || end == TXN_STOPPED)
	{
		end_unbegun(run);
		return false;
	}
	run->state.detail = run->next.detail;
	limits = sweep_run_limits(run);
	sweep_loop_begin(&run->state.loop, &limits, sweep_monotonic_us());
	return run->stage == RUN_BEGUN;
}

static bool
take_lock(SweepRun *run)
{
	sweep_report_phase(run, PHASE_LOCK);
	/* Shares of a divided job hold the lock together. */
	run->lock = sweep_lock_of_job(run->run_as, run->lock_key, run->bucket_count > 0 ? ShareLock : ExclusiveLock);
	for (int tries = 0;; tries++)
	{
		if (sweep_lock_acquire(&run->lock))
			return true;
		/* The scheduler checks when the lock is free, which takes no process meanwhile. */
		if (tries >= run->lock_retries || run->waits_for_lock || sweep_brake_is_stopped(run))
			return false;
		sweep_brake_wait(run, run->lock_retry_delay_us, sweep_wait_event(SWEEP_WAIT_LOCK));
	}
}

/* Calls work in a transaction that executes no code of the job; repeated while another share of the job is ending. */
static SweepTxnEnd
record(SweepRun *run, SweepWork work, ErrorData **error)
{
	SweepTxnEnd end;

	run->txn.records_only = true;
	for (;;)
	{
		run->txn.another_ends = false;
		end = sweep_batch_transact(run, work, run, error);
		if (end != TXN_COMMITTED || !run->txn.another_ends)
			break;
		sweep_cancel_wait(END_RETRY_MS, sweep_wait_event(SWEEP_WAIT_LOCK));
	}
	run->txn.records_only = false;
	return end;
}

static bool
another_ends(SweepRun *run)
{
	run->txn.another_ends = run->ends_apart && !sweep_lock_acquire_divided(SWEEP_LOCK_ENDING, run->job);
	return run->txn.another_ends;
}

static void
start_work(void *arg)
{
	SweepRun   *run = arg;
	Datum		job;

	HOLD_CANCEL_INTERRUPTS();
	sweep_run_read_clock(run);
	run->stage = sweep_run_row_start(run) ? RUN_BEGUN : RUN_WAITING;
	if (run->stage == RUN_BEGUN)
	{
		/* Tables that the job does not need are not read: in a new process each one costs a tenth of a millisecond. */
		job = CStringGetTextDatum(run->job);
		if (!run->begins_anew && sweep_sql_execute(&kept_cursor_sql, &job, NULL) == 1)
			run->state.cursor = sweep_sql_jsonb(1, run->context);
		run->has_quarantine = run->pick_name != NULL && sweep_sql_execute(&has_quarantine_sql, &job, NULL) > 0;
		queue_hooks(run);
		sweep_report_begin(run);
	}
	else
	{
		/* The run was cancelled or dropped with its job before it began; or another session is changing it, and it stays queued. */
		run->status = "cancelled";
		run->reason = SWEEP_STOP_CANCELLED;
	}
	RESUME_CANCEL_INTERRUPTS();
}

/* Queues the on_start of the job, unless the run is a share: only the run that divided the job counts as its start. */
static void
queue_hooks(SweepRun *run)
{
	Datum		run_id = Int64GetDatum(run->run_id);

	if (!run->has_on_start || run->is_share)
		return;
	(void) sweep_sql_execute(&start_hooks_sql, &run_id, NULL);
	if (!sweep_sql_is_null(1))
		run->next.detail = sweep_detail_merge(run->state.detail, sweep_sql_jsonb(1, CurrentMemoryContext), run->context);
}

/* Records that the run failed, was cancelled or was skipped before it began; run->error and run->reason say which. */
static void
end_unbegun(SweepRun *run)
{
	ErrorData  *error = NULL;

	sweep_cancel_drop();
	if (run->error != NULL)
	{
		run->status = "failed";
		if (run->reason != SWEEP_STOP_TIMEOUT)
			run->reason = SWEEP_STOP_ERROR;
		if (!sweep_sql_in_call())
			ereport(WARNING,
					(errcode(run->error->sqlerrcode),
					 errmsg("run %lld of job \"%s\" could not begin: %s", (long long) run->run_id, run->job, run->error->message)));
	}
	else
		run->status = run->reason == SWEEP_STOP_CANCELLED ? "cancelled" : "skipped";
	see_others();
	if (record(run, unbegun_work, &error) == TXN_FAILED)
		ereport(WARNING, (errmsg("run %lld could not be recorded: %s", (long long) run->run_id, error->message)));
}

/* A run that is skipped because another process has the lock also queues the on_start of its job. */
static void
unbegun_work(void *arg)
{
	SweepRun   *run = arg;

	HOLD_CANCEL_INTERRUPTS();
	if (another_ends(run))
		;
	else if (run->reason != SWEEP_STOP_SKIPPED)
		sweep_run_row_fail(run);
	else
	{
		sweep_run_row_skip(run);
		queue_hooks(run);
		sweep_batch_follow_end(run);
	}
	RESUME_CANCEL_INTERRUPTS();
	run->stage = RUN_BEGUN;
}

static void
execute_batch(SweepRun *run)
{
	ErrorData  *error = NULL;
	SweepTxnEnd end;

	if (pg_atomic_read_u32(&run->slot->stop_request) != 0)
	{
		sweep_batch_fail(run, NULL);
		return;
	}
	run->times.batch_started_us = sweep_monotonic_us();
	if (run->buckets != NULL && !sweep_bucket_run_check(run, &error))
	{
		sweep_batch_fail(run, error);
		return;
	}
	if (!sweep_sql_in_call())
		sweep_report_activity(run);
	sweep_report_phase(run, PHASE_STEP);
	if (run->sql != NULL)
	{
		sweep_script_execute(run);
		return;
	}
	if (run->pick_name != NULL)
	{
		sweep_items_execute(run);
		return;
	}
	end = sweep_batch_transact(run, batch_work, run, &error);
	if (end == TXN_COMMITTED)
	{
		sweep_batch_accept(run);
		if (run->no_progress)
			sweep_batch_fail(run, run->endless);
	}
	else if (end == TXN_FAILED)
	{
		run->no_progress = false;
		if (!sweep_batch_halve(run, error))
			sweep_batch_fail(run, error);
	}
}

/* One transaction: the step, and the row of the run. */
static void
batch_work(void *arg)
{
	SweepRun   *run = arg;
	SweepProgress progress;
	SweepBatch	batch;

	if (run->buckets != NULL && !sweep_bucket_run_begin_batch(run))
		return;
	if (run->step == NULL)
		run->step = sweep_step_prepare(run->context, run->step_name, run->batch_sql);
	sweep_batch_require_role(run);
	batch = sweep_batch_request(run);
	sweep_batch_call(run, run->step, &batch, NULL, &progress);
	sweep_batch_add(run, &progress);
	sweep_batch_end(run, progress.rows == 0);
	if (run->reason == SWEEP_STOP_NONE)
		sweep_watch_batch(run);
	sweep_batch_save(run);
}

/* Writes the outcome in a transaction of its own, if no batch has written it. */
static void
end_run(SweepRun *run)
{
	ErrorData  *error = NULL;

	sweep_report_phase(run, PHASE_ENDING);
	run->stage = RUN_ENDING;
	see_others();
	if (record(run, end_work, &error) == TXN_FAILED)
		ereport(WARNING,
				(errmsg("outcome of run %lld of job \"%s\" could not be recorded: %s",
						(long long) run->run_id, run->job, error->message)));
	run->stage = RUN_ENDED;
	if (run->error != NULL && !sweep_sql_in_call())
		ereport(WARNING,
				(errcode(run->error->sqlerrcode),
				 errmsg("run %lld of job \"%s\" failed: %s", (long long) run->run_id, run->job, run->error->message)));
}

/*
 * The hooks and shares that follow from an end depend on commits of other processes, also on those that came while this process
 * waited. The role may have set REPEATABLE READ or SERIALIZABLE: an older snapshot would miss these commits, or the transaction
 * would fail. In a session the isolation level is that of the session.
 */
static void
see_others(void)
{
	if (!sweep_sql_in_call())
		sweep_worker_set("default_transaction_isolation", "read committed");
}

static void
end_work(void *arg)
{
	SweepRun   *run = arg;

	/* A second request to stop must not keep the first one from being recorded. */
	HOLD_CANCEL_INTERRUPTS();
	if (!another_ends(run))
	{
		sweep_batch_is_last(run);
		sweep_batch_save(run);
	}
	RESUME_CANCEL_INTERRUPTS();
	sweep_cancel_drop();
}

/* A request to cancel has ended the wait for a standby. This is noted in the row of the run, without waiting again. */
static void
note_unreplicated(SweepRun *run)
{
	ErrorData  *error = NULL;

	ereport(WARNING,
			(errmsg("run %lld of job \"%s\" is committed, but not replicated", (long long) run->run_id, run->job),
			 errdetail("Its last commit did not wait until a synchronous standby had it."),
			 errhint("A failover before the standby has caught up undoes it, with its row in sweep.runs.")));
	if (record(run, note_work, &error) == TXN_FAILED)
		ereport(WARNING,
				(errmsg("row of run %lld of job \"%s\" does not say so: %s", (long long) run->run_id, run->job, error->message)));
}

static void
note_work(void *arg)
{
	SweepRun   *run = arg;
	Datum		run_id = Int64GetDatum(run->run_id);

	HOLD_CANCEL_INTERRUPTS();
	/* This commit must not wait for a standby. */
	(void) set_config_option("synchronous_commit", "local", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
	(void) sweep_sql_execute(&note_unreplicated_sql, &run_id, NULL);
	RESUME_CANCEL_INTERRUPTS();
}
