/*
 * reply_class.h
 *		What an error reply of Redis means for whoever asked.
 *
 * Pure C: no backend call, so each reply is tested without a server.
 */
#ifndef SWEEP_REDIS_REPLY_CLASS_H
#define SWEEP_REDIS_REPLY_CLASS_H

typedef enum SweepRedisClass
{
	REDIS_CLASS_RETRY,			/* passes by itself: loading, no memory, no master */
	REDIS_CLASS_CONFIGURATION,	/* comes again until somebody changes something */
	REDIS_CLASS_MESSAGE,		/* concerns what was sent, not the next thing to be sent */
} SweepRedisClass;

/* The class of an error reply, as Redis sent it without the leading "-". */
extern SweepRedisClass sweep_redis_reply_class(const char *reply);

/* What to do about it, a sentence; NULL when there is nothing to say. */
extern const char *sweep_redis_reply_hint(const char *reply);

#endif							/* SWEEP_REDIS_REPLY_CLASS_H */
