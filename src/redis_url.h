/*
 * redis_url.h
 *		The setting that says where Redis is: redis://user:password@host:port/db and its kin.
 *
 * Used by settings.c, which refuses what cannot be read and shows it without the password, and by the
 * module pg_sweep_redis, which connects. Pure C: no backend call, nothing raises, nothing is allocated.
 */
#ifndef SWEEP_REDIS_URL_H
#define SWEEP_REDIS_URL_H

#include <stdbool.h>
#include <stddef.h>

#define SWEEP_REDIS_DEFAULT_PORT 6379

/* The longest text that sweep_redis_url_describe() writes, with its end. */
#define SWEEP_REDIS_DESCRIPTION_SIZE 640

typedef struct SweepRedisUrl
{
	bool		tls;			/* rediss:// */
	char		path[108];		/* of the unix socket; empty: over TCP */
	char		host[256];		/* name or address, without the brackets of IPv6 */
	int			port;
	char		user[128];		/* empty: Redis's own default user */
	char		password[512];	/* empty: no authentication */
	int			database;
	char		ca_file[256];	/* whom to trust; empty: as OpenSSL is configured */
} SweepRedisUrl;

/*
 * Reads a URL. NULL when it could be read; otherwise what is wrong with it, a constant sentence that
 * holds no part of the URL, since any part could be the password.
 */
extern const char *sweep_redis_url_parse(const char *text, SweepRedisUrl *url);

/* Writes the URL with *** for the password; the place for it has SWEEP_REDIS_DESCRIPTION_SIZE bytes. */
extern void sweep_redis_url_describe(const SweepRedisUrl *url, char *text);

#endif							/* SWEEP_REDIS_URL_H */
