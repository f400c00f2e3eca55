/*
 * target.h
 *		Where Redis is and how to log in there: the settings, and the files that they name.
 */
#ifndef SWEEP_REDIS_TARGET_H
#define SWEEP_REDIS_TARGET_H

#include "pure/redis_url.h"
#include "redis/failure.h"

/* Longest password, in bytes; tokens of clouds have up to 2 kB. */
#define SWEEP_REDIS_MAX_PASSWORD 4096

typedef struct SweepRedisTarget
{
	SweepRedisUrl url;
	char		place[384];		/* host and port, or path, for messages */
	int64		timeout_us;
	char		user[MAXPGPATH];	/* empty: Redis's own default user */
	char		password[SWEEP_REDIS_MAX_PASSWORD + 1]; /* empty: no authentication */
	char		ca_file[MAXPGPATH]; /* certificates to trust; empty: as OpenSSL is configured */
	char		cert_file[MAXPGPATH];	/* certificate to show; empty: none */
	char		key_file[MAXPGPATH];
} SweepRedisTarget;

/*
 * Reads settings and files, anew for each connection. BUCKET_FAILED when something is missing or cannot be used. The caller
 * wipes the password, also after a failure.
 */
extern SweepBucketResult sweep_redis_target_read(SweepRedisTarget *target);

#endif							/* SWEEP_REDIS_TARGET_H */
