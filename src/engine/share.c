/*
 * share.c
 *		Runs of divided jobs.
 *
 * Called by run.c around the batches of a run, and by unit.c before each commit. What sees to it that
 * there are other shares is in dispatch.c. A store of buckets is asked only while no transaction is open:
 * that in Redis waits for a socket.
 *
 * The fence. A share may be stopped for longer than the recovery time of its bucket, which then belongs
 * to another one. Three things keep it from doing anything more: it refuses to commit once its claim is
 * as old as the recovery time, by the monotonic clock; with the store in the table, a batch locks the row
 * of its bucket, which it can only while the claim stands; with another store the claim is looked at
 * before each batch. The bucket is given back only while the claim stands.
 *
 * A run works with one bucket and one number of buckets. When the number changes, the run ends before its
 * next batch and another share follows it: no step has to cope with a change in between.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/detail.h"
#include "base/worker.h"
#include "engine/dispatch.h"
#include "engine/guard.h"
#include "engine/report.h"
#include "engine/share.h"
#include "engine/unit.h"

/* So long a run that is cancelled tries to give its bucket back. */
#define RELEASE_PATIENCE_US INT64CONST(500000)

/* The share whose batch is about to be committed. */
static const SweepShare *committing = NULL;

static bool open_share(SweepRun *run, ErrorData **error);
static bool claim_bucket(SweepRun *run, SweepShare *share, ErrorData **error);
static void note_stop(SweepRun *run, ErrorData **error);
static ErrorData *make_error(SweepRun *run, int sqlstate, const char *message, const char *detail, const char *hint);
static bool give_back(SweepRun *run, SweepShare *share);
static void follow_work(void *arg);
static void follow(SweepRun *run, int64 delay_us);
static void check_age(XactEvent event, void *arg);

bool
sweep_share_open(SweepRun *run, ErrorData **error)
{
	bool		opened;

	if (!run->has_children && run->buckets == 0)
		return true;
	/* The buckets_function is code of the job: it can be cancelled like a step. */
	if (!sweep_sql_in_call())
		sweep_worker_allow_cancel(true);
	opened = (!run->has_children || sweep_dispatch_children(run, error)) && (run->buckets == 0 || open_share(run, error));
	if (!sweep_sql_in_call())
		sweep_worker_allow_cancel(false);
	return opened;
}

static bool
open_share(SweepRun *run, ErrorData **error)
{
	SweepShare *share = run->share = MemoryContextAllocZero(run->context, sizeof(SweepShare));

	share->job = run->job;
	share->store_name = run->bucket_store;
	share->recovery_us = run->bucket_recovery_us;
	share->key = run->bucket_key;
	share->function_name = run->buckets_function;
	share->args = run->args;
	share->divides = run->shares_left < 0;
	if (!sweep_dispatch_look(run, share, error))
		return false;
	if (share->divides && !sweep_dispatch_shares(run, share, error))
		return false;
	return claim_bucket(run, share, error);
}

static bool
claim_bucket(SweepRun *run, SweepShare *share, ErrorData **error)
{
	SweepBucketError problem = {0};

	while (share->request.buckets > 0)
	{
		int64		claimed_us = sweep_monotonic_us();
		SweepBucketResult result = sweep_bucket_is_stopped(&share->request) ? BUCKET_STOPPED :
			share->store->claim(&share->request, &share->claim, &problem);

		share->claim.claimed_us = claimed_us;
		if (result == BUCKET_NONE)
			break;
		if (!sweep_share_accept_result(run, result, &problem, error))
			return false;
		share->held = true;
		share->buckets = share->buckets_now = share->request.buckets;
		if (share->claim.bucket < share->buckets)
			return true;
		/* Left over from a time when there were more: dropped, and another one taken. */
		share->held = false;
		if (!sweep_share_accept_result(run, share->store->release(&share->request, &share->claim, &problem), &problem, error))
			return false;
	}
	run->reason = SWEEP_STOP_SKIPPED;
	return false;
}

void
sweep_share_skip_work(void *arg)
{
	SweepRun   *run = arg;
	Jsonb	   *reason = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum("{\"reason\": \"no_bucket\"}")));
	Datum		values[] = {
		Int64GetDatum(run->run_id), Int32GetDatum(MyProcPid), JsonbPGetDatum(sweep_detail_merge(run->state.detail, reason))
	};

	if (sweep_unit_begin(run) && !sweep_unit_is_locked(run))
		(void) sweep_sql_execute(SWEEP_SQL_SKIP_SHARE, values, NULL);
	run->begun = true;
}

bool
sweep_share_check(SweepRun *run, ErrorData **error)
{
	SweepShare *share = run->share;
	SweepBucketError problem = {0};
	SweepBucketResult result;

	if (share == NULL || share->store->check == NULL)
		return true;
	result = share->store->check(&share->request, &share->claim, &problem);
	if (result != BUCKET_NONE)
		return sweep_share_accept_result(run, result, &problem, error);
	share->lost = true;
	*error = make_error(run, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
						psprintf("run %lld of job \"%s\" has lost bucket %d", (long long) run->run_id, run->job, share->claim.bucket),
						"It was given back or recovered by somebody else.", NULL);
	return false;
}

bool
sweep_share_begin_batch(SweepRun *run)
{
	SweepShare *share = run->share;

	if (share == NULL)
		return true;
	share->buckets_now = sweep_dispatch_count_buckets(run, share);
	if (share->buckets_now == share->buckets)
		return true;
	/* Of a job that is switched off the bucket is given back, not dropped: it is wanted again. */
	if (share->buckets_now > 0)
		share->request.buckets = share->buckets_now;
	run->status = "succeeded";
	run->reason = SWEEP_STOP_RESCALED;
	sweep_unit_is_last(run);
	sweep_unit_save(run);
	return false;
}

void
sweep_share_hold(SweepRun *run)
{
	static bool registered = false;
	SweepShare *share = run->share;
	int64		age_us;

	if (share == NULL)
		return;
	if (!registered)
		RegisterXactCallback(check_age, NULL);
	registered = true;
	committing = share;
	age_us = sweep_monotonic_us() - share->claim.claimed_us;
	share->lost = age_us >= share->recovery_us || (share->store->check == NULL && !sweep_bucket_lock(share->job, &share->claim));
	if (share->lost)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("run %lld of job \"%s\" has lost bucket %d", (long long) run->run_id, run->job, share->claim.bucket),
				 errdetail("It was claimed %.1f s ago; the recovery time is %.1f s.", age_us / 1e6, share->recovery_us / 1e6),
				 errhint("Lower batch_size or timeout, or raise bucket_recovery.")));
}

/* Between the end of a step and the commit there is more, triggers that were deferred and the row of the run. */
static void
check_age(XactEvent event, void *arg)
{
	const SweepShare *share = committing;

	if (share == NULL)
		return;
	committing = NULL;
	if (event == XACT_EVENT_PRE_COMMIT && sweep_monotonic_us() - share->claim.claimed_us >= share->recovery_us)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("share of job \"%s\" has lost bucket %d while it committed", share->job, share->claim.bucket)));
}

/* A transaction before the run begins. False as well when it is to stop, or the extension is gone. */
bool
sweep_share_transact(SweepRun *run, SweepWork work, void *arg, ErrorData **error)
{
	int			tries = 1;

	/* A request that came while a worker ignored its signal. */
	if (pg_atomic_read_u32(&run->slot->stop_request) != 0)
	{
		note_stop(run, error);
		return false;
	}
	while (!sweep_unit_transact(run, work, arg, error))
	{
		if ((*error)->sqlerrcode == ERRCODE_T_R_SERIALIZATION_FAILURE && tries++ < SWEEP_SERIALIZATION_TRIES)
			continue;
		if ((*error)->sqlerrcode != ERRCODE_QUERY_CANCELED || sweep_guard_statement_timed_out(run))
			return false;
		note_stop(run, error);
		return false;
	}
	if (!run->gate_closed && !run->ended)
		return true;
	run->reason = SWEEP_STOP_CANCELLED;
	return false;
}

/* True when the store did what it was asked for. */
bool
sweep_share_accept_result(SweepRun *run, SweepBucketResult result, const SweepBucketError *problem, ErrorData **error)
{
	HOLD_CANCEL_INTERRUPTS();
	CHECK_FOR_INTERRUPTS();
	RESUME_CANCEL_INTERRUPTS();
	switch (result)
	{
		case BUCKET_OK:
		case BUCKET_NONE:
			return true;
		case BUCKET_STOPPED:
			note_stop(run, error);
			return false;
		case BUCKET_FAILED:
			break;
	}
	*error = make_error(run, problem->sqlstate, problem->message, problem->detail, problem->hint);
	return false;
}

/* Somebody wants the run to stop: cancelled, or failed with the error that says which time is over. */
static void
note_stop(SweepRun *run, ErrorData **error)
{
	*error = NULL;
	run->reason = SWEEP_STOP_CANCELLED;
	if ((pg_atomic_read_u32(&run->slot->stop_request) & SWEEP_STOP_REQUEST_LEASE) != 0)
	{
		run->reason = SWEEP_STOP_LEASE_EXPIRED;
		*error = sweep_report_lease_error(run);
	}
	else if (QueryCancelPending && sweep_sql_in_call() && sweep_guard_statement_timed_out(run))
		*error = make_error(run, ERRCODE_QUERY_CANCELED, "canceling statement due to statement timeout",
							"The run was waiting for its store of buckets.", NULL);
	/* So that giving the bucket back does not take long either. */
	if (QueryCancelPending)
		pg_atomic_fetch_or_u32(&run->slot->stop_request, SWEEP_STOP_REQUEST_CANCEL);
}

static ErrorData *
make_error(SweepRun *run, int sqlstate, const char *message, const char *detail, const char *hint)
{
	MemoryContext old = MemoryContextSwitchTo(run->context);
	ErrorData  *error = palloc0(sizeof(ErrorData));

	error->elevel = ERROR;
	error->sqlerrcode = sqlstate;
	error->message = pstrdup(message);
	error->detail = detail != NULL && detail[0] != '\0' ? pstrdup(detail) : NULL;
	error->hint = hint != NULL && hint[0] != '\0' ? pstrdup(hint) : NULL;
	MemoryContextSwitchTo(old);
	return error;
}

/*
 * Where the bucket cannot be given back in this transaction, the share that follows is due only when it is
 * free in any case; once it is given back that comes forward.
 */
void
sweep_share_end(SweepRun *run)
{
	SweepShare *share = run->share;

	if (share == NULL || !share->held)
		return;
	share->given_back = share->store->check == NULL;
	if (share->given_back)
		sweep_bucket_release_here(&share->request, &share->claim);
	follow(run, share->given_back ? 0 : share->recovery_us);
	share->followed = true;
}

void
sweep_share_undo(SweepRun *run)
{
	committing = NULL;
	if (run->share == NULL)
		return;
	run->share->given_back = run->share->followed = false;
	run->share->follower = 0;
}

void
sweep_share_close(SweepRun *run)
{
	SweepShare *share = run->share;
	ErrorData  *error = NULL;

	if (share == NULL)
		return;
	committing = NULL;
	sweep_step_free(share->function);
	if (!share->held || share->given_back || (!give_back(run, share) && share->followed))
		return;
	if ((!share->followed || share->follower != 0) && !sweep_unit_transact(run, follow_work, run, &error))
		ereport(WARNING,
				(errmsg("share that follows run %lld of job \"%s\" could not be queued: %s", (long long) run->run_id, run->job,
						error->message)));
}

/* False when it is free only after the recovery time. */
static bool
give_back(SweepRun *run, SweepShare *share)
{
	SweepBucketError problem = {0};
	SweepBucketResult result;

	if (pg_atomic_read_u32(&run->slot->stop_request) != 0)
		share->request.give_up_at_us = sweep_monotonic_us() + RELEASE_PATIENCE_US;
	result = share->store->release(&share->request, &share->claim, &problem);
	share->held = false;
	HOLD_CANCEL_INTERRUPTS();
	CHECK_FOR_INTERRUPTS();
	RESUME_CANCEL_INTERRUPTS();
	if (result == BUCKET_FAILED || result == BUCKET_STOPPED)
		ereport(WARNING,
				(errmsg("bucket %d of job \"%s\" could not be given back: %s", share->claim.bucket, run->job,
						result == BUCKET_FAILED ? problem.message : "the run was stopped"),
				 errdetail("It is free again %.0f s after it was claimed.", share->recovery_us / 1e6)));
	else if (result == BUCKET_NONE && !share->lost)
		ereport(WARNING,
				(errmsg("bucket %d of job \"%s\" was given back or recovered by somebody else", share->claim.bucket, run->job)));
	return result == BUCKET_OK || result == BUCKET_NONE;
}

/* The run has ended, so this is not one of its transactions; but it passes the same gate. */
static void
follow_work(void *arg)
{
	SweepRun   *run = arg;
	bool		exists;

	run->gate_closed = true;
	exists = sweep_sql_open_gate();
	run->gate_closed = false;
	if (!exists)
		return;
	(void) set_config_option("synchronous_commit", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
	if (run->share->follower != 0)
	{
		Datum		follower = Int64GetDatum(run->share->follower);

		(void) sweep_sql_execute(SWEEP_SQL_START_FOLLOWER, &follower, NULL);
	}
	else
		follow(run, 0);
	/* The scheduler looks when the worker of this run is free; a session may go on for long. */
	if (sweep_sql_in_call())
		sweep_worker_wake_at_commit();
}

static void
follow(SweepRun *run, int64 delay_us)
{
	Datum		values[6];

	values[0] = Int64GetDatum(run->run_id);
	values[1] = CStringGetTextDatum(sweep_loop_stop_name(run->reason));
	values[2] = Int32GetDatum(run->share->claim.bucket);
	values[3] = Int32GetDatum(run->share->buckets_now);
	values[4] = Int64GetDatum(delay_us);
	values[5] = BoolGetDatum(run->share->divides);
	(void) sweep_sql_execute(SWEEP_SQL_FOLLOW_SHARE, values, NULL);
	run->share->follower = sweep_sql_int64(1);
	if (sweep_sql_in_call())
		sweep_worker_wake_at_commit();
}
