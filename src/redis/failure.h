/*
 * failure.h
 *		The last failure of this module; cleans text from outside.
 */
#ifndef SWEEP_REDIS_FAILURE_H
#define SWEEP_REDIS_FAILURE_H

#include "bucket/store.h"
#include "redis/reply_class.h"

/* The last failure, in static memory. No text of it holds a password. */
extern const SweepBucketError *sweep_redis_failure(void);

/*
 * Sets the failure, and returns BUCKET_FAILED. The arguments of the format may come from outside: a reply, a file, the
 * operating system. The message is cut if it is too long, and valid in the encoding of the database.
 */
extern SweepBucketResult sweep_redis_fail(SweepRedisClass class, const char *detail, const char *hint, const char *format,...) pg_attribute_printf(4, 5);

/*
 * Replaces in place, by a question mark, each control character and each byte that is invalid in the encoding of the
 * database.
 */
extern void sweep_redis_clean_text(char *text, size_t length);

#endif							/* SWEEP_REDIS_FAILURE_H */
