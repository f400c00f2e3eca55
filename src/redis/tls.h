/*
 * tls.h
 *		The session of OpenSSL that hiredis_ssl uses for TLS to Redis, and the reason why TLS failed.
 */
#ifndef SWEEP_REDIS_TLS_H
#define SWEEP_REDIS_TLS_H

#include "redis/hiredis_compat.h"
#include "redis/target.h"

/*
 * Begins TLS on a connection: NULL, or the reason why a setting or file cannot be used. hiredis negotiates when it reads, and
 * reports other failures.
 */
extern const char *sweep_redis_tls_begin(redisContext *context, const SweepRedisTarget *target);

#ifdef SWEEP_REDIS_TLS

/* OpenSSL has one error queue per process, which must be empty before each call of hiredis. */
extern void sweep_redis_tls_clear_errors(void);

/* Whether TLS was begun and its negotiation is not complete. */
extern bool sweep_redis_tls_is_negotiating(void);

/* Why a connection failed: the reason of TLS if there is one, otherwise the other reason. Sets the class if a certificate is not accepted. */
extern const char *sweep_redis_tls_reason(const char *other, SweepRedisClass *class);

extern void sweep_redis_tls_end(void);

#else							/* target.c refuses rediss:// */

#define sweep_redis_tls_clear_errors() ((void) 0)
#define sweep_redis_tls_is_negotiating() false
#define sweep_redis_tls_reason(other, class) (other)
#define sweep_redis_tls_end() ((void) 0)

#endif

#endif							/* SWEEP_REDIS_TLS_H */
