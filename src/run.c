/*
 * run.c
 *		Begins a run, executes its batches, ends it.
 *
 * Called by runner.c in a background worker and by call.c in a session. A batch is one transaction: the
 * step, and the row of the run with its counters, cursor and detail, are committed together; in the
 * last batch so is the outcome. What a batch changes in memory counts only once it is committed, so a
 * failed batch leaves the run as it was.
 *
 * Two memory contexts: that of the run, and that of the batch, reset at the top of each turn. What a
 * batch leaves for the next one (cursor, detail) is copied to the run's context after the commit and
 * what it replaces is freed, so a run of any length stays small.
 *
 * Every transaction first passes the gate, see sweep_sql_open_gate(): while somebody alters or drops
 * the extension, the run waits outside of any transaction and then sees what became of it.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "detail.h"
#include "guard.h"
#include "lease.h"
#include "report.h"
#include "run.h"
#include "sql.h"

/* How long a run waits before it looks at the gate again. */
#define GATE_PAUSE_MS 50

static TimestampTz fixed_clock(Jsonb *args);
static bool begin_run(SweepRun *run);
static bool take_lease(SweepRun *run);
static void skip_work(void *arg);
static void start_work(void *arg);
static void execute_batch(SweepRun *run);
static void batch_work(void *arg);
static void call_step(SweepRun *run, SweepProgress *progress);
static void accept_batch(SweepRun *run);
static void judge_failure(SweepRun *run, ErrorData *error);
static void end_run(SweepRun *run);
static void end_work(void *arg);
static bool transact(SweepRun *run, SweepWork work, MemoryContext error_context, ErrorData **error);
static bool pass_gate(SweepRun *run);
static void save_run(SweepRun *run);
static void set_transaction(SweepRun *run, bool last);
static Jsonb *copy_jsonb(Jsonb *source);

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

void
sweep_run_read_job(SweepRun *run)
{
	MemoryContext context = run->context;
	char	   *flush;

	run->job = sweep_sql_text(1, context);
	run->step_name = sweep_sql_text(2, context);
	run->batch_sql = sweep_sql_text(3, context);
	run->limits.batch_size = sweep_sql_int32(4);
	run->limits.max_batches = sweep_sql_int32(5);
	run->limits.max_rows = sweep_sql_int64(6);
	run->limits.timeout_us = sweep_sql_interval_us(7, -1);
	run->lease_key = sweep_sql_text(8, context);
	run->lease_ttl_us = sweep_sql_interval_us(9, 0);
	run->lock_retries = sweep_sql_int32(10);
	run->lock_retry_delay_ms = sweep_sql_interval_us(11, 0) / 1000;
	flush = sweep_sql_text(12, context);
	run->flush_batch = strcmp(flush, "batch") == 0;
	run->keep_cursor = sweep_sql_bool(13);
	run->run_as = sweep_sql_oid(14);
	run->args = sweep_sql_jsonb(15, context);
	run->as_of = fixed_clock(run->args);
}

/* The as_of of the args, or 0 when they have none. */
static TimestampTz
fixed_clock(Jsonb *args)
{
	JsonbValue	buffer;
	JsonbValue *value = getKeyJsonValueFromContainer(&args->root, "as_of", strlen("as_of"), &buffer);

	if (value == NULL || value->type != jbvString)
		return 0;
	return DatumGetTimestampTz(DirectFunctionCall3(timestamptz_in,
												   CStringGetDatum(pnstrdup(value->val.string.val, value->val.string.len)),
												   ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1)));
}

void
sweep_run_check_role(const SweepRun *run)
{
	if (GetUserId() == run->run_as && GetSessionUserId() == run->run_as)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("job \"%s\" can be run in a session of its role only", run->job),
			 errdetail("The job runs as role \"%s\".", GetUserNameFromId(run->run_as, true)),
			 errhint("Use sweep.start(), which runs it in the background as that role.")));
}

void
sweep_run_perform(SweepRun *run)
{
	if (begin_run(run))
	{
		while (run->reason == SWEEP_STOP_NONE)
		{
			MemoryContextReset(run->batch_context);
			execute_batch(run);
		}
		if (!run->ended)
			end_run(run);
	}
	sweep_guard_disarm_lease(run);
	sweep_lease_give_back(run->lease_key);
	sweep_lease_give_back_run(run->run_id);
}

/* The lease, then the row that says that the run is in progress, in a commit of its own. */
static bool
begin_run(SweepRun *run)
{
	ErrorData  *error = NULL;

	if (!take_lease(run))
	{
		run->status = "skipped";
		run->reason = SWEEP_STOP_SKIPPED;
		if (!transact(run, skip_work, run->context, &error))
			ereport(WARNING, (errmsg("run %lld could not be recorded: %s", (long long) run->run_id, error->message)));
		return false;
	}
	sweep_guard_arm_lease(run);
	if (!transact(run, start_work, run->context, &error))
	{
		run->status = "failed";
		run->reason = SWEEP_STOP_ERROR;
		run->error = error;
		if (!sweep_sql_in_call())
			ereport(WARNING,
					(errcode(error->sqlerrcode),
					 errmsg("run %lld of job \"%s\" could not begin: %s", (long long) run->run_id, run->job, error->message)));
		return false;
	}
	sweep_loop_begin(&run->state.loop, &run->limits, sweep_monotonic_us());
	return run->begun;
}

static bool
take_lease(SweepRun *run)
{
	sweep_report_phase(run, PHASE_LEASE);
	for (int tries = 0;; tries++)
	{
		if (sweep_lease_acquire(run->lease_key))
			return true;
		if (tries >= run->lock_retries || pg_atomic_read_u32(&run->slot->stop_request) != 0)
			return false;
		sweep_run_pause((long) run->lock_retry_delay_ms);
	}
}

static void
skip_work(void *arg)
{
	SweepRun   *run = arg;
	LOCKTAG		tag;
	Datum		values[6];

	if (!pass_gate(run))
		return;
	sweep_lease_tag(&tag, run->lease_key);
	values[0] = Int64GetDatum(run->run_id);
	values[1] = Int32GetDatum(MyProcPid);
	values[2] = ObjectIdGetDatum(tag.locktag_field1);
	values[3] = ObjectIdGetDatum(tag.locktag_field2);
	values[4] = ObjectIdGetDatum(tag.locktag_field3);
	values[5] = Int16GetDatum((int16) tag.locktag_field4);
	if (sweep_sql_execute(SWEEP_SQL_SKIP_RUN, values, NULL) == 1)
		run->lease_holder = sweep_sql_text(1, run->context);
	run->begun = true;
}

static void
start_work(void *arg)
{
	SweepRun   *run = arg;
	Datum		values[] = {Int64GetDatum(run->run_id), Int32GetDatum(MyProcPid), BoolGetDatum(run->keep_cursor)};

	if (!pass_gate(run))
		return;
	set_transaction(run, false);
	if (sweep_sql_execute(SWEEP_SQL_START_RUN, values, NULL) == 0)
	{
		/* Cancelled, or dropped with its job, before it began. */
		run->status = "cancelled";
		run->reason = SWEEP_STOP_CANCELLED;
		return;
	}
	run->state.tid = sweep_sql_tid(1);
	run->state.cursor = sweep_sql_jsonb(2, run->context);
	run->begun = true;
	sweep_report_begin(run);
}

static void
execute_batch(SweepRun *run)
{
	ErrorData  *error = NULL;
	int64		started_us = sweep_monotonic_us();

	if (pg_atomic_read_u32(&run->slot->stop_request) != 0)
	{
		judge_failure(run, NULL);
		return;
	}
	if (!sweep_sql_in_call())
		sweep_report_activity(run);
	sweep_report_phase(run, PHASE_STEP);
	if (!transact(run, batch_work, run->context, &error))
		judge_failure(run, error);
	else if (!run->gate_closed && !run->ended)
	{
		run->last_batch_us = sweep_monotonic_us() - started_us;
		accept_batch(run);
	}
}

/* One transaction: the step, and the row of the run. */
static void
batch_work(void *arg)
{
	SweepRun   *run = arg;
	SweepProgress progress;
	MemoryContext old;

	run->next = run->state;
	if (!pass_gate(run))
		return;
	set_transaction(run, false);
	call_step(run, &progress);
	if (!sweep_lease_is_held(run->lease_key))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("job \"%s\" has released its own lease", run->job),
				 errhint("A step must not call pg_advisory_unlock_all().")));

	old = MemoryContextSwitchTo(run->batch_context);
	run->next.cursor = progress.cursor;
	run->next.detail = sweep_detail_merge(run->state.detail, progress.detail);
	MemoryContextSwitchTo(old);
	run->reason = sweep_loop_record(&run->next.loop, progress.rows, sweep_monotonic_us());
	if (run->reason == SWEEP_STOP_NONE && (pg_atomic_read_u32(&run->slot->stop_request) & SWEEP_STOP_REQUEST_CANCEL) != 0)
		run->reason = SWEEP_STOP_CANCELLED;
	if (run->reason != SWEEP_STOP_NONE)
	{
		run->status = run->reason == SWEEP_STOP_CANCELLED ? "cancelled" : "succeeded";
		set_transaction(run, true);
	}
	sweep_report_phase(run, PHASE_COMMIT);
	save_run(run);
}

static void
call_step(SweepRun *run, SweepProgress *progress)
{
	SweepBatch	batch = {
		.size = sweep_loop_next_size(&run->state.loop),
		.cursor = run->state.cursor,
		.args = run->args,
		.as_of = run->as_of != 0 ? run->as_of : GetCurrentTimestamp(),
		.run_id = run->run_id,
	};

	if (run->step == NULL)
		run->step = sweep_step_prepare(run->context, run->step_name, run->batch_sql);
	if (!sweep_sql_in_call())
		sweep_guard_arm_statement(run);
	sweep_step_call(run->step, &batch, progress, run->batch_context);
	sweep_guard_disarm_statement(run);
}

/* The batch is committed: what it came to is now the state of the run. */
static void
accept_batch(SweepRun *run)
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
	sweep_report_batch(run);
}

/* The batch was rolled back, or not begun: why the run ends. */
static void
judge_failure(SweepRun *run, ErrorData *error)
{
	uint32		request = pg_atomic_read_u32(&run->slot->stop_request);
	bool		cancelled = error == NULL || error->sqlerrcode == ERRCODE_QUERY_CANCELED;
	bool		timed_out = sweep_guard_statement_timed_out(run);

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

/* Writes the outcome in a transaction of its own, where no batch could carry it. */
static void
end_run(SweepRun *run)
{
	ErrorData  *error = NULL;

	sweep_report_phase(run, PHASE_ENDING);
	if (!transact(run, end_work, run->context, &error))
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
	run->next = run->state;
	if (pass_gate(run))
	{
		set_transaction(run, true);
		save_run(run);
		if (run->error != NULL)
			(void) sweep_sql_execute(SWEEP_SQL_RETRY_RUN, &run_id, NULL);
	}
	RESUME_CANCEL_INTERRUPTS();
	QueryCancelPending = false;
}

/* A transaction, again and again while the gate is closed. */
static bool
transact(SweepRun *run, SweepWork work, MemoryContext error_context, ErrorData **error)
{
	for (;;)
	{
		if (sweep_sql_transaction(work, run, error_context, error))
			return true;
		if (!run->gate_closed)
			return false;
		FreeErrorData(*error);
		sweep_run_pause(GATE_PAUSE_MS);
		if (pg_atomic_read_u32(&run->slot->stop_request) != 0 && work == batch_work)
			return true;		/* seen again before the next batch */
	}
}

/* False when the extension is gone, and the row of the run with it: there is nothing left to do. */
static bool
pass_gate(SweepRun *run)
{
	run->gate_closed = true;
	if (!sweep_sql_open_gate())
	{
		run->status = "cancelled";
		run->reason = SWEEP_STOP_CANCELLED;
		run->ended = true;
	}
	run->gate_closed = false;
	return !run->ended;
}

void
sweep_run_pause(long timeout_ms)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, timeout_ms, sweep_wait_event());
	ResetLatch(MyLatch);
	HOLD_CANCEL_INTERRUPTS();
	CHECK_FOR_INTERRUPTS();
	RESUME_CANCEL_INTERRUPTS();
}

/*
 * Found by its place, not by its key: with an old snapshot around, a look-up by key would walk all
 * versions of the row that the batches before left behind.
 */
static void
save_run(SweepRun *run)
{
	const char *reason = sweep_loop_stop_name(run->reason);
	const ErrorData *error = run->error;
	Datum		values[10] = {0};
	char		nulls[11] = "          ";

	values[0] = PointerGetDatum(&run->next.tid);
	values[1] = Int32GetDatum((int32) Min(run->next.loop.batches, PG_INT32_MAX));
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
	if (sweep_sql_execute(SWEEP_SQL_SAVE_RUN, values, nulls) != 1)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("row of run %lld in sweep.run_live was changed by somebody else", (long long) run->run_id)));
	run->next.tid = sweep_sql_tid(1);
}

/*
 * What holds for one transaction of the run. With flush 'run' no commit but the last one waits for the
 * disk: a crash can then undo only whole batches at the end, each with its counters. A worker has the
 * other settings for good, see sweep_worker_connect().
 */
static void
set_transaction(SweepRun *run, bool last)
{
	if (!run->flush_batch)
		(void) set_config_option("synchronous_commit", last ? run->synchronous_commit : "off",
								 PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
	if (sweep_sql_in_call() && !last)
		sweep_run_set_environment();
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

static Jsonb *
copy_jsonb(Jsonb *source)
{
	return source == NULL ? NULL : DatumGetJsonbPCopy(JsonbPGetDatum(source));
}
