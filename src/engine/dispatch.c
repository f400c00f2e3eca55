/*
 * dispatch.c
 *		Sees to it that the buckets of a divided job are there, and are worked on.
 *
 * Called by share.c before a run begins: for its own job, unless the run was begun as a share, and for the
 * divided children of its job. It asks how many buckets there are just now, has the store recover, add and
 * drop some, and queues a share for each that is free, as far as there are workers (bucket.sql says which
 * share follows which). Safe when several do it at a time: a share that finds no bucket is skipped.
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/memutils.h"

#include "base/compat.h"
#include "base/detail.h"
#include "base/lease.h"
#include "engine/dispatch.h"
#include "engine/run_args.h"
#include "engine/unit.h"

typedef struct DispatchWork
{
	SweepRun   *run;
	SweepShare *share;
	List	   *children;		/* of SweepShare */
	SweepBucketCounts counts;
	int32		shares_left;
} DispatchWork;

static void children_work(void *arg);
static void look_work(void *arg);
static void queue_work(void *arg);
static void note_counts(SweepRun *run, const SweepShare *share, const SweepBucketCounts *counts);
static void push_number(JsonbInState *state, const char *name, int32 number);

bool
sweep_dispatch_children(SweepRun *run, ErrorData **error)
{
	DispatchWork work = {.run = run};
	ListCell   *cell;

	if (!sweep_share_transact(run, children_work, &work, error))
		return false;
	foreach(cell, work.children)
	{
		SweepShare *child = lfirst(cell);
		bool		done = sweep_dispatch_look(run, child, error) && sweep_dispatch_shares(run, child, error);

		sweep_step_free(child->function);
		if (!done)
			return false;
	}
	return true;
}

static void
children_work(void *arg)
{
	DispatchWork *work = arg;
	SweepRun   *run = work->run;
	Datum		values[] = {Int64GetDatum(run->run_id), ObjectIdGetDatum(run->run_as)};
	uint64		count;

	work->children = NIL;
	if (!sweep_unit_begin(run))
		return;
	count = sweep_sql_execute(SWEEP_SQL_DIVIDED_CHILDREN, values, NULL);
	for (uint64 i = 0; i < count; i++)
	{
		MemoryContext context = run->context;
		MemoryContext old = MemoryContextSwitchTo(context);
		SweepShare *child = palloc0(sizeof(SweepShare));

		sweep_sql_row(i);
		child->job = sweep_sql_text(1, context);
		child->store_name = sweep_sql_text(2, context);
		child->recovery_us = sweep_sql_interval_us(3, 0);
		child->key = sweep_sql_text(4, context);
		child->function_name = sweep_sql_text(5, context);
		child->args = sweep_sql_jsonb(6, context);
		child->delay = sweep_sql_text(7, context);
		work->children = lappend(work->children, child);
		MemoryContextSwitchTo(old);
	}
}

bool
sweep_dispatch_look(SweepRun *run, SweepShare *share, ErrorData **error)
{
	DispatchWork work = {.run = run, .share = share};

	share->request = (SweepBucketRequest) {
		.job = share->job,
		.key = share->key,
		.recovery_us = share->recovery_us,
		.run_id = run->run_id,
		.wanted = run->wanted_bucket,
		.slot = run->slot,
	};
	return sweep_share_transact(run, look_work, &work, error);
}

static void
look_work(void *arg)
{
	DispatchWork *work = arg;

	if (!sweep_unit_begin(work->run))
		return;
	sweep_run_fix_clock(work->run);
	work->share->store = sweep_bucket_find_store(work->share->store_name);
	work->share->request.buckets = sweep_dispatch_count_buckets(work->run, work->share);
}

int32
sweep_dispatch_count_buckets(SweepRun *run, SweepShare *share)
{
	Datum		values[] = {CStringGetTextDatum(share->job), CStringGetTextDatum(share->store_name), CStringGetTextDatum(share->key)};
	int32		most = sweep_sql_execute(SWEEP_SQL_COUNT_BUCKETS, values, NULL) == 1 ? sweep_sql_int32(1) : 0;
	SweepBatch	batch;
	int32		count;

	if (share->function_name == NULL || most == 0)
		return most;
	if (share->function == NULL)
		share->function = sweep_step_prepare_call(run->context, share->function_name);
	batch = sweep_unit_batch(run);
	batch.size = run->limits.batch_size;
	batch.bucket = batch.buckets = 0;
	batch.args = share->args;
	count = sweep_unit_count(run, share->function, &batch);
	return Min(most, count);
}

bool
sweep_dispatch_shares(SweepRun *run, SweepShare *share, ErrorData **error)
{
	DispatchWork work = {.run = run, .share = share};
	SweepBucketError problem = {0};

	if (share->request.buckets > 0)
	{
		if (!sweep_share_accept_result(run, share->store->maintain(&share->request, &work.counts, &problem), &problem, error) ||
			!sweep_share_transact(run, queue_work, &work, error))
			return false;
	}
	if (share == run->share)
		run->shares_left = work.shares_left;
	note_counts(run, share, &work.counts);
	return true;
}

static void
queue_work(void *arg)
{
	DispatchWork *work = arg;
	SweepShare *share = work->share;
	Datum		values[6];

	/* Another dispatcher is just queueing what there is to be queued. */
	if (!sweep_unit_begin(work->run) || !sweep_lease_acquire_dispatch(share->job))
		return;
	values[0] = Int64GetDatum(work->run->run_id);
	values[1] = CStringGetTextDatum(share->job);
	values[2] = CStringGetTextDatum(share->delay ? share->delay : "0");
	values[3] = Int32GetDatum(work->counts.claimable);
	values[4] = Int32GetDatum(sweep_shared_count_free_workers(work->run->run_as, sweep_quota_is_unlimited(work->run->run_as)));
	values[5] = Int32GetDatum(share->request.buckets);
	(void) sweep_sql_execute(SWEEP_SQL_QUEUE_SHARES, values, NULL);
	work->shares_left = sweep_sql_int32(1);
	if (!sweep_sql_is_null(2))
		share->request.wanted = sweep_sql_int32(2);
}

/* What was found becomes part of the detail of the run. */
static void
note_counts(SweepRun *run, const SweepShare *share, const SweepBucketCounts *counts)
{
	MemoryContext old = MemoryContextSwitchTo(run->context);
	JsonbInState state = {0};

	sweep_push_jsonb_value(&state, WJB_BEGIN_OBJECT, NULL);
	push_number(&state, "max_buckets", share->request.buckets);
	if (share->request.buckets > 0)
	{
		push_number(&state, "available_count", counts->available);
		push_number(&state, "occupied_count", counts->occupied);
		push_number(&state, "stale_count", counts->stale);
		push_number(&state, "missing_count", counts->missing);
	}
	sweep_push_jsonb_value(&state, WJB_END_OBJECT, NULL);
	run->state.detail = sweep_detail_merge(run->state.detail, JsonbValueToJsonb(state.result));
	MemoryContextSwitchTo(old);
}

static void
push_number(JsonbInState *state, const char *name, int32 number)
{
	JsonbValue	key = {.type = jbvString};
	JsonbValue	value = {.type = jbvNumeric};

	key.val.string.val = unconstify(char *, name);
	key.val.string.len = strlen(name);
	value.val.numeric = DatumGetNumeric(DirectFunctionCall1(int4_numeric, Int32GetDatum(number)));
	sweep_push_jsonb_value(state, WJB_KEY, &key);
	sweep_push_jsonb_value(state, WJB_VALUE, &value);
}
