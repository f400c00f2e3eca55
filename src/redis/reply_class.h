/*
 * reply_class.h
 *		The meaning of an error reply of Redis for the caller.
 *
 * Pure C without backend calls, so the unit tests need no server.
 */
#ifndef SWEEP_REDIS_REPLY_CLASS_H
#define SWEEP_REDIS_REPLY_CLASS_H

typedef enum SweepRedisClass
{
	REDIS_CLASS_RETRY,			/* temporary: loading, no memory, no master */
	REDIS_CLASS_CONFIGURATION,	/* comes again until a setting, or Redis, is changed */
	REDIS_CLASS_MESSAGE,		/* concerns this command, not the next one */
} SweepRedisClass;

/* The class of an error reply, which is given without its leading "-". */
extern SweepRedisClass sweep_redis_reply_class(const char *reply);

/* The hint for an error reply, a sentence; NULL if there is none. */
extern const char *sweep_redis_reply_hint(const char *reply);

#endif							/* SWEEP_REDIS_REPLY_CLASS_H */
