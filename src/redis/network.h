/*
 * network.h
 *		One connection to Redis, by hiredis, which waits with the latch of the process.
 *
 * No function raises or blocks. A function that fails has set the failure and closed the connection. A wait ends when
 * sweep_bucket_is_stopped() says so of the request.
 */
#ifndef SWEEP_REDIS_NETWORK_H
#define SWEEP_REDIS_NETWORK_H

#include "redis/failure.h"
#include "redis/hiredis_compat.h"
#include "redis/target.h"

#define SWEEP_REDIS_MOST_ARGUMENTS 16

typedef struct SweepRedisCommand
{
	int			count;
	const char *argument[SWEEP_REDIS_MOST_ARGUMENTS];
} SweepRedisCommand;

/* Connects, trying each address of the host, and begins TLS if the URL says so. The target must exist until the connection is closed. */
extern SweepBucketResult sweep_redis_network_open(const SweepRedisTarget *target, const SweepBucketRequest *request);

/* Whether there is a connection that Redis has not closed, without unexpected data. */
extern bool sweep_redis_network_is_usable(void);

/*
 * Sends a command and waits for its reply, which is valid until the next call of any function here. After a
 * failure it is not known whether Redis executed the command.
 */
extern SweepBucketResult sweep_redis_network_execute(const SweepRedisCommand *command, const SweepBucketRequest *request,
													 const redisReply **reply);

extern void sweep_redis_network_close(void);

#endif							/* SWEEP_REDIS_NETWORK_H */
