/*
 * bucket.h
 *		The interface of this room: the stores, and the bucket that a run holds.
 *
 * A run commits only while it holds its bucket, which is given back when the run ends; see fence.c.
 */
#ifndef SWEEP_BUCKET_H
#define SWEEP_BUCKET_H

#include "base/txn.h"
#include "bucket/store.h"

typedef struct SweepFence
{
	const SweepBucketStore *store;
	SweepBucketRequest request; /* request.buckets is the last number of buckets that was not 0 */
	SweepBucketClaim claim;
	bool		held;
	bool		lost;			/* the claim is no longer valid */
	bool		divides;		/* the run was not begun as a share: it divides the job, and is the parent of the next shares */
	int32		buckets_now;
	bool		binding;		/* the current transaction may commit only while the claim is valid */
	/* State of the transaction that ends the run. */
	bool		given_back;		/* it has given the bucket back */
	bool		followed;		/* it has queued the next share, if there is one */
	int64		follower;		/* run of the next share; 0 = none */
	SweepTxnHook hook;
} SweepFence;

/* Adds the fence to the hooks of the transactions of its run: it is called before each commit and after each rollback. */
extern void sweep_fence_open(SweepFence *fence, SweepTxnHook **hooks);

/* From now on the transaction can only commit while the run holds its bucket; raises when the bucket is lost already. */
extern void sweep_fence_hold(SweepFence *fence);

/*
 * Called in the transaction that ends the run, after its row was written: queues the next share, and gives the bucket
 * back if the store takes part in the transaction.
 */
extern void sweep_fence_end(SweepFence *fence, const char *stop_reason);

/* Queues the next share if one is needed; it is due after the delay. */
extern void sweep_fence_follow(SweepFence *fence, const char *stop_reason, int64 delay_us);

/* Gives a bucket of the table store back; parameters: job, number of buckets, run, bucket. */
extern SweepStatement sweep_release_bucket_sql;

#endif							/* SWEEP_BUCKET_H */
