/*
 * bucket_store.c
 *		The buckets of divided jobs in Redis, in the keys and with the meaning of GitLab's own workers.
 *
 * Called through the table of functions by whoever runs a share or dispatches some, never within a
 * transaction; bucket/store.h has the contract. Each operation is one script, hence atomic.
 *
 * The fence of a claim is its score, the second in which it was made. It is rounded up, and the moment
 * up to which claims are stale is rounded down: so no claim is recovered before its time has passed, which
 * is what its holder counts on (it stops by itself when that much time has passed on its own clock). Two claims
 * of one bucket have the same score only if the first was given back by its holder, who then asks no more.
 *
 * Redis takes no part in the commit of a batch. What happens to a claim after the last look at it and at the
 * clock is seen only before the next batch: doc/operations.md says what the fence leaves open.
 *
 * Nothing is tried twice: a claim or release whose reply was lost may have been executed, and recovery
 * deals with what it may have left. Between runs no connection is kept.
 */
#include "postgres.h"

#include "datatype/timestamp.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "redis/bucket_scripts.h"
#include "redis/bucket_store.h"
#include "redis/connection.h"

#define KEY_SIZE 512

/* What the scripts take for a number of a bucket. */
#define LARGEST_BUCKET 999999

/* EVAL of one of the scripts, with the texts that it points to. */
typedef struct Script
{
	SweepRedisCommand command;
	char		available[KEY_SIZE];
	char		occupied[KEY_SIZE];
	char		numbers[3][24];
} Script;

static SweepBucketResult check(const SweepBucketRequest *request, const SweepBucketClaim *claim, SweepBucketError *error);
static SweepBucketResult maintain(const SweepBucketRequest *request, SweepBucketCounts *counts, SweepBucketError *error);
static SweepBucketResult claim(const SweepBucketRequest *request, SweepBucketClaim *claim, SweepBucketError *error);
static SweepBucketResult release(const SweepBucketRequest *request, const SweepBucketClaim *claim, SweepBucketError *error);
static bool begin_script(Script *script, const char *text, const SweepBucketRequest *request, SweepBucketError *error);
static void add_number(Script *script, int64 number);
static bool is_stopped(const void *request);
static SweepBucketResult result_of(SweepRedisOutcome outcome, SweepBucketError *error);
static SweepBucketResult strange_reply(SweepBucketError *error);
static int64 seconds_of(int64 unix_us, bool round_up);
static int64 unix_now_us(void);

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

static SweepBucketResult
check(const SweepBucketRequest *request, const SweepBucketClaim *claim, SweepBucketError *error)
{
	SweepRedisStop stop = {is_stopped, request};
	const redisReply *reply;
	SweepRedisOutcome outcome;
	Script		script = {0};

	if (!begin_script(&script, "", request, error))
		return BUCKET_FAILED;
	add_number(&script, claim->bucket);
	script.command = (SweepRedisCommand) {3, {"ZSCORE", script.occupied, script.numbers[0]}};
	outcome = sweep_redis_execute(&script.command, &stop, &reply);
	if (outcome != REDIS_REPLIED)
		return result_of(outcome, error);
	if (reply->type == REDIS_REPLY_NIL)
		return BUCKET_NONE;
	if (reply->type != REDIS_REPLY_STRING)
		return strange_reply(error);
	return strtod(reply->str, NULL) == (double) claim->token ? BUCKET_OK : BUCKET_NONE;
}

static SweepBucketResult
maintain(const SweepBucketRequest *request, SweepBucketCounts *counts, SweepBucketError *error)
{
	int32	   *places[] = {&counts->available, &counts->occupied, &counts->stale, &counts->missing, &counts->claimable};
	SweepRedisStop stop = {is_stopped, request};
	const redisReply *reply;
	SweepRedisOutcome outcome;
	Script		script = {0};

	memset(counts, 0, sizeof(*counts));
	if (!begin_script(&script, MAINTAIN_SCRIPT, request, error))
		return BUCKET_FAILED;
	add_number(&script, seconds_of(unix_now_us() - request->recovery_us, false));
	add_number(&script, request->buckets);
	outcome = sweep_redis_execute(&script.command, &stop, &reply);
	if (outcome != REDIS_REPLIED)
		return result_of(outcome, error);
	if (reply->type != REDIS_REPLY_ARRAY || reply->elements != lengthof(places))
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
	SweepRedisStop stop = {is_stopped, request};
	const redisReply *reply;
	SweepRedisOutcome outcome = sweep_redis_connect(&stop);
	Script		script = {0};
	int64		score = seconds_of(unix_now_us(), true);
	int64		bucket;

	if (outcome != REDIS_REPLIED)
		return result_of(outcome, error);
	if (!begin_script(&script, CLAIM_SCRIPT, request, error))
		return BUCKET_FAILED;
	add_number(&script, score);
	add_number(&script, sweep_redis_last_moment());
	add_number(&script, request->wanted);
	outcome = sweep_redis_execute(&script.command, &stop, &reply);
	if (outcome != REDIS_REPLIED)
		return result_of(outcome, error);
	if (reply->type != REDIS_REPLY_STRING)
		return strange_reply(error);
	if (reply->len == 0)
	{
		sweep_redis_disconnect();
		return BUCKET_NONE;
	}
	if (!sweep_redis_read_number(reply, 0, LARGEST_BUCKET, &bucket))
		return strange_reply(error);
	claim->bucket = (int32) bucket;
	claim->token = score;
	return BUCKET_OK;
}

static SweepBucketResult
release(const SweepBucketRequest *request, const SweepBucketClaim *claim, SweepBucketError *error)
{
	SweepRedisStop stop = {is_stopped, request};
	const redisReply *reply;
	SweepRedisOutcome outcome;
	SweepBucketResult result;
	Script		script = {0};

	if (!begin_script(&script, RELEASE_SCRIPT, request, error))
		return BUCKET_FAILED;
	add_number(&script, claim->bucket);
	add_number(&script, claim->token);
	add_number(&script, request->buckets);
	outcome = sweep_redis_execute(&script.command, &stop, &reply);
	if (outcome != REDIS_REPLIED)
		return result_of(outcome, error);
	if (reply->type != REDIS_REPLY_INTEGER)
		return strange_reply(error);
	result = reply->integer == 1 ? BUCKET_OK : BUCKET_NONE;
	sweep_redis_disconnect();
	return result;
}

/* EVAL with both keys; add_number() adds its arguments. False when the keys are too long. */
static bool
begin_script(Script *script, const char *text, const SweepBucketRequest *request, SweepBucketError *error)
{
	const char *prefix = GetConfigOption("pg_sweep.redis_key_prefix", true, false);
	int			length;

	length = snprintf(script->available, KEY_SIZE, "%s{%s}:available_buckets", prefix ? prefix : "", request->key);
	if (length < 0 || length >= KEY_SIZE)
	{
		memset(error, 0, sizeof(*error));
		error->sqlstate = ERRCODE_NAME_TOO_LONG;
		snprintf(error->message, sizeof(error->message), "the key of the buckets in Redis is too long");
		return false;
	}
	snprintf(script->occupied, KEY_SIZE, "%s{%s}:occupied_buckets", prefix ? prefix : "", request->key);
	script->command = (SweepRedisCommand) {5, {"EVAL", text, "2", script->available, script->occupied}};
	return true;
}

static void
add_number(Script *script, int64 number)
{
	int			nth = script->command.count - 5;

	snprintf(script->numbers[nth], sizeof(script->numbers[nth]), INT64_FORMAT, number);
	script->command.argument[script->command.count++] = script->numbers[nth];
}

static bool
is_stopped(const void *request)
{
	return sweep_bucket_is_stopped(request);
}

static SweepBucketResult
result_of(SweepRedisOutcome outcome, SweepBucketError *error)
{
	static const int sqlstates[] = {
		[REDIS_CLASS_RETRY] = ERRCODE_CONNECTION_EXCEPTION,
		[REDIS_CLASS_CONFIGURATION] = ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
		[REDIS_CLASS_MESSAGE] = ERRCODE_EXTERNAL_ROUTINE_EXCEPTION,
	};
	const SweepRedisFailure *failure = sweep_redis_failure();

	if (outcome == REDIS_STOPPED)
		return BUCKET_STOPPED;
	error->sqlstate = sqlstates[failure->class];
	strlcpy(error->message, failure->message, sizeof(error->message));
	strlcpy(error->detail, failure->detail ? failure->detail : "", sizeof(error->detail));
	strlcpy(error->hint, failure->hint ? failure->hint : "", sizeof(error->hint));
	return BUCKET_FAILED;
}

static SweepBucketResult
strange_reply(SweepBucketError *error)
{
	sweep_redis_disconnect();
	memset(error, 0, sizeof(*error));
	error->sqlstate = ERRCODE_PROTOCOL_VIOLATION;
	snprintf(error->message, sizeof(error->message), "Redis gave a reply of another kind than its script returns");
	return BUCKET_FAILED;
}

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
