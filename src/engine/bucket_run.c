/*
 * bucket_run.c
 *		Runs of divided jobs: the bucket of a run.
 *
 * Called by run.c around the batches of a run. What sees to it that there are other shares is in
 * plan_buckets.c, and what keeps a share from doing harm after it has lost its bucket in fence.c.
 *
 * A run works with one bucket and one number of buckets. When the number changes, the run ends before its
 * next batch and another share follows it: no step has to cope with a change in between.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "base/clock.h"
#include "base/worker.h"
#include "engine/batch.h"
#include "engine/bucket_run.h"
#include "engine/plan_buckets.h"
#include "engine/report.h"

/* So long a run that is cancelled tries to give its bucket back. */
#define RELEASE_TIMEOUT_US INT64CONST(500000)

static bool open_buckets(SweepRun *run, ErrorData **error);
static bool claim_bucket(SweepRun *run, SweepFence *fence, ErrorData **error);
static bool give_back(SweepRun *run, SweepFence *fence);
static void follow_work(void *arg);

bool
sweep_bucket_run_open(SweepRun *run, ErrorData **error)
{
	bool		divides_others = run->has_on_start && !run->is_share;
	bool		opened;

	if (!divides_others && run->bucket_count == 0)
		return true;
	/* The buckets_function is code of the job: it can be cancelled like a step. */
	if (!sweep_sql_in_call())
		sweep_worker_allow_cancel(true);
	opened = (!divides_others || sweep_plan_children(run, error)) && (run->bucket_count == 0 || open_buckets(run, error));
	if (!sweep_sql_in_call())
		sweep_worker_allow_cancel(false);
	return opened;
}

static bool
open_buckets(SweepRun *run, ErrorData **error)
{
	SweepBuckets *buckets = run->buckets = MemoryContextAllocZero(run->context, sizeof(SweepBuckets));
	SweepFence *fence = &buckets->fence;

	buckets->store_name = run->bucket_store;
	buckets->function_name = run->buckets_function;
	buckets->args = run->args;
	fence->request.job = run->job;
	fence->request.key = run->bucket_key;
	fence->request.recovery_us = run->bucket_recovery_us;
	fence->divides = run->shares_left < 0;
	if (!sweep_plan_look(run, buckets, error) || (fence->divides && !sweep_plan_queue(run, buckets, error)) ||
		!claim_bucket(run, fence, error))
		return false;
	buckets->count = fence->buckets_now;
	sweep_fence_open(fence, &run->hooks);
	return true;
}

/* False when there is none. */
static bool
claim_bucket(SweepRun *run, SweepFence *fence, ErrorData **error)
{
	SweepBucketError problem = {0};

	while (fence->request.buckets > 0)
	{
		int64		claimed_us = sweep_monotonic_us();
		SweepBucketResult result = sweep_bucket_is_stopped(&fence->request) ? BUCKET_STOPPED :
			fence->store->claim(&fence->request, &fence->claim, &problem);

		fence->claim.claimed_us = claimed_us;
		if (result == BUCKET_NONE)
			break;
		if (!sweep_plan_accept(run, result, &problem, error))
			return false;
		fence->held = fence->claim.bucket < fence->request.buckets;
		fence->buckets_now = fence->request.buckets;
		if (fence->held)
			return true;
		/* Left over from a time when there were more: dropped, and another one taken. */
		if (!sweep_plan_accept(run, fence->store->release(&fence->request, &fence->claim, &problem), &problem, error))
			return false;
	}
	run->reason = SWEEP_STOP_SKIPPED;
	return false;
}

bool
sweep_bucket_run_check(SweepRun *run, ErrorData **error)
{
	SweepFence *fence = run->buckets != NULL ? &run->buckets->fence : NULL;
	SweepBucketError problem = {0};
	SweepBucketResult result;

	if (fence == NULL || fence->store->check == NULL)
		return true;
	result = fence->store->check(&fence->request, &fence->claim, &problem);
	if (result != BUCKET_NONE)
		return sweep_plan_accept(run, result, &problem, error);
	fence->lost = true;
	*error = sweep_report_error(run, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
								psprintf("run %lld of job \"%s\" has lost bucket %d", (long long) run->run_id, run->job, fence->claim.bucket),
								"It was given back or recovered by somebody else.", NULL);
	return false;
}

bool
sweep_bucket_run_begin_batch(SweepRun *run)
{
	SweepBuckets *buckets = run->buckets;
	int32		now;

	if (buckets == NULL)
		return true;
	now = buckets->fence.buckets_now = sweep_plan_count(run, buckets);
	if (now == buckets->count)
		return true;
	/* Of a job that is switched off the bucket is given back, not dropped: it is wanted again. */
	if (now > 0)
		buckets->fence.request.buckets = now;
	run->status = "succeeded";
	run->reason = SWEEP_STOP_RESCALED;
	sweep_batch_is_last(run);
	sweep_batch_save(run);
	return false;
}

void
sweep_bucket_run_close(SweepRun *run)
{
	SweepFence *fence;
	ErrorData  *error = NULL;

	if (run->buckets == NULL)
		return;
	fence = &run->buckets->fence;
	sweep_step_free(run->buckets->function);
	if (!fence->held || fence->given_back || (!give_back(run, fence) && fence->followed))
		return;
	/* What is done now does not stand or fall with the bucket. */
	run->hooks = NULL;
	if ((!fence->followed || fence->follower != 0) && sweep_batch_transact(run, follow_work, run, &error) == TXN_FAILED)
		ereport(WARNING,
				(errmsg("share that follows run %lld of job \"%s\" could not be queued: %s", (long long) run->run_id, run->job,
						error->message)));
}

/* False when it is free only after the recovery time. */
static bool
give_back(SweepRun *run, SweepFence *fence)
{
	SweepBucketError problem = {0};
	SweepBucketResult result;

	if (pg_atomic_read_u32(&run->slot->stop_request) != 0)
		fence->request.give_up_at_us = sweep_monotonic_us() + RELEASE_TIMEOUT_US;
	result = fence->store->release(&fence->request, &fence->claim, &problem);
	fence->held = false;
	HOLD_CANCEL_INTERRUPTS();
	CHECK_FOR_INTERRUPTS();
	RESUME_CANCEL_INTERRUPTS();
	if (result == BUCKET_FAILED || result == BUCKET_STOPPED)
		ereport(WARNING,
				(errmsg("bucket %d of job \"%s\" could not be given back: %s", fence->claim.bucket, run->job,
						result == BUCKET_FAILED ? problem.message : "the run was stopped"),
				 errdetail("It is free again %.0f s after it was claimed.", fence->request.recovery_us / 1e6)));
	else if (result == BUCKET_NONE && !fence->lost)
		ereport(WARNING,
				(errmsg("bucket %d of job \"%s\" was given back or recovered by somebody else", fence->claim.bucket, run->job)));
	return result == BUCKET_OK || result == BUCKET_NONE;
}

static void
follow_work(void *arg)
{
	SweepRun   *run = arg;
	SweepFence *fence = &run->buckets->fence;
	Datum		follower = Int64GetDatum(fence->follower);

	(void) set_config_option("synchronous_commit", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
	if (fence->follower == 0)
		sweep_fence_follow(fence, sweep_loop_stop_name(run->reason), 0);
	else
	{
		(void) sweep_sql_execute(SWEEP_SQL_START_FOLLOWER, &follower, NULL);
		if (sweep_sql_in_call())
			sweep_worker_wake_at_commit();
	}
}
