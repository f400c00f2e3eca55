/*
 * socket.h
 *		A socket to Redis that never blocks longer than it was told, with or without TLS.
 */
#ifndef SWEEP_REDIS_SOCKET_H
#define SWEEP_REDIS_SOCKET_H

#include "redis/target.h"

/* What became of an attempt to talk. */
typedef enum SweepRedisProgress
{
	PROGRESS_DONE,
	PROGRESS_STOPPED,			/* somebody wants us to stop */
	PROGRESS_LATE,				/* the deadline has passed */
	PROGRESS_BROKEN,			/* the other side is not there, or not what it should be */
	PROGRESS_REFUSED,			/* it is no use to try again: see the reason */
} SweepRedisProgress;

/* How long to wait, and whom to ask whether to go on. */
typedef struct SweepRedisDeadline
{
	int64		deadline_us;	/* monotonic */
	bool		(*is_stopped) (const void *arg);	/* asked at each wake-up and five times a second */
	const void *arg;
} SweepRedisDeadline;

/* Microseconds of a clock that nobody sets. */
extern int64 sweep_redis_now(void);

/* Why the last operation was not DONE; a sentence without capital and period. */
extern const char *sweep_redis_socket_reason(void);

/* Connects, trying each address of the host, and speaks TLS when the URL says so. One socket per process. */
extern SweepRedisProgress sweep_redis_socket_open(const SweepRedisTarget *target, const SweepRedisDeadline *deadline);

/* Whether there is a socket, and the other side has neither closed it nor said something unasked. */
extern bool sweep_redis_socket_is_usable(void);

extern SweepRedisProgress sweep_redis_socket_write(const char *data, size_t size, const SweepRedisDeadline *deadline);

/* Reads what there is, at least one byte. */
extern SweepRedisProgress sweep_redis_socket_read(char *data, size_t size, size_t *length, const SweepRedisDeadline *deadline);

extern void sweep_redis_socket_close(void);

#endif							/* SWEEP_REDIS_SOCKET_H */
