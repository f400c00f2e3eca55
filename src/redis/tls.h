/*
 * tls.h
 *		TLS on the socket to Redis, or the statement that this build has none.
 *
 * The functions that transfer answer like read(2) and write(2): bytes, 0 at the end, or -1. With
 * -1, *wants is the event (WL_SOCKET_...) to wait for, or 0 when the connection is lost.
 */
#ifndef SWEEP_REDIS_TLS_H
#define SWEEP_REDIS_TLS_H

#include "redis/target.h"

/* Prepares TLS on a connected socket: NULL, or the reason why it cannot be. */
extern const char *sweep_redis_tls_begin(const SweepRedisTarget *target, int fd);

/* One step of the handshake: 1 when it is complete. */
extern int	sweep_redis_tls_handshake(uint32 *wants);

/* Why the handshake failed; and whether because of the certificate, which no other try will mend. */
extern const char *sweep_redis_tls_reason(void);
extern bool sweep_redis_tls_is_cert_rejected(void);

extern bool sweep_redis_tls_is_active(void);

/* Whether the other side has neither closed the connection nor sent anything to be read. */
extern bool sweep_redis_tls_is_quiet(void);
extern ssize_t sweep_redis_tls_write(const char *data, size_t size, uint32 *wants);
extern ssize_t sweep_redis_tls_read(char *data, size_t size, uint32 *wants);

/* Frees everything; before the socket is closed. */
extern void sweep_redis_tls_end(void);

#endif							/* SWEEP_REDIS_TLS_H */
