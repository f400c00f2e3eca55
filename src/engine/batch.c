/*
 * batch.c
 *		One transaction of a run, and the steps that all kinds of batches share.
 *
 * Called by run.c, items.c, script.c, estimate.c and bucket_run.c. A transaction changes run->next in memory, which becomes the
 * state of the run after the commit; a transaction that fails leaves the state unchanged.
 *
 * txn.c begins, repeats and ends transactions; this file adds the settings, timers and locks of a run.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/numeric.h"
#include "utils/timestamp.h"

#include "base/cancel.h"
#include "base/clock.h"
#include "base/detail.h"
#include "base/remote.h"
#include "base/role.h"
#include "base/worker.h"
#include "engine/batch.h"
#include "engine/environment.h"
#include "engine/report.h"
#include "engine/run_row.h"
#include "engine/timers.h"

/* Key in the detail of a run that leaves rows: the processes whose transactions must end first. */
#define WAITS_FOR "waits_for"

/* Key in the detail under which a step reports how many rows it has touched, and an upper limit of that number. */
#define TOUCHED "touched"
#define MAX_TOUCHED 1e15

/* Number of further tries of a batch of one row after conflicts with other transactions. */
#define CONFLICT_TRIES 3

static SweepStatement follow_end_sql = {.text = "SELECT sweep._follow_end($1)", .types = {INT8OID}};

static void begin(void *owner);
static bool is_stopped(void *owner);
static void enter_commit(void *arg);
static void leave_commit(SweepRun *run, bool committed);
static void stop_timer(void *arg);
static void set_synchronous_commit(SweepRun *run, const char *value, GucAction action);
static int64 touched(const SweepProgress *progress);
static const char *hint_for_one_row(bool timed_out, bool conflict);
static void check_size(const SweepRun *run);
static Jsonb *copy_jsonb(Jsonb *source);

SweepTxnEnd
sweep_batch_transact(SweepRun *run, SweepWork work, void *arg, ErrorData **error)
{
	SweepTxnHook timers = {.before_commit = enter_commit, .after_abort = stop_timer, .arg = run, .next = run->hooks};
	const SweepTxnPolicy policy = {
		.error_context = run->batch_context,
		.owner = run,
		.begin = begin,
		.waits = true,
		.is_stopped = is_stopped,
		.tries = run->stage >= RUN_BEGUN ? 1 : SWEEP_TXN_SERIALIZATION_TRIES,
		.hooks = &timers,
	};
	SweepTxnEnd end;

	run->txn.awaited = SYNC_REP_NO_WAIT;
	end = sweep_txn_execute(&policy, work, arg, error);
	leave_commit(run, end == TXN_COMMITTED);
	if (end == TXN_ABSENT && run->stage != RUN_ENDED)
	{
		run->status = "cancelled";
		run->reason = SWEEP_STOP_CANCELLED;
		run->stage = RUN_ENDED;
	}
	return end;
}

/*
 * With flush 'run' only the last commit waits for the disk: a crash can then undo only whole batches at the end, each with
 * its counters. A worker has the settings in its session, which is cheaper than setting them in each transaction.
 */
static void
begin(void *owner)
{
	SweepRun   *run = owner;

	run->next = run->state;
	if (sweep_sql_in_call() && run->txn.records_only)
		sweep_door_pin_path();
	else if (sweep_sql_in_call())
	{
		sweep_worker_set_local();
		if (sweep_environment_is_needed(run))
			sweep_environment_set_local(run);
	}
	if (synchronous_commit != SYNCHRONOUS_COMMIT_OFF)
		set_synchronous_commit(run, "off", sweep_sql_in_call() ? GUC_ACTION_LOCAL : GUC_ACTION_SET);
}

/* A request to stop does not keep the end of a run from being recorded. */
static bool
is_stopped(void *owner)
{
	SweepRun   *run = owner;

	sweep_brake_note_cancel(run);
	return run->reason == SWEEP_STOP_NONE && pg_atomic_read_u32(&run->slot->stop_request) != 0;
}

/*
 * Called after deferred triggers, which the timeout must be able to stop. A pending request to stop is processed here, because
 * it would otherwise end the wait for the standby; while the outcome is recorded it is not processed.
 */
static void
enter_commit(void *arg)
{
	SweepRun   *run = arg;

	run->txn.awaited = sweep_remote_awaits();
	if (run->txn.awaited == SYNC_REP_NO_WAIT)
		return;
	sweep_timers_suspend_timeout(run);
	sweep_report_phase(run, PHASE_STANDBY);
	/* A transaction that only records can be cancelled only while it waits for the standby. */
	if (run->txn.records_only && !sweep_sql_in_call())
		sweep_worker_allow_cancel(true);
	else if (run->txn.records_only)
		sweep_cancel_drop();
	CHECK_FOR_INTERRUPTS();
}

static void
leave_commit(SweepRun *run, bool committed)
{
	if (run->txn.awaited == SYNC_REP_NO_WAIT)
		return;
	sweep_report_phase(run, PHASE_COMMIT);
	if (run->txn.records_only && !sweep_sql_in_call())
		sweep_worker_allow_cancel(false);
	if (run->reason == SWEEP_STOP_NONE)
		sweep_timers_resume_timeout(run);
	/* Once a later commit is replicated, all earlier ones are. */
	if (committed)
		run->unreplicated = !sweep_remote_has_confirmed(run->txn.awaited);
}

static void
stop_timer(void *arg)
{
	SweepRun   *run = arg;

	if (run->statement_timer == STATEMENT_TIMED)
		sweep_timers_disarm_statement(run);
}

void
sweep_batch_is_last(SweepRun *run)
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
sweep_batch_request(SweepRun *run)
{
	const SweepBuckets *buckets = run->buckets != NULL && run->buckets->fence.held ? run->buckets : NULL;

	return (SweepBatch) {
		.size = sweep_loop_next_size(&run->state.loop),
		.cursor = run->state.cursor,
		.args = run->args,
		.as_of = run->as_of != 0 ? run->as_of : GetCurrentTimestamp(),
		.run_id = run->run_id,
		.bucket = buckets ? buckets->fence.claim.bucket : 0,
		.buckets = buckets ? buckets->count : 0,
	};
}

void
sweep_batch_call(SweepRun *run, SweepStep *step, const SweepBatch *batch, Jsonb *error, SweepProgress *progress)
{
	sweep_batch_enter_code(run);
	sweep_step_call(step, batch, error, progress, run->batch_context);
	sweep_batch_leave_code(run);
	sweep_batch_hold_bucket(run);
}

/*
 * The first call notes the settings of the run, each later call restores them. Names and literals of the job thus keep their meaning even
 * if other code has changed settings meanwhile, for example code of other roles that the job's statements have called.
 */
void
sweep_batch_enter_code(SweepRun *run)
{
	if (run->meaning == NULL)
		run->meaning = sweep_door_note_meaning(run->context, sweep_sql_in_call() ? run->run_as : InvalidOid);
	else
		sweep_door_put_back(run->meaning, run->run_as, sweep_sql_in_call() ? GUC_ACTION_LOCAL : GUC_ACTION_SET);
	run->statement_timer = STATEMENT_UNTIMED;
	if (StatementTimeout > 0 && !sweep_sql_in_call())
		sweep_timers_arm_statement(run);
}

void
sweep_batch_leave_code(SweepRun *run)
{
	stop_timer(run);
	sweep_batch_require_lock(run);
}

void
sweep_batch_require_role(SweepRun *run)
{
	uint64		changes = sweep_role_changes();
	const char *problem;

	if (run->role_checked_at == changes || sweep_sql_in_call())
		return;
	if (run->role_checked_at == 0)
		run->as_user = sweep_role_is_user(run->run_as);
	problem = sweep_role_problem(run->run_as, run->as_user);
	if (problem != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("%s", problem),
				 errhint("The job goes on when its role is granted that again.")));
	run->role_checked_at = changes;
}

void
sweep_batch_require_lock(SweepRun *run)
{
	if (sweep_lock_is_mine(&run->lock))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OUT_OF_MEMORY),
			 errmsg("job \"%s\" has lost its lock", run->job),
			 errdetail("PostgreSQL's table of locks was full when a transaction was rolled back."),
			 errhint("Raise max_locks_per_transaction.")));
}

void
sweep_batch_hold_bucket(SweepRun *run)
{
	if (run->buckets != NULL)
		sweep_fence_hold(&run->buckets->fence);
}

void
sweep_batch_add(SweepRun *run, const SweepProgress *progress)
{
	/* A cursor that is always kept survives a batch that found nothing and returned none. */
	run->next.cursor = progress->cursor == NULL && progress->rows == 0 && run->keep_cursor_always ? run->state.cursor : progress->cursor;
	run->next.detail = progress->detail != NULL ? sweep_detail_merge(run->state.detail, progress->detail, run->batch_context) : run->state.detail;
	check_size(run);
	sweep_loop_add_rows(&run->next.loop, progress->rows);
	if (run->max_rows > 0)
		sweep_loop_add_other_rows(&run->next.loop, touched(progress) - progress->rows);
	sweep_report_phase(run, PHASE_COMMIT);
}

/* The number of rows of any tables that the step reports as deleted or changed; 0 = not reported, or not a number of rows. */
static int64
touched(const SweepProgress *progress)
{
	JsonbValue	buffer;
	JsonbValue *value;
	double		rows;

	if (progress->detail == NULL)
		return 0;
	value = getKeyJsonValueFromContainer(&progress->detail->root, TOUCHED, strlen(TOUCHED), &buffer);
	if (value == NULL || value->type != jbvNumeric)
		return 0;
	rows = DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow, NumericGetDatum(value->val.numeric)));
	/* The comparison is false for NaN, too. */
	return rows > 0 ? (int64) Min(rows, MAX_TOUCHED) : 0;
}

/* Cursor and detail are limited because they are in the row of the run, which the history, the views and the next run read. */
static void
check_size(const SweepRun *run)
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

void
sweep_batch_end(SweepRun *run, bool drained)
{
	run->reason = sweep_loop_end_batch(&run->next.loop, drained, sweep_monotonic_us());
	if (run->reason == SWEEP_STOP_DRAINED && run->may_leave_rows && run->next.detail != NULL &&
		getKeyJsonValueFromContainer(&run->next.detail->root, WAITS_FOR, strlen(WAITS_FOR), &(JsonbValue) {0}) != NULL)
		run->reason = SWEEP_STOP_WAITS;
	if (run->reason == SWEEP_STOP_NONE && (pg_atomic_read_u32(&run->slot->stop_request) & SWEEP_STOP_REQUEST_CANCEL) != 0)
		run->reason = SWEEP_STOP_CANCELLED;
	if (run->reason == SWEEP_STOP_NONE)
		return;
	run->status = run->reason == SWEEP_STOP_CANCELLED ? "cancelled" : "succeeded";
	sweep_batch_is_last(run);
}

void
sweep_batch_save(SweepRun *run)
{
	sweep_run_row_save(run);
	if (sweep_run_is_ending(run))
	{
		if (run->buckets != NULL)
			sweep_fence_end(&run->buckets->fence, sweep_loop_stop_name(run->reason));
		sweep_batch_follow_end(run);
	}
	/* When other servers commit, too, an asynchronous commit could be lost here in a crash, and not there. */
	if (!run->txn.records_only && sweep_remote_prepare_commit() && run->flush_may_wait)
		set_synchronous_commit(run, run->synchronous_commit, GUC_ACTION_LOCAL);
}

void
sweep_batch_follow_end(SweepRun *run)
{
	Datum		run_id = Int64GetDatum(run->run_id);

	if (run->error == NULL && !run->has_on_success && !run->ends_apart)
		return;
	HOLD_CANCEL_INTERRUPTS();
	(void) sweep_sql_execute(&follow_end_sql, &run_id, NULL);
	RESUME_CANCEL_INTERRUPTS();
}

void
sweep_batch_accept(SweepRun *run)
{
	SweepRunState old = run->state;
	MemoryContext caller_context = MemoryContextSwitchTo(run->context);

	run->state = run->next;
	run->conflicts = 0;
	run->state.cursor = copy_jsonb(run->next.cursor);
	if (run->next.detail != old.detail)
		run->state.detail = copy_jsonb(run->next.detail);
	MemoryContextSwitchTo(caller_context);
	if (old.cursor != NULL)
		pfree(old.cursor);
	if (old.detail != NULL && old.detail != run->state.detail)
		pfree(old.detail);
	if (sweep_run_is_ending(run))
		run->stage = RUN_ENDED;
	run->times.last_batch_us = sweep_monotonic_us() - run->times.batch_started_us;
	sweep_report_batch(run);
}

bool
sweep_batch_halve(SweepRun *run, ErrorData *error)
{
	int32		size = sweep_loop_next_size(&run->state.loop);
	bool		timed_out = sweep_batch_is_timed_out(run, error);
	bool		conflict = sweep_batch_is_conflict(error);

	if (!timed_out && !conflict && error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE)
		return false;
	/* The rolled back transaction may have set a reason to stop. */
	run->reason = SWEEP_STOP_NONE;
	if (sweep_loop_is_late(&run->state.loop, sweep_monotonic_us()))
	{
		run->status = "succeeded";
		run->reason = SWEEP_STOP_STOP_AFTER;
		return true;
	}
	if (sweep_loop_halve(&run->state.loop) || (conflict && run->conflicts++ < CONFLICT_TRIES))
	{
		sweep_report_halved(run, size, error);
		return true;
	}
	if (error->hint == NULL)
		error->hint = MemoryContextStrdup(run->batch_context, hint_for_one_row(timed_out, conflict));
	return false;
}

bool
sweep_batch_is_conflict(const ErrorData *error)
{
	return error->sqlerrcode == ERRCODE_T_R_SERIALIZATION_FAILURE || error->sqlerrcode == ERRCODE_T_R_DEADLOCK_DETECTED;
}

static const char *
hint_for_one_row(bool timed_out, bool conflict)
{
	if (timed_out)
		return "Not even a batch of one row is done in time: raise statement_timeout, or see with sweep.preview what takes so long.";
	if (conflict)
		return "Not even a batch of one row is spared by other transactions: have all of them take rows in the same order, or set max_attempts.";
	return "Not even a batch of one row gets its locks: raise lock_timeout, or have the batch pick its rows with FOR UPDATE SKIP LOCKED.";
}

bool
sweep_batch_is_timed_out(const SweepRun *run, const ErrorData *error)
{
	return error->sqlerrcode == ERRCODE_QUERY_CANCELED && !sweep_sql_in_call() && sweep_timers_statement_fired(run) &&
		pg_atomic_read_u32(&run->slot->stop_request) == 0;
}

bool
sweep_batch_is_cancelled(const SweepRun *run, const ErrorData *error)
{
	return error->sqlerrcode == ERRCODE_QUERY_CANCELED &&
		(sweep_cancel_is_error(error) || pg_atomic_read_u32(&run->slot->stop_request) != 0 ||
		 (sweep_sql_in_call() && sweep_timers_statement_fired(run)));
}

void
sweep_batch_fail(SweepRun *run, ErrorData *error)
{
	uint32		request = pg_atomic_read_u32(&run->slot->stop_request);
	bool		cancelled = error == NULL || sweep_batch_is_cancelled(run, error);
	bool		timed_out = sweep_timers_statement_fired(run);

	sweep_cancel_drop();
	run->status = "failed";
	run->reason = run->no_progress ? SWEEP_STOP_NO_PROGRESS : SWEEP_STOP_ERROR;
	if (cancelled && (request & SWEEP_STOP_REQUEST_TIMEOUT) != 0)
	{
		run->reason = SWEEP_STOP_TIMEOUT;
		run->error = sweep_report_timeout_error(run);
	}
	else if (cancelled && !timed_out)
	{
		run->status = "cancelled";
		run->reason = SWEEP_STOP_CANCELLED;
	}
	else
		/* Between two batches only the statement timeout of a CALL can fire. */
		run->error = error != NULL ? error :
			sweep_report_error(run, ERRCODE_QUERY_CANCELED, "canceling statement due to statement timeout",
							   "It fired between two batches.", "Under CALL it is the time of the whole CALL; sweep.start() has none but that of a batch.");
}

static Jsonb *
copy_jsonb(Jsonb *source)
{
	return source == NULL ? NULL : DatumGetJsonbPCopy(JsonbPGetDatum(source));
}
