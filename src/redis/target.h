/*
 * target.h
 *		Where Redis is and how to log in there: the settings, and the files that they name.
 */
#ifndef SWEEP_REDIS_TARGET_H
#define SWEEP_REDIS_TARGET_H

#include "pure/redis_url.h"

/* Longer ones exist: tokens of clouds have up to 2 kB. */
#define SWEEP_REDIS_MAX_PASSWORD 4096

typedef struct SweepRedisTarget
{
	SweepRedisUrl url;
	char		place[384];		/* for messages: where it leads */
	int			timeout_ms;
	char		user[MAXPGPATH];	/* empty: Redis's own default user */
	char		password[SWEEP_REDIS_MAX_PASSWORD + 1]; /* empty: no authentication */
	char		ca_file[MAXPGPATH]; /* whom to trust; empty: as OpenSSL is configured */
	char		cert_file[MAXPGPATH];	/* who we are; empty: TLS does not say */
	char		key_file[MAXPGPATH];
} SweepRedisTarget;

/*
 * Reads all of it, anew for each connection. False, with the failure set, when something is missing or
 * cannot be used. Whoever has logged in wipes the password.
 */
extern bool sweep_redis_target_read(SweepRedisTarget *target);

#endif							/* SWEEP_REDIS_TARGET_H */
