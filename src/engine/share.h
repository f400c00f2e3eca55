/*
 * share.h
 *		Runs of divided jobs: each works on one bucket, and one of them sees to it that there are others.
 */
#ifndef SWEEP_SHARE_H
#define SWEEP_SHARE_H

#include "base/sql.h"
#include "bucket/bucket.h"
#include "engine/run.h"

/* The buckets of a divided job, as a run of it or of its parent sees them. */
typedef struct SweepShare
{
	char	   *job;
	char	   *store_name;
	int64		recovery_us;
	char	   *key;
	char	   *function_name;	/* says how many there are just now; NULL = all of the job */
	Jsonb	   *args;			/* for that function */
	char	   *delay;			/* children: interval after which their shares are due */
	SweepStep  *function;
	const SweepBucketStore *store;
	SweepBucketRequest request; /* its buckets: how many there were when last asked and not 0 */
	SweepBucketClaim claim;
	bool		held;
	bool		divides;		/* the run was not begun as a share: it queues the others */
	/* Of the transaction that ends the run: */
	bool		given_back;
	bool		followed;
	int64		follower;		/* the run that follows; 0 = none */
	bool		lost;			/* the claim no longer stands */
	int32		buckets;		/* how many there were when the run began */
	int32		buckets_now;
} SweepShare;

/*
 * Before the run begins: queues the shares of divided children; of a divided job, maintains the buckets
 * and queues further shares, unless the run is one of those, and claims a bucket. Nothing to do for other
 * jobs. False when the run does not begin: with an error, or with the reason of the run set.
 */
extern bool sweep_share_open(SweepRun *run, ErrorData **error);

/* Records that the run was skipped for want of a bucket; in a transaction of its own. */
extern void sweep_share_skip_work(void *arg);

/* Before a batch, without a transaction: false when the claim no longer stands, or the run is to stop. */
extern bool sweep_share_check(SweepRun *run, ErrorData **error);

/* First thing in a batch: false when the number of buckets has changed; the run has then ended. */
extern bool sweep_share_begin_batch(SweepRun *run);

/* Last thing in each transaction of a batch: raises unless the bucket is ours until the commit. */
extern void sweep_share_hold(SweepRun *run);

/*
 * In the transaction that ends the run: queues the share that follows, and gives the bucket back where the
 * store is part of the transaction.
 */
extern void sweep_share_end(SweepRun *run);

/* After the end of the run: what is still to be done of it. */
extern void sweep_share_close(SweepRun *run);

/* A transaction was rolled back: what it has noted here does not stand. */
extern void sweep_share_undo(SweepRun *run);

/* For dispatch.c: a transaction before the run begins; false as well when it is to stop, or the extension is gone. */
extern bool sweep_share_transact(SweepRun *run, SweepWork work, void *arg, ErrorData **error);

/* For dispatch.c: true when the store did what it was asked for. */
extern bool sweep_share_accept_result(SweepRun *run, SweepBucketResult result, const SweepBucketError *problem, ErrorData **error);

#endif							/* SWEEP_SHARE_H */
