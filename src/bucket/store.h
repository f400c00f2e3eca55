/*
 * store.h
 *		Where the buckets of divided jobs are kept: in the table sweep.bucket, or in Redis.
 *
 * A store is a table of functions. The store of the table is in store.c; that of Redis is in a module of its
 * own, pg_sweep_redis, whose function sweep_redis_bucket_store() returns it, so that this library knows
 * nothing of hiredis.
 *
 * Rules for every store. No function is called within a transaction, and none raises: a failure is an
 * answer, its text is in *error. Whatever waits asks sweep_bucket_is_stopped() after each wake-up and at
 * least five times a second, and answers BUCKET_STOPPED when it says so; the caller then looks at what
 * was asked for. Nothing needs to be given back after a failure: a bucket whose fate is not known comes
 * back by recovery.
 */
#ifndef SWEEP_BUCKET_STORE_H
#define SWEEP_BUCKET_STORE_H

#define SWEEP_BUCKET_STORE_VERSION 1

/* The result of an operation. */
typedef enum SweepBucketResult
{
	BUCKET_OK,
	BUCKET_NONE,				/* claim: none is free; check, release: it is no longer ours */
	BUCKET_STOPPED,				/* given up because the run was requested to stop */
	BUCKET_FAILED,				/* see the error */
} SweepBucketResult;

/* An error of a store. It has room for its texts, because a store may have no memory context to allocate them in. */
typedef struct SweepBucketError
{
	int			sqlstate;		/* MAKE_SQLSTATE(...) */
	char		message[512];
	char		detail[512];	/* "" = none */
	char		hint[512];		/* "" = none */
} SweepBucketError;

/* The job whose buckets an operation is about, and the run that asks for it. */
typedef struct SweepBucketRequest
{
	const char *job;			/* name of the job: the key in the table */
	const char *key;			/* name in Redis, between the braces: bucket_key of the job, or its name */
	int32		buckets;		/* their current number: 0 .. buckets - 1 */
	int64		recovery_us;	/* occupied for so long, or longer: free again */
	int64		run_id;			/* of the claim */
	int32		wanted;			/* claim: this bucket if it is free, else any; -1 = any */
	struct SweepSlot *slot;		/* of that run; this field and the next are for sweep_bucket_is_stopped() */
	int64		give_up_at_us;	/* release: when to give up, by the monotonic clock; 0 = as soon as the run has to stop */
} SweepBucketRequest;

/* Results of maintain(); the detail of the run shows the first four. */
typedef struct SweepBucketCounts
{
	int32		available;		/* after the recovery, before the missing ones were added */
	int32		occupied;		/* at the same moment */
	int32		stale;			/* recovered */
	int32		missing;		/* added: they were neither available nor occupied */
	int32		claimable;		/* available now, of those below request->buckets */
} SweepBucketCounts;

/* A bucket held. */
typedef struct SweepBucketClaim
{
	int32		bucket;
	int64		token;			/* of the fence: tells the claims of a bucket apart */
	int64		claimed_us;		/* monotonic clock, read before the claim was asked for; the caller sets it */
} SweepBucketClaim;

typedef struct SweepBucketStore
{
	int			version;		/* SWEEP_BUCKET_STORE_VERSION */
	const char *name;			/* "table", "redis" */

	/*
	 * Whether the claim still stands; called before each batch, outside of its transaction. The table store
	 * has none (NULL): its fence is a row lock in the transaction of the batch, see fence.c.
	 */
	SweepBucketResult (*check) (const SweepBucketRequest *request, const SweepBucketClaim *claim, SweepBucketError *error);

	/*
	 * Makes the buckets what they should be: those occupied since request->recovery_us or longer become
	 * available, those of 0 .. buckets - 1 that are in neither state become available, and what is
	 * available beyond is dropped. Safe when several do it at a time.
	 */
	SweepBucketResult (*maintain) (const SweepBucketRequest *request, SweepBucketCounts *counts, SweepBucketError *error);

	/* Takes a free bucket, atomically: the wanted one if there is one and it is free. It may be one beyond request->buckets: the caller drops it by release. */
	SweepBucketResult (*claim) (const SweepBucketRequest *request, SweepBucketClaim *claim, SweepBucketError *error);

	/*
	 * Gives it back, or drops it when it is request->buckets or beyond, only while the claim is still the
	 * one that is given; else BUCKET_NONE and nothing is changed.
	 */
	SweepBucketResult (*release) (const SweepBucketRequest *request, const SweepBucketClaim *claim, SweepBucketError *error);
} SweepBucketStore;

/* The type of sweep_redis_bucket_store() in the module pg_sweep_redis. */
typedef const SweepBucketStore *(*SweepBucketStoreFunction) (void);

/*
 * The store of that name; within a transaction, since it may load the module. Raises when there is no
 * such module.
 */
extern const SweepBucketStore *sweep_bucket_find_store(const char *name);

/*
 * Whether a wait should be given up: the run is cancelled, or the process is to end. The one function
 * that a store in another module calls here.
 */
extern PGDLLEXPORT bool sweep_bucket_is_stopped(const SweepBucketRequest *request);

#endif							/* SWEEP_BUCKET_STORE_H */
