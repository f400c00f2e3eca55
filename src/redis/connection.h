/*
 * connection.h
 *		The connection to the Redis of pg_sweep.redis_url: one command, one reply.
 */
#ifndef SWEEP_REDIS_CONNECTION_H
#define SWEEP_REDIS_CONNECTION_H

#include "redis/failure.h"
#include "redis/hiredis_compat.h"

#define SWEEP_REDIS_MOST_ARGUMENTS 16

/* Asked whether to go on waiting. */
typedef struct SweepRedisStop
{
	bool		(*is_stopped) (const void *arg);
	const void *arg;
} SweepRedisStop;

typedef struct SweepRedisCommand
{
	int			count;
	const char *argument[SWEEP_REDIS_MOST_ARGUMENTS];
} SweepRedisCommand;

/*
 * Connects if there is no connection, and logs in. After REDIS_FAILED and REDIS_STOPPED there is none any
 * more.
 */
extern SweepRedisOutcome sweep_redis_connect(const SweepRedisStop *stop);

/*
 * Sends one command and waits for its reply, which is valid until the next call of any function here. If
 * it does not come, nobody knows whether the command was executed.
 */
extern SweepRedisOutcome sweep_redis_execute(const SweepRedisCommand *command, const SweepRedisStop *stop, const redisReply **reply);

/*
 * The moment, on the clock of Redis and in milliseconds, when our wait for a command that is sent now will
 * be over. A script that sees that it is later must do nothing: nobody is waiting for it any more.
 */
extern int64 sweep_redis_last_moment(void);

extern void sweep_redis_disconnect(void);

/* Whether the reply is a whole number within these limits, as an integer or as text, and which. */
extern bool sweep_redis_read_number(const redisReply *reply, int64 least, int64 most, int64 *number);

#endif							/* SWEEP_REDIS_CONNECTION_H */
