/*
 * call.c
 *		CALL sweep.run and CALL sweep.wait, which a session executes itself.
 *
 * A run in a session equals a run in a worker, with the same row in sweep.runs; its transactions end through SPI.
 * Its progress is in a slot of shared memory when a slot is free; otherwise the slot is a variable of this process.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/extension.h"
#include "base/lock.h"
#include "base/shared.h"
#include "base/timer.h"
#include "base/txn.h"
#include "engine/definition.h"
#include "engine/report.h"
#include "engine/run.h"
#include "engine/run_row.h"

static SweepStatement wait_sql = {.text = "SELECT sweep._wait($1, $2, $3)", .types = {OIDOID, INT8OID, BOOLOID}};

/* Interval at which a wait checks the run when nothing wakes it. */
#define WAIT_STEP_MS 1000

typedef struct CallRequest
{
	SweepRun   *run;
	text	   *name;
	Jsonb	   *args;
	int64		expected_rows;
	bool		unlimited;		/* the quota of the role does not apply */
} CallRequest;

typedef struct WaitRequest
{
	int64		run_id;
	bool		is_late;
	char	   *outcome;		/* NULL = the run has not ended */
} WaitRequest;

static void transact(SweepWork work, void *arg);
static void prepare_work(void *arg);
static SweepSlot *claim_slot(const CallRequest *request);
static void release_slot(int code, Datum arg);
static void report_outcome(SweepRun *run);
static void look_work(void *arg);
static void wait_for_change(long timeout_ms);

/* The shared slot of the run in progress in this session. */
static SweepSlot *session_slot = NULL;
static SweepSlot local_slot;

PG_FUNCTION_INFO_V1(sweep_run_call);
PG_FUNCTION_INFO_V1(sweep_run_wait);

/* SQL: sweep.run(name text, args jsonb) */
Datum
sweep_run_call(PG_FUNCTION_ARGS)
{
	CallRequest request = {0};
	SweepExecution archive = {&sweep_archive_sql, (Datum[]) {BoolGetDatum(true)}, NULL};
	ErrorData  *error = NULL;
	MemoryContext old;

	sweep_require_usable("sweep.run()");
	sweep_require_no_block(fcinfo, "sweep.run");
	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("name and args of sweep.run must not be null")));
	/* The arguments must outlive the commits of the batches. */
	old = MemoryContextSwitchTo(PortalContext);
	request.name = DatumGetTextPCopy(PG_GETARG_DATUM(0));
	request.args = PG_GETARG_JSONB_P_COPY(1);
	MemoryContextSwitchTo(old);
	if (session_slot != NULL)
		release_slot(0, 0);

	memset(&local_slot, 0, sizeof(local_slot));
	local_slot.pid = MyProcPid;
	pg_atomic_init_u32(&local_slot.stop_request, 0);
	pg_atomic_init_u64(&local_slot.timeout_deadline_us, 0);
	SpinLockInit(&local_slot.mutex);
	request.run = sweep_run_create(PortalContext, &local_slot);

	sweep_sql_enter_call();
	transact(prepare_work, &request);
	request.run->slot = claim_slot(&request);
	request.run->slot->live.estimated_rows = request.expected_rows;
	sweep_run_perform(request.run);
	if (session_slot != NULL)
		release_slot(0, 0);
	else if (sweep_txn_execute(&(SweepTxnPolicy) {.error_context = PortalContext}, sweep_sql_execute_work, &archive, &error) == TXN_FAILED)
		ereport(WARNING, (errmsg("history of runs could not be kept: %s", error->message)));
	sweep_sql_end_call();
	report_outcome(request.run);
	MemoryContextDelete(request.run->context);
	PG_RETURN_VOID();
}

/* Executes work in a transaction. Raises an error, instead of waiting, when another session alters or drops the extension. */
static void
transact(SweepWork work, void *arg)
{
	ErrorData  *error = NULL;

	if (sweep_txn_execute(&(SweepTxnPolicy) {.error_context = PortalContext, .required = true}, work, arg, &error) == TXN_FAILED)
		ReThrowError(error);
}

/* Inserts the row of the run. No scheduler starts it: this process has its pid in the row and holds its lock. */
static void
prepare_work(void *arg)
{
	CallRequest *request = arg;
	SweepRun   *run = request->run;

	sweep_door_pin_path();
	/* Off as in the transactions of the batches: only the last one of the run waits for the disk. */
	(void) set_config_option("synchronous_commit", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
	sweep_definition_read_job(run, request->name, request->args);
	sweep_run_check_role(run);
	if (run->sql != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("job \"%s\" cannot be run by CALL", run->job),
				 errdetail("It has sql, which is executed at top level: within CALL it would be part of another statement."),
				 errhint("SELECT sweep.start(%s) runs it in the background.", quote_literal_cstr(run->job))));
	request->unlimited = sweep_quota_is_unlimited(run->run_as);
	request->expected_rows = sweep_run_row_insert(run, request->args);
	(void) sweep_lock_acquire_number(SWEEP_LOCK_RUN, run->run_id);
}

static SweepSlot *
claim_slot(const CallRequest *request)
{
	static bool registered = false;
	const SweepRun *run = request->run;
	SweepClaimant claimant = {.role = run->run_as, .unlimited = request->unlimited, .run_id = run->run_id, .job = run->job};
	SweepRefusal refusal;

	if (!sweep_shared_exists())
		return &local_slot;
	/* on_shmem_exit callbacks run after the locks are released, so that a woken process sees the run as lost. */
	if (!registered)
		on_shmem_exit(release_slot, 0);
	registered = true;
	sweep_shared_lock(LW_EXCLUSIVE);
	session_slot = sweep_shared_claim(&claimant, &refusal);
	sweep_shared_unlock();
	return session_slot != NULL ? session_slot : &local_slot;
}

static void
release_slot(int code, Datum arg)
{
	SweepSlot  *slot = session_slot;

	session_slot = NULL;
	if (slot != NULL)
		sweep_shared_release(slot, true, false);
}

static void
report_outcome(SweepRun *run)
{
	const char *reason = sweep_loop_stop_name(run->reason);

	if (run->reason == SWEEP_STOP_SKIPPED && run->buckets != NULL && run->lock_holder == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("job \"%s\" was skipped: %s", run->job,
						run->buckets->fence.request.buckets == 1 ? "its only bucket is not free" :
						psprintf("none of its %d buckets is free", run->buckets->fence.request.buckets)),
				 errhint("The runs that have them go on; see sweep.buckets.")));
	if (run->reason == SWEEP_STOP_SKIPPED)
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("job \"%s\" was skipped: its lock \"%s\" is held", run->job, run->lock_key),
				 run->lock_holder ? errdetail("Process %s holds it.", run->lock_holder) : 0,
				 errhint("sweep.start() runs it in the background when its turn has come; lock_retries has this call try for longer.")));
	if (run->error != NULL)
		ereport(ERROR,
				(errcode(run->error->sqlerrcode),
				 errmsg("run %lld of job \"%s\" failed: %s", (long long) run->run_id, run->job, run->error->message),
				 run->error->detail ? errdetail("%s", run->error->detail) : 0,
				 run->error->hint ? errhint("%s", run->error->hint) : 0,
				 run->error->context ? errcontext("%s", run->error->context) : 0));
	if (run->reason == SWEEP_STOP_CANCELLED)
		ereport(ERROR,
				(errcode(ERRCODE_QUERY_CANCELED),
				 errmsg("run %lld of job \"%s\" was cancelled after %s, %s", (long long) run->run_id,
						run->job, sweep_report_batches(run->state.loop.batches), sweep_report_rows(run->state.loop.rows))));
	ereport(NOTICE,
			(errmsg("job \"%s\" run %lld: %s in %s, %s", run->job, (long long) run->run_id,
					sweep_report_rows(run->state.loop.rows), sweep_report_batches(run->state.loop.batches), reason)));
}

/* SQL: sweep.wait(run_id bigint, timeout interval) */
Datum
sweep_run_wait(PG_FUNCTION_ARGS)
{
	WaitRequest request = {0};
	int64		deadline_us;

	sweep_require_usable("sweep.wait()");
	sweep_require_no_block(fcinfo, "sweep.wait");
	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("run_id and timeout of sweep.wait must not be null")));
	request.run_id = PG_GETARG_INT64(0);
	deadline_us = sweep_monotonic_us() + sweep_interval_us(PG_GETARG_INTERVAL_P(1));

	sweep_sql_enter_call();
	sweep_sql_end_transaction();
	for (;;)
	{
		int64		left_us = deadline_us - sweep_monotonic_us();

		request.is_late = left_us <= 0;
		transact(look_work, &request);
		if (request.outcome != NULL)
			break;
		wait_for_change((long) Min(left_us / 1000 + 1, WAIT_STEP_MS));
	}
	ConditionVariableCancelSleep();
	sweep_sql_end_call();
	ereport(NOTICE, (errmsg_internal("%s", request.outcome)));
	PG_RETURN_VOID();
}

static void
look_work(void *arg)
{
	WaitRequest *request = arg;
	Datum		values[] = {ObjectIdGetDatum(GetUserId()), Int64GetDatum(request->run_id), BoolGetDatum(request->is_late)};

	sweep_txn_hide_context(sweep_sql_execute_work, &(SweepExecution) {&wait_sql, values, NULL});
	request->outcome = sweep_sql_text(1, PortalContext);
}

static void
wait_for_change(long timeout_ms)
{
	sweep_timer_begin_rest();
	if (sweep_shared_exists())
		(void) ConditionVariableTimedSleep(&sweep_shared()->changed, timeout_ms, sweep_wait_event(SWEEP_WAIT_IDLE));
	else
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, timeout_ms, sweep_wait_event(SWEEP_WAIT_IDLE));
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	sweep_timer_end_rest();
}
