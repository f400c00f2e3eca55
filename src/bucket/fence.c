/*
 * fence.c
 *		A bucket that a run holds.
 *
 * Called by batch.c in each transaction of a share, and by txn.c at its end. A share may be stopped for longer than
 * the recovery time of its bucket, so that another share gets the bucket. Three checks keep the first share from
 * committing then: it does not commit once its claim is as old as the recovery time, by the monotonic clock; with the
 * table store, a batch locks the row of its bucket, which it can do only while the claim is valid; with another
 * store, the claim is checked before each batch (bucket_run.c). The bucket is given back only while the claim is
 * valid.
 */
#include "postgres.h"

#include "utils/builtins.h"

#include "base/clock.h"
#include "base/shared.h"
#include "base/worker.h"
#include "bucket/bucket.h"

static SweepStatement follow_share_sql = {
	.text = "SELECT sweep._follow_share($1, $6, $2, $3, $4, $5::pg_catalog.float8 * interval '1 us')",
	.types = {INT8OID, TEXTOID, INT4OID, INT4OID, INT8OID, BOOLOID}};
static SweepStatement lock_bucket_sql = {
	.text = "SELECT FROM sweep.bucket b WHERE b.job = $1 AND b.bucket = $2 AND b.run_id = $3 FOR SHARE",
	.types = {TEXTOID, INT4OID, INT8OID}};
SweepStatement sweep_release_bucket_sql = {
	.text = "SELECT sweep._release_bucket($1, $2, $3, $4)",
	.types = {TEXTOID, INT4OID, INT8OID, INT4OID}};

static bool lock_bucket(const SweepFence *fence);
static void check_age(void *arg);
static void undo(void *arg);
static void release_bucket(const SweepFence *fence);

void
sweep_fence_open(SweepFence *fence, SweepTxnHook **hooks)
{
	fence->hook = (SweepTxnHook) {.before_commit = check_age, .after_abort = undo, .arg = fence, .next = *hooks};
	*hooks = &fence->hook;
}

void
sweep_fence_hold(SweepFence *fence)
{
	int64		age_us = sweep_monotonic_us() - fence->claim.claimed_us;

	fence->binding = true;
	fence->lost = age_us >= fence->request.recovery_us || (fence->store->check == NULL && !lock_bucket(fence));
	if (fence->lost)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("run %lld of job \"%s\" has lost bucket %d", (long long) fence->request.run_id, fence->request.job,
						fence->claim.bucket),
				 errdetail("It was claimed %.1f s ago; the recovery time is %.1f s.", age_us / 1e6, fence->request.recovery_us / 1e6),
				 errhint("Lower batch_size or stop_after, or raise bucket_recovery.")));
}

/* Locks the row of the bucket in the table. Recovery skips a locked row, so the run keeps the bucket until the commit. */
static bool
lock_bucket(const SweepFence *fence)
{
	Datum		values[] = {
		CStringGetTextDatum(fence->request.job), Int32GetDatum(fence->claim.bucket), Int64GetDatum(fence->claim.token)
	};

	return sweep_sql_execute(&lock_bucket_sql, values, NULL) == 1;
}

/* Checks the age again at the commit: deferred triggers, and writing the row of the run, take time after the end of the step. */
static void
check_age(void *arg)
{
	SweepFence *fence = arg;
	bool		binding = fence->binding;

	fence->binding = false;
	if (binding && sweep_monotonic_us() - fence->claim.claimed_us >= fence->request.recovery_us)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("share of job \"%s\" has lost bucket %d while it committed", fence->request.job, fence->claim.bucket)));
}

/* Called after a rollback: resets the state that the transaction has set. */
static void
undo(void *arg)
{
	SweepFence *fence = arg;

	fence->binding = fence->given_back = fence->followed = false;
	if (fence->follower != 0)
		sweep_shared_keep_follower(fence->request.slot, 0);
	fence->follower = 0;
}

/*
 * When the store cannot give the bucket back in this transaction, the next share is due after the recovery time, when the bucket is free
 * in any case. Once the bucket was given back, the share is made due at once.
 */
void
sweep_fence_end(SweepFence *fence, const char *stop_reason)
{
	if (!fence->held)
		return;
	fence->given_back = fence->store->check == NULL;
	if (fence->given_back)
		release_bucket(fence);
	sweep_fence_follow(fence, stop_reason, fence->given_back ? 0 : fence->request.recovery_us);
	if (fence->given_back && fence->follower != 0)
		sweep_shared_keep_follower(fence->request.slot, fence->follower);
	fence->followed = true;
}

/* Releases the bucket of the table store in the current transaction; the store itself would use a transaction of its own. */
static void
release_bucket(const SweepFence *fence)
{
	Datum		values[] = {
		CStringGetTextDatum(fence->request.job), Int32GetDatum(fence->request.buckets), Int64GetDatum(fence->claim.token),
		Int32GetDatum(fence->claim.bucket)
	};

	(void) sweep_sql_execute(&sweep_release_bucket_sql, values, NULL);
}

void
sweep_fence_follow(SweepFence *fence, const char *stop_reason, int64 delay_us)
{
	Datum		values[] = {
		Int64GetDatum(fence->request.run_id), CStringGetTextDatum(stop_reason), Int32GetDatum(fence->claim.bucket),
		Int32GetDatum(fence->buckets_now), Int64GetDatum(delay_us), BoolGetDatum(fence->divides)
	};

	(void) sweep_sql_execute(&follow_share_sql, values, NULL);
	fence->follower = sweep_sql_int64(1);
	/* A worker wakes the scheduler when its slot is free. A session may go on for long, so it wakes the scheduler at the commit. */
	if (sweep_sql_in_call())
		sweep_worker_wake_at_commit();
}
