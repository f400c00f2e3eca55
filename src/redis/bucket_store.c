/*
 * bucket_store.c
 *		The buckets of divided jobs in Redis, with the same keys and meaning as for GitLab's own workers.
 *
 * Called by the engine through the table of functions, never within a transaction; bucket/store.h has the contract.
 * Each operation is one script, hence atomic.
 *
 * The fence of a claim is its score, the second in which it was made. The score is rounded up, and the moment up to
 * which claims are stale is rounded down, so no claim is recovered too early. The holder relies on this: it stops
 * when the recovery time has passed on its own clock. Two claims of one bucket have the same score only if the first
 * holder has given the bucket back, and then it no longer uses the score.
 *
 * Redis takes no part in the commit of a batch. A claim that is lost after the last check of a batch is noticed
 * only before the next batch: doc/operations.md describes this gap.
 *
 * No operation is tried twice: a claim or release whose reply was lost may have been executed, and recovery
 * finds the bucket. Between runs no connection is kept.
 */
#include "postgres.h"

#include "datatype/timestamp.h"
#include "fmgr.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "base/compat.h"
#include "bucket/store.h"
#include "redis/bucket_scripts.h"
#include "redis/connection.h"

SWEEP_MODULE_MAGIC("pg_sweep_redis", SWEEP_VERSION);

/* The function that pg_sweep calls in this module; see SweepBucketStoreFunction. */
extern PGDLLEXPORT const SweepBucketStore *sweep_redis_bucket_store(void);

/* Room for pg_sweep.redis_key_prefix (200 bytes), bucket_key (1024 bytes) and the rest of a key. */
#define KEY_SIZE 1280
#define MOST_NUMBERS 3

/* Largest number that the scripts accept as a bucket. */
#define LARGEST_BUCKET 999999

static int64
seconds_of(int64 unix_us, bool round_up)
{
	return (unix_us + (round_up ? USECS_PER_SEC - 1 : 0)) / USECS_PER_SEC;
}

static int64
unix_now_us(void)
{
	return GetCurrentTimestamp() + (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY;
}

/* Copies the failure, if that is the result. */
static SweepBucketResult
with_failure(SweepBucketResult result, SweepBucketError *error)
{
	if (result == BUCKET_FAILED)
		*error = *sweep_redis_failure();
	return result;
}

static void
write_key(char *key, const SweepBucketRequest *request, const char *suffix)
{
	const char *prefix = GetConfigOption("pg_sweep.redis_key_prefix", true, false);

	snprintf(key, KEY_SIZE, "%s{%s}:%s", prefix ? prefix : "", request->key, suffix);
}

static SweepBucketResult
strange_reply(SweepBucketError *error)
{
	sweep_redis_disconnect();
	*error = (SweepBucketError) {
		.sqlstate = ERRCODE_PROTOCOL_VIOLATION,
		.message = "Redis gave a reply of another kind than its script returns",
	};
	return BUCKET_FAILED;
}

/* Executes a script with both keys and these numbers; with BUCKET_OK its reply is of this type. */
static SweepBucketResult
run_script(const char *script, const SweepBucketRequest *request, const int64 numbers[], int count,
		   int type, const redisReply **reply, SweepBucketError *error)
{
	char		available[KEY_SIZE];
	char		occupied[KEY_SIZE];
	char		texts[MOST_NUMBERS][24];
	SweepRedisCommand command = {5, {"EVAL", script, "2", available, occupied}};
	SweepBucketResult result;

	write_key(available, request, "available_buckets");
	write_key(occupied, request, "occupied_buckets");
	for (int i = 0; i < count; i++)
	{
		snprintf(texts[i], sizeof(texts[i]), INT64_FORMAT, numbers[i]);
		command.argument[command.count++] = texts[i];
	}
	result = with_failure(sweep_redis_execute(&command, request, reply), error);
	return result == BUCKET_OK && (*reply)->type != type ? strange_reply(error) : result;
}

static SweepBucketResult
check(const SweepBucketRequest *request, const SweepBucketClaim *claim, SweepBucketError *error)
{
	const int64 numbers[] = {claim->bucket};
	const redisReply *reply;
	SweepBucketResult result = run_script(CHECK_SCRIPT, request, numbers, lengthof(numbers), REDIS_REPLY_STRING, &reply, error);

	return result == BUCKET_OK && strtod(reply->str, NULL) != (double) claim->token ? BUCKET_NONE : result;
}

static SweepBucketResult
maintain(const SweepBucketRequest *request, SweepBucketCounts *counts, SweepBucketError *error)
{
	int32	   *places[] = {&counts->available, &counts->occupied, &counts->stale, &counts->missing, &counts->claimable};
	const int64 numbers[] = {seconds_of(unix_now_us() - request->recovery_us, false), request->buckets};
	const redisReply *reply;
	SweepBucketResult result;

	memset(counts, 0, sizeof(*counts));
	result = run_script(MAINTAIN_SCRIPT, request, numbers, lengthof(numbers), REDIS_REPLY_ARRAY, &reply, error);
	if (result != BUCKET_OK)
		return result;
	if (reply->elements != lengthof(places))
		return strange_reply(error);
	for (size_t i = 0; i < lengthof(places); i++)
	{
		int64		number;

		if (!sweep_redis_read_number(reply->element[i], 0, PG_INT32_MAX, &number))
			return strange_reply(error);
		*places[i] = (int32) number;
	}
	sweep_redis_disconnect();
	return BUCKET_OK;
}

static SweepBucketResult
claim(const SweepBucketRequest *request, SweepBucketClaim *claim, SweepBucketError *error)
{
	SweepBucketResult result = sweep_redis_connect(request);
	const int64 numbers[] = {seconds_of(unix_now_us(), true), sweep_redis_last_moment(), request->wanted};
	const redisReply *reply;
	int64		bucket;

	if (result != BUCKET_OK)
		return with_failure(result, error);
	result = run_script(CLAIM_SCRIPT, request, numbers, lengthof(numbers), REDIS_REPLY_STRING, &reply, error);
	if (result != BUCKET_OK)
		return result;
	if (reply->len == 0)
	{
		sweep_redis_disconnect();
		return BUCKET_NONE;
	}
	if (!sweep_redis_read_number(reply, 0, LARGEST_BUCKET, &bucket))
		return strange_reply(error);
	claim->bucket = (int32) bucket;
	claim->token = numbers[0];
	return BUCKET_OK;
}

static SweepBucketResult
release(const SweepBucketRequest *request, const SweepBucketClaim *claim, SweepBucketError *error)
{
	const int64 numbers[] = {claim->bucket, claim->token, request->buckets};
	const redisReply *reply;
	SweepBucketResult result = run_script(RELEASE_SCRIPT, request, numbers, lengthof(numbers), REDIS_REPLY_INTEGER, &reply, error);

	if (result != BUCKET_OK)
		return result;
	result = reply->integer == 1 ? BUCKET_OK : BUCKET_NONE;
	sweep_redis_disconnect();
	return result;
}

static const SweepBucketStore store = {
	.version = SWEEP_BUCKET_STORE_VERSION,
	.name = "redis",
	.check = check,
	.maintain = maintain,
	.claim = claim,
	.release = release,
};

const SweepBucketStore *
sweep_redis_bucket_store(void)
{
	return &store;
}
