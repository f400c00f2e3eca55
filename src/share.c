/*
 * share.c
 *		Runs of divided jobs.
 *
 * Called by run.c around the batches of a run, and by unit.c before each commit. A store of buckets is
 * asked only while no transaction is open: that in Redis waits for a socket.
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

#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "detail.h"
#include "report.h"
#include "share.h"
#include "unit.h"

/* So long a run that is cancelled tries to give its bucket back. */
#define RELEASE_PATIENCE_US INT64CONST(500000)

typedef struct ShareWork
{
	SweepRun   *run;
	SweepShare *share;
	List	   *children;		/* of SweepShare */
	SweepBucketCounts counts;
	int32		shares_left;
} ShareWork;

static bool dispatch_children(SweepRun *run, ErrorData **error);
static void children_work(void *arg);
static bool look(SweepRun *run, SweepShare *share, ErrorData **error);
static void look_work(void *arg);
static int32 count_buckets(SweepRun *run, SweepShare *share);
static bool dispatch(SweepRun *run, SweepShare *share, ErrorData **error);
static void queue_work(void *arg);
static void note_counts(SweepRun *run, const SweepShare *share, const SweepBucketCounts *counts);
static void push_number(JsonbParseState **state, const char *name, int32 number);
static bool claim_bucket(SweepRun *run, SweepShare *share, ErrorData **error);
static bool transact(SweepRun *run, SweepWork work, void *arg, ErrorData **error);
static bool accept_result(SweepRun *run, SweepBucketResult result, const SweepBucketError *problem, ErrorData **error);
static ErrorData *make_error(SweepRun *run, int sqlstate, const char *message, const char *detail, const char *hint);
static void give_back(SweepRun *run, SweepShare *share);
static void follow_work(void *arg);

bool
sweep_share_open(SweepRun *run, ErrorData **error)
{
	SweepShare *share;

	if (run->has_children && !dispatch_children(run, error))
		return false;
	if (run->buckets == 0)
		return true;
	share = run->share = MemoryContextAllocZero(run->context, sizeof(SweepShare));
	share->job = run->job;
	share->store_name = run->bucket_store;
	share->recovery_us = run->bucket_recovery_us;
	share->key = run->bucket_key;
	share->function_name = run->buckets_function;
	share->args = run->args;
	if (!look(run, share, error))
		return false;
	if (run->shares_left < 0 && !dispatch(run, share, error))
		return false;
	return claim_bucket(run, share, error);
}

static bool
dispatch_children(SweepRun *run, ErrorData **error)
{
	ShareWork	work = {.run = run};
	ListCell   *cell;

	if (!transact(run, children_work, &work, error))
		return false;
	foreach(cell, work.children)
	{
		SweepShare *child = lfirst(cell);
		bool		done = look(run, child, error) && dispatch(run, child, error);

		sweep_step_free(child->function);
		if (!done)
			return false;
	}
	return true;
}

static void
children_work(void *arg)
{
	ShareWork  *work = arg;
	SweepRun   *run = work->run;
	Datum		run_id = Int64GetDatum(run->run_id);
	uint64		count;

	if (!sweep_unit_begin(run))
		return;
	count = sweep_sql_execute(SWEEP_SQL_DIVIDED_CHILDREN, &run_id, NULL);
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

/* Finds the store, and how many buckets there are. */
static bool
look(SweepRun *run, SweepShare *share, ErrorData **error)
{
	ShareWork	work = {.run = run, .share = share};

	share->request = (SweepBucketRequest) {
		.job = share->job,
		.key = share->key,
		.recovery_us = share->recovery_us,
		.run_id = run->run_id,
		.wanted = run->wanted_bucket,
		.slot = run->slot,
	};
	return transact(run, look_work, &work, error);
}

static void
look_work(void *arg)
{
	ShareWork  *work = arg;

	if (!sweep_unit_begin(work->run))
		return;
	sweep_run_fix_clock(work->run);
	work->share->store = sweep_bucket_find_store(work->share->store_name);
	work->share->request.buckets = count_buckets(work->run, work->share);
}

/* How many buckets there are just now, in a transaction: 0 also when the job is no longer divided. */
static int32
count_buckets(SweepRun *run, SweepShare *share)
{
	Datum		name = CStringGetTextDatum(share->job);
	int32		most = sweep_sql_execute(SWEEP_SQL_COUNT_BUCKETS, &name, NULL) == 1 ? sweep_sql_int32(1) : 0;
	SweepBatch	batch;

	if (share->function_name == NULL || most == 0)
		return most;
	if (share->function == NULL)
		share->function = sweep_step_prepare_count(run->context, share->function_name);
	batch = sweep_unit_batch(run);
	batch.size = run->limits.batch_size;
	batch.args = share->args;
	return Min(most, sweep_unit_count(run, share->function, &batch));
}

/* Maintains the buckets and queues shares for those that are free. */
static bool
dispatch(SweepRun *run, SweepShare *share, ErrorData **error)
{
	ShareWork	work = {.run = run, .share = share};
	SweepBucketError problem = {0};

	if (share->request.buckets > 0)
	{
		if (!accept_result(run, share->store->maintain(&share->request, &work.counts, &problem), &problem, error) ||
			!transact(run, queue_work, &work, error))
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
	ShareWork  *work = arg;
	SweepShare *share = work->share;
	Datum		values[5];

	if (!sweep_unit_begin(work->run))
		return;
	values[0] = Int64GetDatum(work->run->run_id);
	values[1] = CStringGetTextDatum(share->job);
	values[2] = CStringGetTextDatum(share->delay ? share->delay : "0");
	values[3] = Int32GetDatum(work->counts.claimable);
	values[4] = Int32GetDatum(sweep_shared_count_free_workers());
	(void) sweep_sql_execute(SWEEP_SQL_QUEUE_SHARES, values, NULL);
	work->shares_left = sweep_sql_int32(1);
}

/* What was found becomes part of the detail of the run. */
static void
note_counts(SweepRun *run, const SweepShare *share, const SweepBucketCounts *counts)
{
	MemoryContext old = MemoryContextSwitchTo(run->context);
	JsonbParseState *state = NULL;

	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	push_number(&state, "max_buckets", share->request.buckets);
	if (share->request.buckets > 0)
	{
		push_number(&state, "available_count", counts->available);
		push_number(&state, "occupied_count", counts->occupied);
		push_number(&state, "stale_count", counts->stale);
		push_number(&state, "missing_count", counts->missing);
	}
	run->state.detail = sweep_detail_merge(run->state.detail, JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL)));
	MemoryContextSwitchTo(old);
}

static void
push_number(JsonbParseState **state, const char *name, int32 number)
{
	JsonbValue	key = {.type = jbvString};
	JsonbValue	value = {.type = jbvNumeric};

	key.val.string.val = unconstify(char *, name);
	key.val.string.len = strlen(name);
	value.val.numeric = DatumGetNumeric(DirectFunctionCall1(int4_numeric, Int32GetDatum(number)));
	pushJsonbValue(state, WJB_KEY, &key);
	pushJsonbValue(state, WJB_VALUE, &value);
}

static bool
claim_bucket(SweepRun *run, SweepShare *share, ErrorData **error)
{
	SweepBucketError problem = {0};

	while (share->request.buckets > 0)
	{
		int64		claimed_us = sweep_monotonic_us();
		SweepBucketResult result = share->store->claim(&share->request, &share->claim, &problem);

		share->claim.claimed_us = claimed_us;
		if (result == BUCKET_NONE)
			break;
		if (!accept_result(run, result, &problem, error))
			return false;
		share->held = true;
		share->buckets = share->request.buckets;
		if (share->claim.bucket < share->buckets)
			return true;
		/* Left over from a time when there were more: dropped, and another one taken. */
		share->held = false;
		if (!accept_result(run, share->store->release(&share->request, &share->claim, &problem), &problem, error))
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

	if (sweep_unit_begin(run))
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
		return accept_result(run, result, &problem, error);
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
	share->request.buckets = count_buckets(run, share);
	if (share->request.buckets == share->buckets)
		return true;
	run->status = "succeeded";
	run->reason = SWEEP_STOP_RESCALED;
	sweep_unit_is_last(run);
	sweep_unit_save(run);
	return false;
}

void
sweep_share_hold(SweepRun *run)
{
	SweepShare *share = run->share;
	int64		age_us;

	if (share == NULL)
		return;
	age_us = sweep_monotonic_us() - share->claim.claimed_us;
	share->lost = age_us >= share->recovery_us || (share->store->check == NULL && !sweep_bucket_lock(share->job, &share->claim));
	if (share->lost)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("run %lld of job \"%s\" has lost bucket %d", (long long) run->run_id, run->job, share->claim.bucket),
				 errdetail("It was claimed %.1f s ago; the recovery time is %.1f s.", age_us / 1e6, share->recovery_us / 1e6),
				 errhint("Lower batch_size or timeout, or raise bucket_recovery.")));
}

/* A transaction before the run begins. False as well when it is to stop, or the extension is gone. */
static bool
transact(SweepRun *run, SweepWork work, void *arg, ErrorData **error)
{
	if (!sweep_unit_transact(run, work, arg, error))
		return false;
	if (!run->gate_closed && !run->ended)
		return true;
	run->reason = SWEEP_STOP_CANCELLED;
	return false;
}

/* True when the store did what it was asked for. */
static bool
accept_result(SweepRun *run, SweepBucketResult result, const SweepBucketError *problem, ErrorData **error)
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
			*error = NULL;
			run->reason = SWEEP_STOP_CANCELLED;
			if ((pg_atomic_read_u32(&run->slot->stop_request) & SWEEP_STOP_REQUEST_LEASE) != 0)
				*error = sweep_report_lease_error(run);
			return false;
		case BUCKET_FAILED:
			break;
	}
	*error = make_error(run, problem->sqlstate, problem->message, problem->detail, problem->hint);
	return false;
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

void
sweep_share_close(SweepRun *run)
{
	SweepShare *share = run->share;
	ErrorData  *error = NULL;

	if (share == NULL)
		return;
	sweep_step_free(share->function);
	if (!share->held)
		return;
	give_back(run, share);
	if (!sweep_unit_transact(run, follow_work, run, &error))
		ereport(WARNING,
				(errmsg("share that follows run %lld of job \"%s\" could not be queued: %s", (long long) run->run_id, run->job,
						error->message)));
}

static void
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
}

/* The run has ended, so this is not one of its transactions; but it passes the same gate. */
static void
follow_work(void *arg)
{
	SweepRun   *run = arg;
	bool		exists;
	Datum		values[4];

	run->gate_closed = true;
	exists = sweep_sql_open_gate();
	run->gate_closed = false;
	if (!exists)
		return;
	(void) set_config_option("synchronous_commit", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
	values[0] = Int64GetDatum(run->run_id);
	values[1] = CStringGetTextDatum(sweep_loop_stop_name(run->reason));
	values[2] = Int32GetDatum(run->share->claim.bucket);
	values[3] = Int32GetDatum(run->share->request.buckets);
	(void) sweep_sql_execute(SWEEP_SQL_FOLLOW_SHARE, values, NULL);
}
