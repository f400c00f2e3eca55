/*
 * redis_url.h
 *		The address of Redis in the settings: redis://host:port/db and similar forms.
 *
 * Used by settings.c, which refuses invalid URLs, and by the module pg_sweep_redis, which connects. Pure C: no
 * backend call, no error is raised, no memory is allocated.
 */
#ifndef SWEEP_REDIS_URL_H
#define SWEEP_REDIS_URL_H

#include <stdbool.h>
#include <stddef.h>

#define SWEEP_REDIS_DEFAULT_PORT 6379

typedef struct SweepRedisUrl
{
	bool		tls;			/* rediss:// */
	char		path[108];		/* of the unix socket; empty: over TCP */
	char		host[256];		/* name or address, without the brackets of IPv6 */
	int			port;
	int			database;
} SweepRedisUrl;

/*
 * Reads a URL. NULL when it is valid; otherwise the error, a constant sentence without any part of the URL, because
 * each part could be a misplaced password.
 */
extern const char *sweep_redis_url_parse(const char *text, SweepRedisUrl *url);

/* Whether the text has a user or a password, even if it is no valid URL. */
extern bool sweep_redis_url_has_login(const char *text);

#endif							/* SWEEP_REDIS_URL_H */
