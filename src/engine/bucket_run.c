/*
 * bucket_run.c
 *		Runs of divided jobs: the bucket of a run, and shares for the other buckets.
 *
 * Called by run.c around the batches of a run, and by items.c in each. fence.c keeps a share from committing after it has
 * lost its bucket.
 *
 * A run works with one bucket and one number of buckets. When the number changes, the run ends before its next batch
 * and another share follows it, so no step sees a change during a run.
 *
 * Before a run begins, it prepares the buckets of its job (unless the run is a share) and of the divided jobs in its on_start.
 * It asks for their number, the store recovers, adds and drops buckets, and a share is queued for each free one, up to the
 * number of workers (for the order of shares see bucket.sql). Several runs may do this at the same time: a share that finds no
 * bucket is skipped. A store is called only while no transaction is open, because the Redis store waits for a socket.
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/guc.h"

#include "base/cancel.h"
#include "base/clock.h"
#include "base/detail.h"
#include "base/lock.h"
#include "base/processes.h"
#include "base/worker.h"
#include "engine/batch.h"
#include "engine/bucket_run.h"
#include "engine/definition.h"
#include "engine/report.h"
#include "engine/timers.h"

static SweepStatement divided_children_sql = {
	.text = "SELECT name, bucket_store, bucket_recovery, bucket_key, buckets_function, args, delay FROM sweep._divided_children($1, $2)",
	.types = {INT8OID, OIDOID}};
static SweepStatement queue_shares_sql = {
	.text = "SELECT shares_left, wanted FROM sweep._queue_shares($1, $2, $3::interval, $4, $5, $6)",
	.types = {INT8OID, TEXTOID, TEXTOID, INT4OID, INT4OID, INT4OID}};
static SweepStatement start_follower_sql = {
	.text = "UPDATE sweep.run_live SET due_at = pg_catalog.clock_timestamp() WHERE run_id = $1 AND sweep._lock_waiting_run($1)",
	.types = {INT8OID}};
static SweepStatement count_buckets_sql = {
	.text = "SELECT j.buckets FROM sweep.job_definition j WHERE j.name = $1 AND j.bucket_store = $2 AND j.bucket_key = $3",
	.types = {TEXTOID, TEXTOID, TEXTOID}};

/* Time for which a stopped run tries to give its bucket back, in us. */
#define RELEASE_TIMEOUT_US INT64CONST(500000)

typedef struct PlanWork
{
	SweepRun   *run;
	SweepBuckets *buckets;
	List	   *children;		/* of SweepBuckets */
	SweepBucketCounts counts;
	int32		shares_left;
} PlanWork;

/* These return false with *error set, or with the reason why the run ends. */
static bool open_buckets(SweepRun *run, ErrorData **error);
static bool claim_bucket(SweepRun *run, SweepFence *fence, ErrorData **error);
static bool plan_children(SweepRun *run, ErrorData **error);
static bool look_at_buckets(SweepRun *run, SweepBuckets *buckets, ErrorData **error);
static bool queue_shares(SweepRun *run, SweepBuckets *buckets, ErrorData **error);
static bool accept_result(SweepRun *run, SweepBucketResult result, const SweepBucketError *problem, ErrorData **error);
static bool transact(SweepRun *run, SweepWork work, void *arg, ErrorData **error);

static int32 count_buckets(SweepRun *run, SweepBuckets *buckets);
static void note_stop(SweepRun *run, ErrorData **error);
static void children_work(void *arg);
static void look_work(void *arg);
static void queue_work(void *arg);
static void note_counts(SweepRun *run, const SweepBuckets *buckets, const SweepBucketCounts *counts);
static bool give_back(SweepRun *run, SweepFence *fence);
static void follow_work(void *arg);

bool
sweep_bucket_run_open(SweepRun *run, ErrorData **error)
{
	bool		divides_others = run->has_on_start && !run->is_share;
	bool		opened;

	/* The buckets_function is code of the job: it can be cancelled like a step. */
	if (!sweep_sql_in_call())
		sweep_worker_allow_cancel(true);
	opened = (!divides_others || plan_children(run, error)) && (run->bucket_count == 0 || open_buckets(run, error));
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
	if (!look_at_buckets(run, buckets, error) || (fence->divides && !queue_shares(run, buckets, error)) ||
		!claim_bucket(run, fence, error))
		return false;
	buckets->count = fence->buckets_now;
	sweep_fence_open(fence, &run->hooks);
	return true;
}

/* False when no bucket is free. */
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
		if (!accept_result(run, result, &problem, error))
			return false;
		fence->held = fence->claim.bucket < fence->request.buckets;
		fence->buckets_now = fence->request.buckets;
		if (fence->held)
			return true;
		/* The bucket is beyond the present number of buckets: it is dropped, and another one claimed. */
		if (!accept_result(run, fence->store->release(&fence->request, &fence->claim, &problem), &problem, error))
			return false;
	}
	run->reason = SWEEP_STOP_SKIPPED;
	return false;
}

/* Queues shares for the divided children of the run's job. */
static bool
plan_children(SweepRun *run, ErrorData **error)
{
	PlanWork	work = {.run = run};
	ListCell   *cell;

	if (!transact(run, children_work, &work, error))
		return false;
	foreach(cell, work.children)
	{
		SweepBuckets *child = lfirst(cell);
		bool		done = look_at_buckets(run, child, error) && queue_shares(run, child, error);

		sweep_step_free(child->function);
		if (!done)
			return false;
	}
	return true;
}

static void
children_work(void *arg)
{
	PlanWork   *work = arg;
	SweepRun   *run = work->run;
	Datum		values[] = {Int64GetDatum(run->run_id), ObjectIdGetDatum(run->run_as)};
	uint64		count;

	work->children = NIL;
	count = sweep_sql_execute(&divided_children_sql, values, NULL);
	for (uint64 i = 0; i < count; i++)
	{
		MemoryContext context = run->context;
		MemoryContext old = MemoryContextSwitchTo(context);
		SweepBuckets *child = palloc0(sizeof(SweepBuckets));

		sweep_sql_row(i);
		child->fence.request.job = sweep_sql_text(1, context);
		child->store_name = sweep_sql_text(2, context);
		child->fence.request.recovery_us = sweep_sql_interval_us(3, 0);
		child->fence.request.key = sweep_sql_text(4, context);
		child->function_name = sweep_sql_text(5, context);
		child->args = sweep_sql_jsonb(6, context);
		child->delay = sweep_sql_text(7, context);
		work->children = lappend(work->children, child);
		MemoryContextSwitchTo(old);
	}
}

/* Finds the store of the buckets and their number. */
static bool
look_at_buckets(SweepRun *run, SweepBuckets *buckets, ErrorData **error)
{
	PlanWork	work = {.run = run, .buckets = buckets};

	buckets->fence.request.run_id = run->run_id;
	buckets->fence.request.wanted = run->wanted_bucket;
	buckets->fence.request.slot = run->slot;
	return transact(run, look_work, &work, error);
}

static void
look_work(void *arg)
{
	PlanWork   *work = arg;

	sweep_run_read_clock(work->run);
	work->buckets->fence.store = sweep_bucket_find_store(work->buckets->store_name);
	work->buckets->fence.request.buckets = count_buckets(work->run, work->buckets);
}

/*
 * The current number of buckets, in a transaction: 0 also when the job is no longer divided, or its
 * buckets are in another store. Raises what the buckets_function raises.
 */
static int32
count_buckets(SweepRun *run, SweepBuckets *buckets)
{
	const SweepBucketRequest *request = &buckets->fence.request;
	Datum		values[] = {CStringGetTextDatum(request->job), CStringGetTextDatum(buckets->store_name), CStringGetTextDatum(request->key)};
	int32		most = sweep_sql_execute(&count_buckets_sql, values, NULL) == 1 ? sweep_sql_int32(1) : 0;
	SweepBatch	batch;
	int32		count;

	if (buckets->function_name == NULL || most == 0)
		return most;
	if (buckets->function == NULL)
		buckets->function = sweep_step_prepare_call(run->context, buckets->function_name);
	batch = sweep_batch_request(run);
	batch.size = run->batch_size;
	batch.bucket = batch.buckets = 0;
	batch.args = buckets->args;
	sweep_batch_enter_code(run);
	count = sweep_step_count(buckets->function, &batch);
	sweep_batch_leave_code(run);
	return Min(most, count);
}

/* Maintains the buckets and queues shares for the free ones. */
static bool
queue_shares(SweepRun *run, SweepBuckets *buckets, ErrorData **error)
{
	PlanWork	work = {.run = run, .buckets = buckets};
	const SweepBucketRequest *request = &buckets->fence.request;
	SweepBucketError problem = {0};

	if (request->buckets > 0 &&
		(!accept_result(run, buckets->fence.store->maintain(request, &work.counts, &problem), &problem, error) ||
		 !transact(run, queue_work, &work, error)))
		return false;
	if (buckets == run->buckets)
		run->shares_left = work.shares_left;
	note_counts(run, buckets, &work.counts);
	return true;
}

static void
queue_work(void *arg)
{
	PlanWork   *work = arg;
	SweepBuckets *buckets = work->buckets;
	SweepBucketRequest *request = &buckets->fence.request;
	Datum		values[6];

	/* Another run is queueing the shares. */
	if (!sweep_lock_acquire_divided(SWEEP_LOCK_DISPATCH, request->job))
		return;
	values[0] = Int64GetDatum(work->run->run_id);
	values[1] = CStringGetTextDatum(request->job);
	values[2] = CStringGetTextDatum(buckets->delay ? buckets->delay : "0");
	values[3] = Int32GetDatum(work->counts.claimable);
	values[4] = Int32GetDatum(sweep_processes_room_for_runs(work->run->run_as, sweep_quota_is_unlimited(work->run->run_as)));
	values[5] = Int32GetDatum(request->buckets);
	(void) sweep_sql_execute(&queue_shares_sql, values, NULL);
	work->shares_left = sweep_sql_int32(1);
	if (!sweep_sql_is_null(2))
		request->wanted = sweep_sql_int32(2);
}

/* The counts become part of the detail of the run. */
static void
note_counts(SweepRun *run, const SweepBuckets *buckets, const SweepBucketCounts *counts)
{
	int32		count = buckets->fence.request.buckets;
	char	   *found = count == 0 ? pstrdup("{\"max_buckets\": 0}") :
		psprintf("{\"max_buckets\": %d, \"available_count\": %d, \"occupied_count\": %d, \"stale_count\": %d, \"missing_count\": %d}",
				 count, counts->available, counts->occupied, counts->stale, counts->missing);

	run->state.detail = sweep_detail_merge(run->state.detail, sweep_detail_read(found), run->context);
}

/* Calls work in a transaction before the run begins. False also when the run is to stop, or the extension is gone. */
static bool
transact(SweepRun *run, SweepWork work, void *arg, ErrorData **error)
{
	SweepTxnEnd end;

	/* A request to stop may have come while the worker ignored its signal. */
	if (pg_atomic_read_u32(&run->slot->stop_request) != 0)
	{
		note_stop(run, error);
		return false;
	}
	end = sweep_batch_transact(run, work, arg, error);
	if (end == TXN_FAILED && sweep_batch_is_cancelled(run, *error) && !sweep_timers_statement_fired(run))
		note_stop(run, error);
	else if (end != TXN_COMMITTED && end != TXN_FAILED)
		run->reason = SWEEP_STOP_CANCELLED;
	return end == TXN_COMMITTED;
}

/* Whether the store has succeeded; otherwise sets the error or the reason of the run. */
static bool
accept_result(SweepRun *run, SweepBucketResult result, const SweepBucketError *problem, ErrorData **error)
{
	sweep_cancel_answer_others();
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
	*error = sweep_report_error(run, problem->sqlstate, problem->message, problem->detail, problem->hint);
	return false;
}

/* The run was requested to stop: it is cancelled, or fails with the error of the timeout that has passed. */
static void
note_stop(SweepRun *run, ErrorData **error)
{
	*error = NULL;
	run->reason = SWEEP_STOP_CANCELLED;
	if ((pg_atomic_read_u32(&run->slot->stop_request) & SWEEP_STOP_REQUEST_TIMEOUT) != 0)
	{
		run->reason = SWEEP_STOP_TIMEOUT;
		*error = sweep_report_timeout_error(run);
	}
	else if (sweep_cancel_is_pending() && sweep_sql_in_call() && sweep_timers_statement_fired(run))
		*error = sweep_report_error(run, ERRCODE_QUERY_CANCELED, "canceling statement due to statement timeout",
							"The run was waiting for its store of buckets.", NULL);
	/* The slot remembers the request, so that giving the bucket back is short, too. */
	if (sweep_cancel_is_pending())
		pg_atomic_fetch_or_u32(&run->slot->stop_request, SWEEP_STOP_REQUEST_CANCEL);
}

bool
sweep_bucket_run_check(SweepRun *run, ErrorData **error)
{
	SweepFence *fence = &run->buckets->fence;
	SweepBucketError problem = {0};
	SweepBucketResult result;

	if (fence->store->check == NULL)
		return true;
	result = fence->store->check(&fence->request, &fence->claim, &problem);
	if (result != BUCKET_NONE)
		return accept_result(run, result, &problem, error);
	fence->lost = true;
	*error = sweep_report_error(run, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
								psprintf("run %lld of job \"%s\" has lost bucket %d", (long long) run->run_id, run->job, fence->claim.bucket),
								"Another session has returned or recovered it.", NULL);
	return false;
}

bool
sweep_bucket_run_begin_batch(SweepRun *run)
{
	SweepBuckets *buckets = run->buckets;
	int32		now = buckets->fence.buckets_now = count_buckets(run, buckets);

	if (now == buckets->count)
		return true;
	/* With 0 the old number stays, so that the bucket is given back and not dropped: it may be needed again. */
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
	SweepFence *fence = &run->buckets->fence;
	ErrorData  *error = NULL;

	sweep_step_free(run->buckets->function);
	if (!fence->held || fence->given_back || (!give_back(run, fence) && fence->followed))
		return;
	/* From here on, transactions do not depend on the bucket. */
	run->hooks = NULL;
	if ((!fence->followed || fence->follower != 0) && sweep_batch_transact(run, follow_work, run, &error) == TXN_FAILED)
		ereport(WARNING,
				(errmsg("share that follows run %lld of job \"%s\" could not be queued: %s", (long long) run->run_id, run->job,
						error->message)));
}

/*
 * Whether the run ends because of a request to stop. A request that has cancelled a statement of a batch is no longer pending.
 * In a session neither such a request nor the timeout of the CALL is noted in the slot.
 */
static bool
is_stopped(const SweepRun *run)
{
	return pg_atomic_read_u32(&run->slot->stop_request) != 0 || run->reason == SWEEP_STOP_CANCELLED ||
		(sweep_sql_in_call() && sweep_timers_statement_fired(run));
}

/* False when the bucket becomes free only after the recovery time. */
static bool
give_back(SweepRun *run, SweepFence *fence)
{
	SweepBucketError problem = {0};
	SweepBucketResult result;

	if (is_stopped(run))
		fence->request.give_up_at_us = sweep_monotonic_us() + RELEASE_TIMEOUT_US;
	result = fence->store->release(&fence->request, &fence->claim, &problem);
	fence->held = false;
	sweep_cancel_answer_others();
	if (result == BUCKET_FAILED || result == BUCKET_STOPPED)
		ereport(WARNING,
				(errmsg("bucket %d of job \"%s\" could not be given back: %s", fence->claim.bucket, run->job,
						result == BUCKET_FAILED ? problem.message : "the run was stopped"),
				 errdetail("It is free again %.0f s after it was claimed.", fence->request.recovery_us / 1e6)));
	else if (result == BUCKET_NONE && !fence->lost)
		ereport(WARNING,
				(errmsg("bucket %d of job \"%s\" was returned or recovered by another session", fence->claim.bucket, run->job)));
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
		(void) sweep_sql_execute(&start_follower_sql, &follower, NULL);
		if (sweep_sql_in_call())
			sweep_worker_wake_at_commit();
	}
}
