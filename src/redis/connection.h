/*
 * connection.h
 *		The connection to the Redis of pg_sweep.redis_url, logged in: one command, one reply.
 */
#ifndef SWEEP_REDIS_CONNECTION_H
#define SWEEP_REDIS_CONNECTION_H

#include "redis/network.h"

/* Connects and logs in, unless there is a connection already. After BUCKET_FAILED and BUCKET_STOPPED there is no connection. */
extern SweepBucketResult sweep_redis_connect(const SweepBucketRequest *request);

/*
 * Connects if needed, sends one command and waits for its reply, which is valid until the next call of any
 * function here. If the reply does not come, it is not known whether Redis executed the command.
 */
extern SweepBucketResult sweep_redis_execute(const SweepRedisCommand *command, const SweepBucketRequest *request, const redisReply **reply);

/*
 * End of the wait for a command that is sent now, in milliseconds of the clock of Redis. A script that is executed
 * later must do nothing, because the caller no longer waits for its reply.
 */
extern int64 sweep_redis_last_moment(void);

extern void sweep_redis_disconnect(void);

/* Reads a whole number within these limits, which the reply has as an integer or as text; false if it has none. */
extern bool sweep_redis_read_number(const redisReply *reply, int64 least, int64 most, int64 *number);

#endif							/* SWEEP_REDIS_CONNECTION_H */
