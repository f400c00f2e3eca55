/*
 * bucket_scripts.h
 *		The operations on buckets in Redis: Lua, each executed by Redis as one step.
 *
 * KEYS[1] is the set of available buckets, KEYS[2] the sorted set of occupied ones, scored with the second
 * in which they were claimed. Both are keys of GitLab, and every script leaves them as GitLab's workers would.
 * A script removes members that are not bucket numbers.
 */
#ifndef SWEEP_REDIS_BUCKET_SCRIPTS_H
#define SWEEP_REDIS_BUCKET_SCRIPTS_H

#define NUMBER_OF_BUCKET \
	"local function number(member)\n" \
	"  local value = tonumber(member)\n" \
	"  if value and value >= 0 and value < 1000000 and tostring(value) == member then return value end\n" \
	"end\n"

/* ARGV: bucket. Answers its score, or "" when it is not occupied. */
#define CHECK_SCRIPT "return redis.call('ZSCORE', KEYS[2], ARGV[1]) or ''\n"

/*
 * ARGV: score; end of the wait for the answer, in milliseconds of Redis's clock; the wanted bucket, or -1. Takes the
 * wanted bucket if it is available, otherwise any. Answers the bucket, or "" when none is available. After a
 * standstill Redis executes all commands that were sent to it; without the end of the wait each claim that was given
 * up would take a bucket.
 */
#define CLAIM_SCRIPT \
	NUMBER_OF_BUCKET \
	"local time = redis.call('TIME')\n" \
	"if time[1] * 1000 + math.floor(time[2] / 1000) > tonumber(ARGV[2]) then\n" \
	"  return redis.error_reply('TRYAGAIN the claim came too late')\n" \
	"end\n" \
	"local bucket = tonumber(ARGV[3]) >= 0 and redis.call('SREM', KEYS[1], ARGV[3]) == 1 and ARGV[3]\n" \
	"while not bucket do\n" \
	"  bucket = redis.call('SPOP', KEYS[1])\n" \
	"  if not bucket then break end\n" \
	"  bucket = number(bucket) and bucket\n" \
	"end\n" \
	"if not bucket then return '' end\n" \
	"redis.call('ZADD', KEYS[2], ARGV[1], bucket)\n" \
	"return bucket\n"

/* ARGV: bucket, score of the claim, number of buckets. Answers 1, or 0 when the claim is not the one given. */
#define RELEASE_SCRIPT \
	"local score = redis.call('ZSCORE', KEYS[2], ARGV[1])\n" \
	"if not score or tonumber(score) ~= tonumber(ARGV[2]) then return 0 end\n" \
	"redis.call('ZREM', KEYS[2], ARGV[1])\n" \
	"if tonumber(ARGV[1]) < tonumber(ARGV[3]) then redis.call('SADD', KEYS[1], ARGV[1]) end\n" \
	"return 1\n"

/*
 * ARGV: score up to which a claim is stale, number of buckets. Answers available, occupied, stale, missing and
 * claimable, as in SweepBucketCounts.
 */
#define MAINTAIN_SCRIPT \
	NUMBER_OF_BUCKET \
	"local buckets = tonumber(ARGV[2])\n" \
	"local stale = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', ARGV[1])\n" \
	"for _, bucket in ipairs(stale) do\n" \
	"  redis.call('ZREM', KEYS[2], bucket)\n" \
	"  redis.call('SADD', KEYS[1], bucket)\n" \
	"end\n" \
	"local available = redis.call('SMEMBERS', KEYS[1])\n" \
	"local occupied = redis.call('ZRANGE', KEYS[2], 0, -1)\n" \
	"local present = {}\n" \
	"for _, bucket in ipairs(occupied) do present[bucket] = true end\n" \
	"for _, bucket in ipairs(available) do\n" \
	"  present[bucket] = true\n" \
	"  local value = number(bucket)\n" \
	"  if not value or value >= buckets then redis.call('SREM', KEYS[1], bucket) end\n" \
	"end\n" \
	"local missing = 0\n" \
	"for value = 0, buckets - 1 do\n" \
	"  if not present[tostring(value)] then\n" \
	"    redis.call('SADD', KEYS[1], tostring(value))\n" \
	"    missing = missing + 1\n" \
	"  end\n" \
	"end\n" \
	"return {#available, #occupied, #stale, missing, redis.call('SCARD', KEYS[1])}\n"

#endif							/* SWEEP_REDIS_BUCKET_SCRIPTS_H */
