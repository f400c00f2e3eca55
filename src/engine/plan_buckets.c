/*
 * plan_buckets.c
 *		Sees to it that the buckets of a divided job are there, and are worked on.
 *
 * Called by bucket_run.c before a run begins: for its own job, unless the run was begun as a share, and for the
 * divided children of its job. It asks how many buckets there are just now, has the store recover, add and
 * drop some, and queues a share for each that is free, as far as there are workers (bucket.sql says which
 * share follows which). Safe when several do it at a time: a share that finds no bucket is skipped. A store of
 * buckets is asked only while no transaction is open: that in Redis waits for a socket.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "base/compat.h"
#include "base/detail.h"
#include "base/lock.h"
#include "engine/batch.h"
#include "engine/plan_buckets.h"
#include "engine/report.h"
#include "engine/timers.h"

typedef struct PlanWork
{
	SweepRun   *run;
	SweepBuckets *buckets;
	List	   *children;		/* of SweepBuckets */
	SweepBucketCounts counts;
	int32		shares_left;
} PlanWork;

static bool transact(SweepRun *run, SweepWork work, void *arg, ErrorData **error);
static void note_stop(SweepRun *run, ErrorData **error);
static void children_work(void *arg);
static void look_work(void *arg);
static void queue_work(void *arg);
static void note_counts(SweepRun *run, const SweepBuckets *buckets, const SweepBucketCounts *counts);

bool
sweep_plan_children(SweepRun *run, ErrorData **error)
{
	PlanWork	work = {.run = run};
	ListCell   *cell;

	if (!transact(run, children_work, &work, error))
		return false;
	foreach(cell, work.children)
	{
		SweepBuckets *child = lfirst(cell);
		bool		done = sweep_plan_look(run, child, error) && sweep_plan_queue(run, child, error);

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
	count = sweep_sql_execute(SWEEP_SQL_DIVIDED_CHILDREN, values, NULL);
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

bool
sweep_plan_look(SweepRun *run, SweepBuckets *buckets, ErrorData **error)
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
	work->buckets->fence.request.buckets = sweep_plan_count(work->run, work->buckets);
}

int32
sweep_plan_count(SweepRun *run, SweepBuckets *buckets)
{
	const SweepBucketRequest *request = &buckets->fence.request;
	Datum		values[] = {CStringGetTextDatum(request->job), CStringGetTextDatum(buckets->store_name), CStringGetTextDatum(request->key)};
	int32		most = sweep_sql_execute(SWEEP_SQL_COUNT_BUCKETS, values, NULL) == 1 ? sweep_sql_int32(1) : 0;
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
	count = sweep_batch_count(run, buckets->function, &batch);
	return Min(most, count);
}

bool
sweep_plan_queue(SweepRun *run, SweepBuckets *buckets, ErrorData **error)
{
	PlanWork	work = {.run = run, .buckets = buckets};
	const SweepBucketRequest *request = &buckets->fence.request;
	SweepBucketError problem = {0};

	if (request->buckets > 0 &&
		(!sweep_plan_accept(run, buckets->fence.store->maintain(request, &work.counts, &problem), &problem, error) ||
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

	/* Somebody else is just queueing what there is to be queued. */
	if (!sweep_lock_acquire_divided(SWEEP_LOCK_DISPATCH, request->job, true))
		return;
	values[0] = Int64GetDatum(work->run->run_id);
	values[1] = CStringGetTextDatum(request->job);
	values[2] = CStringGetTextDatum(buckets->delay ? buckets->delay : "0");
	values[3] = Int32GetDatum(work->counts.claimable);
	values[4] = Int32GetDatum(sweep_shared_count_free_workers(work->run->run_as, sweep_quota_is_unlimited(work->run->run_as)));
	values[5] = Int32GetDatum(request->buckets);
	(void) sweep_sql_execute(SWEEP_SQL_QUEUE_SHARES, values, NULL);
	work->shares_left = sweep_sql_int32(1);
	if (!sweep_sql_is_null(2))
		request->wanted = sweep_sql_int32(2);
}

/* What was found becomes part of the detail of the run. */
static void
note_counts(SweepRun *run, const SweepBuckets *buckets, const SweepBucketCounts *counts)
{
	MemoryContext old = MemoryContextSwitchTo(run->context);
	int32		count = buckets->fence.request.buckets;
	char	   *found = count == 0 ? pstrdup("{\"max_buckets\": 0}") :
		psprintf("{\"max_buckets\": %d, \"available_count\": %d, \"occupied_count\": %d, \"stale_count\": %d, \"missing_count\": %d}",
				 count, counts->available, counts->occupied, counts->stale, counts->missing);

	run->state.detail = sweep_detail_merge(run->state.detail, DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(found))));
	MemoryContextSwitchTo(old);
}

/* A transaction before the run begins. False as well when it is to stop, or the extension is gone. */
static bool
transact(SweepRun *run, SweepWork work, void *arg, ErrorData **error)
{
	SweepTxnEnd end;

	/* A request that came while a worker ignored its signal. */
	if (pg_atomic_read_u32(&run->slot->stop_request) != 0)
	{
		note_stop(run, error);
		return false;
	}
	end = sweep_batch_transact(run, work, arg, error);
	if (end == TXN_FAILED && (*error)->sqlerrcode == ERRCODE_QUERY_CANCELED && !sweep_timers_statement_fired(run))
		note_stop(run, error);
	else if (end != TXN_COMMITTED && end != TXN_FAILED)
		run->reason = SWEEP_STOP_CANCELLED;
	return end == TXN_COMMITTED;
}

bool
sweep_plan_accept(SweepRun *run, SweepBucketResult result, const SweepBucketError *problem, ErrorData **error)
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
	*error = sweep_report_error(run, problem->sqlstate, problem->message, problem->detail, problem->hint);
	return false;
}

/* Somebody wants the run to stop: cancelled, or failed with the error that says which time is over. */
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
	else if (QueryCancelPending && sweep_sql_in_call() && sweep_timers_statement_fired(run))
		*error = sweep_report_error(run, ERRCODE_QUERY_CANCELED, "canceling statement due to statement timeout",
							"The run was waiting for its store of buckets.", NULL);
	/* So that giving the bucket back does not take long either. */
	if (QueryCancelPending)
		pg_atomic_fetch_or_u32(&run->slot->stop_request, SWEEP_STOP_REQUEST_CANCEL);
}
