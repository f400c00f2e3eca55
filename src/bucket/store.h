/*
 * store.h
 *		The contract of a store of buckets: the table sweep.bucket, or Redis.
 *
 * A store is a table of functions. The store of the table is in store.c; that of Redis is in a module of its
 * own, pg_sweep_redis, whose function sweep_redis_bucket_store() returns it, so that this library does not depend on
 * hiredis.
 *
 * Rules for every store. No function is called within a transaction, and none raises an error: a failure is a result,
 * with its text in *error. A function that waits calls sweep_bucket_is_stopped() after each wake-up and at least five
 * times a second, and returns BUCKET_STOPPED if that is true. After a failure nothing needs to be released: recovery
 * frees a bucket of which it is not known whether it is claimed.
 */
#ifndef SWEEP_BUCKET_STORE_H
#define SWEEP_BUCKET_STORE_H

#define SWEEP_BUCKET_STORE_VERSION 1

/* The result of an operation. */
typedef enum SweepBucketResult
{
	BUCKET_OK,
	BUCKET_NONE,				/* claim: no bucket is free; check, release: the claim is no longer valid */
	BUCKET_STOPPED,				/* given up because the run was requested to stop */
	BUCKET_FAILED,				/* see the error */
} SweepBucketResult;

/* An error of a store. It contains its texts, because a store may have no memory context to allocate them in. */
typedef struct SweepBucketError
{
	int			sqlstate;		/* MAKE_SQLSTATE(...) */
	char		message[512];
	char		detail[512];	/* "" = none */
	char		hint[512];		/* "" = none */
} SweepBucketError;

/* The job whose buckets an operation concerns, and the run that requests it. */
typedef struct SweepBucketRequest
{
	const char *job;			/* name of the job: the key in the table */
	const char *key;			/* name in Redis, between the braces: bucket_key of the job, or its name */
	int32		buckets;		/* their current number: 0 .. buckets - 1 */
	int64		recovery_us;	/* a bucket that was occupied for so long is free again */
	int64		run_id;			/* of the claim */
	int32		wanted;			/* claim: this bucket if it is free, otherwise any; -1 = any */
	struct SweepSlot *slot;		/* of that run; this field and the next are for sweep_bucket_is_stopped() */
	int64		give_up_at_us;	/* release: when to give up, by the monotonic clock; 0 = as soon as the run has to stop */
} SweepBucketRequest;

/* Results of maintain(); the detail of the run shows the first four. */
typedef struct SweepBucketCounts
{
	int32		available;		/* after the recovery, before the missing ones were added */
	int32		occupied;		/* at the same moment */
	int32		stale;			/* recovered */
	int32		missing;		/* added, because they were neither available nor occupied */
	int32		claimable;		/* available now, of those below request->buckets */
} SweepBucketCounts;

/* A bucket that a run holds. */
typedef struct SweepBucketClaim
{
	int32		bucket;
	int64		token;			/* fence token: differs between the claims of a bucket */
	int64		claimed_us;		/* monotonic clock before the claim was requested; set by the caller */
} SweepBucketClaim;

typedef struct SweepBucketStore
{
	int			version;		/* SWEEP_BUCKET_STORE_VERSION */
	const char *name;			/* "table", "redis" */

	/*
	 * Whether the claim is still valid; called before each batch, outside of its transaction. NULL in the table
	 * store, because its fence is a row lock in the transaction of the batch, see fence.c.
	 */
	SweepBucketResult (*check) (const SweepBucketRequest *request, const SweepBucketClaim *claim, SweepBucketError *error);

	/*
	 * Brings the buckets up to date: buckets that are occupied for request->recovery_us or longer become available,
	 * missing ones of 0 .. buckets - 1 are added as available, and available ones beyond are dropped. Several runs
	 * may do this at the same time.
	 */
	SweepBucketResult (*maintain) (const SweepBucketRequest *request, SweepBucketCounts *counts, SweepBucketError *error);

	/* Claims a free bucket atomically, the wanted one if it is free. It may be beyond request->buckets: the caller drops it by release. */
	SweepBucketResult (*claim) (const SweepBucketRequest *request, SweepBucketClaim *claim, SweepBucketError *error);

	/*
	 * Gives the bucket back, or drops it if its number is request->buckets or higher. If the given claim is no longer
	 * valid, changes nothing and returns BUCKET_NONE.
	 */
	SweepBucketResult (*release) (const SweepBucketRequest *request, const SweepBucketClaim *claim, SweepBucketError *error);
} SweepBucketStore;

/* The type of sweep_redis_bucket_store() in the module pg_sweep_redis. */
typedef const SweepBucketStore *(*SweepBucketStoreFunction) (void);

/*
 * The store of that name; called within a transaction, because it may load the module. Raises when the module does
 * not exist.
 */
extern const SweepBucketStore *sweep_bucket_find_store(const char *name);

/*
 * Whether a wait should be given up: the run is cancelled, or the process is to end. This is the only function of
 * this library that a store in another module calls.
 */
extern PGDLLEXPORT bool sweep_bucket_is_stopped(const SweepBucketRequest *request);

#endif							/* SWEEP_BUCKET_STORE_H */
