/*
 * run.c
 *		Begins a run, executes its batches, ends it.
 *
 * Called by runner.c in a background worker and by call.c in a session. A batch is one transaction: the
 * step, and the row of the run with its counters, cursor and detail, are committed together; in the
 * last batch so is the outcome. See unit.c for the transaction, items.c for jobs that pick their items.
 *
 * Two memory contexts: that of the run, and that of the batch, reset at the top of each turn. What a
 * batch leaves for the next one (cursor, detail) is copied to the run's context after the commit and
 * what it replaces is freed, so a run of any length stays small.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/detail.h"
#include "base/lease.h"
#include "base/sql.h"
#include "base/worker.h"
#include "engine/guard.h"
#include "engine/items.h"
#include "engine/report.h"
#include "engine/run.h"
#include "engine/run_args.h"
#include "engine/run_row.h"
#include "engine/share.h"
#include "engine/unit.h"

/* Who waits for long looks this often whether he is to stop. */
#define LOOK_AGAIN_MS 1000L

static bool begin_run(SweepRun *run);
static void queue_children(SweepRun *run);
static bool is_stopped(const SweepRun *run);
static void children_work(void *arg);
static void end_unbegun(SweepRun *run, SweepWork skip);
static bool take_lease(SweepRun *run);
static void skip_work(void *arg);
static void start_work(void *arg);
static void start_row(SweepRun *run);
static bool change_row(SweepRun *run);
static bool update_row(SweepRun *run);
static void no_start_work(void *arg);
static void execute_batch(SweepRun *run);
static void batch_work(void *arg);
static void end_run(SweepRun *run);
static void end_work(void *arg);

SweepRun *
sweep_run_create(MemoryContext parent, SweepSlot *slot)
{
	MemoryContext context = AllocSetContextCreate(parent, "pg_sweep run", ALLOCSET_SMALL_SIZES);
	SweepRun   *run = MemoryContextAllocZero(context, sizeof(SweepRun));

	run->context = context;
	run->batch_context = AllocSetContextCreate(context, "pg_sweep batch", ALLOCSET_DEFAULT_SIZES);
	run->slot = slot;
	run->synchronous_commit = MemoryContextStrdup(context, GetConfigOption("synchronous_commit", false, false));
	return run;
}

SweepLeaseMode
sweep_run_lease_mode(const SweepRun *run)
{
	return run->buckets > 0 ? LEASE_SHARED : LEASE_ALONE;
}

void
sweep_run_perform(SweepRun *run)
{
	sweep_worker_watch_postmaster(true);
	if (begin_run(run))
	{
		if (!sweep_sql_in_call())
			sweep_worker_allow_cancel(true);
		while (run->reason == SWEEP_STOP_NONE)
		{
			MemoryContextReset(run->batch_context);
			execute_batch(run);
		}
		if (!sweep_sql_in_call())
			sweep_worker_allow_cancel(false);
		if (!run->ended)
			end_run(run);
	}
	sweep_guard_disarm_lease(run);
	sweep_share_close(run);
	sweep_step_free(run->step);
	sweep_step_free(run->pick);
	sweep_step_free(run->rescue);
	sweep_lease_give_back(run->run_as, run->lease_key, sweep_run_lease_mode(run));
	sweep_lease_give_back_run(run->run_id);
	sweep_worker_watch_postmaster(false);
}

/* The lease, a bucket, then the row that says that the run is in progress, in a commit of its own. */
static bool
begin_run(SweepRun *run)
{
	ErrorData  *error = NULL;

	/* Children of what is due do not depend on what becomes of it. What waits for its turn has them when that comes. */
	if (!run->waits_for_lease)
		queue_children(run);
	if (!take_lease(run))
	{
		run->reason = is_stopped(run) ? SWEEP_STOP_CANCELLED : SWEEP_STOP_SKIPPED;
		run->put_back = run->waits_for_lease && run->reason == SWEEP_STOP_SKIPPED;
		if (!run->put_back)
			end_unbegun(run, skip_work);
		return false;
	}
	if (run->waits_for_lease)
		queue_children(run);
	sweep_guard_arm_lease(run);
	if (!sweep_share_open(run, &error) || !sweep_unit_transact(run, start_work, run, &error))
	{
		run->error = error;
		end_unbegun(run, sweep_share_skip_work);
		return false;
	}
	if (!run->begun && run->gate_closed)
	{
		run->status = "cancelled";
		run->reason = SWEEP_STOP_CANCELLED;
	}
	sweep_loop_begin(&run->state.loop, &run->limits, sweep_monotonic_us());
	return run->begun;
}

/* Failed, cancelled or skipped before it began, as error and reason of the run say. */
static void
end_unbegun(SweepRun *run, SweepWork skip)
{
	ErrorData  *error = NULL;

	QueryCancelPending = false;
	if (run->error != NULL)
	{
		run->status = "failed";
		if (run->reason != SWEEP_STOP_LEASE_EXPIRED)
			run->reason = SWEEP_STOP_ERROR;
		if (!sweep_sql_in_call())
			ereport(WARNING,
					(errcode(run->error->sqlerrcode),
					 errmsg("run %lld of job \"%s\" could not begin: %s", (long long) run->run_id, run->job, run->error->message)));
	}
	else
		run->status = run->reason == SWEEP_STOP_CANCELLED ? "cancelled" : "skipped";
	if (!sweep_unit_transact(run, run->reason == SWEEP_STOP_SKIPPED ? skip : no_start_work, run, &error))
		ereport(WARNING, (errmsg("run %lld could not be recorded: %s", (long long) run->run_id, error->message)));
}

static void
queue_children(SweepRun *run)
{
	ErrorData  *error = NULL;

	if (run->has_children && !sweep_unit_transact(run, children_work, run, &error))
		ereport(WARNING,
				(errmsg("children of job \"%s\" could not be queued: %s", run->job, error->message)));
}

static bool
take_lease(SweepRun *run)
{
	sweep_report_phase(run, PHASE_LEASE);
	for (int tries = 0;; tries++)
	{
		if (sweep_lease_acquire(run->run_as, run->lease_key, sweep_run_lease_mode(run)))
			return true;
		/* The scheduler looks when it is free, which takes no process meanwhile. */
		if (tries >= run->lock_retries || run->waits_for_lease || is_stopped(run))
			return false;
		sweep_run_pause(run, (long) run->lock_retry_delay_ms);
	}
}

/* Somebody wants the run to stop; before it has begun nothing but this looks at it. */
static bool
is_stopped(const SweepRun *run)
{
	return pg_atomic_read_u32(&run->slot->stop_request) != 0 || QueryCancelPending;
}

static void
children_work(void *arg)
{
	SweepRun   *run = arg;
	Datum		run_id = Int64GetDatum(run->run_id);

	/* No timeout of the job's role keeps the engine from recording what is to be done. */
	HOLD_CANCEL_INTERRUPTS();
	if (sweep_unit_begin(run))
	{
		(void) sweep_sql_execute(SWEEP_SQL_START_CHILDREN, &run_id, NULL);
		if (!sweep_sql_is_null(1))
		{
			Jsonb	   *not_started = sweep_sql_jsonb(1, run->context);
			MemoryContext old = MemoryContextSwitchTo(run->context);

			run->state.detail = sweep_detail_merge(run->state.detail, not_started);
			MemoryContextSwitchTo(old);
		}
	}
	RESUME_CANCEL_INTERRUPTS();
}

static void
skip_work(void *arg)
{
	SweepRun   *run = arg;
	LOCKTAG		tag;
	Datum		values[6];

	if (!sweep_unit_begin(run))
		return;
	sweep_lease_tag(&tag, run->run_as, run->lease_key);
	values[0] = Int64GetDatum(run->run_id);
	values[1] = Int32GetDatum(MyProcPid);
	values[2] = ObjectIdGetDatum(tag.locktag_field1);
	values[3] = ObjectIdGetDatum(tag.locktag_field2);
	values[4] = ObjectIdGetDatum(tag.locktag_field3);
	values[5] = Int16GetDatum((int16) tag.locktag_field4);
	if (!sweep_unit_is_locked(run) && sweep_sql_execute(SWEEP_SQL_SKIP_RUN, values, NULL) == 1)
		run->lease_holder = sweep_sql_text(1, run->context);
	run->begun = true;
}

static void
start_work(void *arg)
{
	SweepRun   *run = arg;

	HOLD_CANCEL_INTERRUPTS();
	if (sweep_unit_begin(run))
	{
		sweep_run_fix_clock(run);
		start_row(run);
	}
	RESUME_CANCEL_INTERRUPTS();
}

static void
start_row(SweepRun *run)
{
	Datum		job;

	if (!change_row(run) && (sweep_unit_is_locked(run) || !update_row(run)))
	{
		/* Cancelled, or dropped with its job, before it began; or somebody is just doing that, and it waits on. */
		run->status = "cancelled";
		run->reason = SWEEP_STOP_CANCELLED;
		return;
	}
	/* What most jobs do not need is not read: in a fresh process each table costs a tenth of a millisecond. */
	job = CStringGetTextDatum(run->job);
	if (run->keep_cursor && sweep_sql_execute(SWEEP_SQL_KEPT_CURSOR, &job, NULL) == 1)
		run->state.cursor = sweep_sql_jsonb(1, run->context);
	run->has_quarantine = run->pick_name != NULL && sweep_sql_execute(SWEEP_SQL_HAS_QUARANTINE, &job, NULL) > 0;
	run->begun = true;
	sweep_report_begin(run);
}

/* Without SQL, where the scheduler saw the row. */
static bool
change_row(SweepRun *run)
{
	SweepRunChange change = {0};
	ItemPointerData place = run->state.tid;

	sweep_run_row_set(&change, RUN_COLUMN_STATUS, CStringGetTextDatum("running"));
	sweep_run_row_set(&change, RUN_COLUMN_STARTED_AT, TimestampTzGetDatum(GetCurrentTimestamp()));
	sweep_run_row_set(&change, RUN_COLUMN_PID, Int32GetDatum(MyProcPid));
	sweep_run_row_set_null(&change, RUN_COLUMN_BUCKET);
	sweep_run_row_set_null(&change, RUN_COLUMN_SHARES_LEFT);
	if (run->share != NULL)
	{
		sweep_run_row_set(&change, RUN_COLUMN_BUCKET, Int32GetDatum(run->share->claim.bucket));
		sweep_run_row_set(&change, RUN_COLUMN_SHARES_LEFT, Int32GetDatum(run->shares_left));
	}
	if (!sweep_run_row_change(&place, run->run_id, "waiting", &change))
		return false;
	run->state.tid = place;
	return true;
}

/* Wherever it is now; in a session it has always to be looked for. */
static bool
update_row(SweepRun *run)
{
	Datum		values[4] = {Int64GetDatum(run->run_id), Int32GetDatum(MyProcPid)};

	if (run->share != NULL)
	{
		values[2] = Int32GetDatum(run->share->claim.bucket);
		values[3] = Int32GetDatum(run->shares_left);
	}
	if (sweep_sql_execute(SWEEP_SQL_START_RUN, values, run->share != NULL ? NULL : "  nn") == 0)
		return false;
	run->state.tid = sweep_sql_tid(1);
	return true;
}

/* The run could not begin, or was stopped before: its row still waits, and is ended as such. */
static void
no_start_work(void *arg)
{
	SweepRun   *run = arg;
	Datum		values[4] = {Int64GetDatum(run->run_id), CStringGetTextDatum(sweep_loop_stop_name(run->reason))};

	if (run->error != NULL)
	{
		values[2] = CStringGetTextDatum(unpack_sql_state(run->error->sqlerrcode));
		values[3] = CStringGetTextDatum(sweep_report_error_text(run->error));
	}
	HOLD_CANCEL_INTERRUPTS();
	if (sweep_unit_begin(run))
		(void) sweep_sql_execute(SWEEP_SQL_FAIL_START, values, run->error != NULL ? NULL : "  nn");
	RESUME_CANCEL_INTERRUPTS();
	run->begun = true;
}

static void
execute_batch(SweepRun *run)
{
	ErrorData  *error = NULL;

	if (pg_atomic_read_u32(&run->slot->stop_request) != 0)
	{
		sweep_unit_fail(run, NULL);
		return;
	}
	run->batch_started_us = sweep_monotonic_us();
	if (!sweep_share_check(run, &error))
	{
		sweep_unit_fail(run, error);
		return;
	}
	if (!sweep_sql_in_call())
		sweep_report_activity(run);
	sweep_report_phase(run, PHASE_STEP);
	if (run->pick_name != NULL)
		sweep_items_execute(run);
	else if (!sweep_unit_transact(run, batch_work, run, &error))
		sweep_unit_fail(run, error);
	else if (!run->gate_closed && !run->ended)
		sweep_unit_accept(run);
}

/* One transaction: the step, and the row of the run. */
static void
batch_work(void *arg)
{
	SweepRun   *run = arg;
	SweepProgress progress;
	SweepBatch	batch;
	MemoryContext old;

	if (!sweep_unit_begin(run) || !sweep_share_begin_batch(run))
		return;
	if (run->step == NULL)
		run->step = sweep_step_prepare(run->context, run->step_name, run->batch_sql);
	batch = sweep_unit_batch(run);
	sweep_unit_call(run, run->step, &batch, &progress);

	old = MemoryContextSwitchTo(run->batch_context);
	/* A cursor that is kept for good survives a batch that found nothing and names none. */
	run->next.cursor = progress.cursor == NULL && progress.rows == 0 && run->keep_cursor_always ? run->state.cursor : progress.cursor;
	run->next.detail = sweep_detail_merge(run->state.detail, progress.detail);
	MemoryContextSwitchTo(old);
	sweep_unit_check_size(run);
	sweep_loop_add_rows(&run->next.loop, progress.rows);
	sweep_unit_end_batch(run, progress.rows == 0);
	sweep_report_phase(run, PHASE_COMMIT);
	sweep_unit_save(run);
}

/* Writes the outcome in a transaction of its own, where no batch could carry it. */
static void
end_run(SweepRun *run)
{
	ErrorData  *error = NULL;

	sweep_report_phase(run, PHASE_ENDING);
	if (!sweep_unit_transact(run, end_work, run, &error))
		ereport(WARNING,
				(errmsg("outcome of run %lld of job \"%s\" could not be recorded: %s",
						(long long) run->run_id, run->job, error->message)));
	run->ended = true;
	if (run->error != NULL && !sweep_sql_in_call())
		ereport(WARNING,
				(errcode(run->error->sqlerrcode),
				 errmsg("run %lld of job \"%s\" failed: %s", (long long) run->run_id, run->job, run->error->message)));
}

static void
end_work(void *arg)
{
	SweepRun   *run = arg;
	Datum		run_id = Int64GetDatum(run->run_id);

	/* A second request to stop must not keep the first one from being recorded. */
	HOLD_CANCEL_INTERRUPTS();
	if (sweep_unit_begin(run))
	{
		sweep_unit_is_last(run);
		sweep_unit_save(run);
		if (run->error != NULL)
			(void) sweep_sql_execute(SWEEP_SQL_RETRY_RUN, &run_id, NULL);
	}
	RESUME_CANCEL_INTERRUPTS();
	QueryCancelPending = false;
}

/*
 * That the latch is set does not end it: it may have been set for something else before. Nor is it set by a
 * request to stop, the signal of which means nothing before a batch: that is looked for now and then.
 */
void
sweep_run_pause(SweepRun *run, long timeout_ms)
{
	int64		end_us = sweep_monotonic_us() + timeout_ms * INT64CONST(1000);
	int64		left_us;

	while ((left_us = end_us - sweep_monotonic_us()) > 0 && !is_stopped(run))
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, Min((long) (left_us / 1000 + 1), LOOK_AGAIN_MS), sweep_wait_event());
		ResetLatch(MyLatch);
		HOLD_CANCEL_INTERRUPTS();
		CHECK_FOR_INTERRUPTS();
		RESUME_CANCEL_INTERRUPTS();
	}
	if (QueryCancelPending)
	{
		pg_atomic_fetch_or_u32(&run->slot->stop_request, SWEEP_STOP_REQUEST_CANCEL);
		QueryCancelPending = false;
	}
}

void
sweep_run_set_environment(void)
{
	(void) set_config_option("search_path", "pg_catalog, pg_temp",
							 PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
	(void) set_config_option("jit", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
	(void) set_config_option("max_parallel_workers_per_gather", "0",
							 PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
}
