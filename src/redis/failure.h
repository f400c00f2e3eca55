/*
 * failure.h
 *		Why something with Redis did not work, and text from outside that is made fit to be shown.
 */
#ifndef SWEEP_REDIS_FAILURE_H
#define SWEEP_REDIS_FAILURE_H

#include "redis/reply_class.h"

/* What became of a command. */
typedef enum SweepRedisOutcome
{
	REDIS_REPLIED,				/* and it is no error */
	REDIS_STOPPED,				/* given up because somebody wants us to stop */
	REDIS_FAILED,				/* see the failure */
} SweepRedisOutcome;

/* Constant places, no memory of anybody: no text ever holds a password. */
typedef struct SweepRedisFailure
{
	SweepRedisClass class;
	char		message[512];
	const char *detail;			/* a constant; NULL = none */
	const char *hint;			/* a constant; NULL = none */
} SweepRedisFailure;

/* The last one. */
extern const SweepRedisFailure *sweep_redis_failure(void);

/*
 * Sets it, and answers REDIS_FAILED. What the format is filled with may come from anywhere: a reply, a
 * file, the operating system. The message is cut where it is too long, and valid in the encoding of the
 * database.
 */
extern SweepRedisOutcome sweep_redis_fail(SweepRedisClass class, const char *detail, const char *hint, const char *format,...) pg_attribute_printf(4, 5);

/*
 * Replaces, in place, each byte that is a control character or no part of a character of the database's
 * encoding by a question mark.
 */
extern void sweep_redis_clean_text(char *text, size_t length);

#endif							/* SWEEP_REDIS_FAILURE_H */
