/*
 * target.c
 *		Where Redis is and how to log in there.
 *
 * Called by connection.c before it connects. The password is in a file, because the server shows and logs
 * settings. The file is opened once and examined by its descriptor, so that the file that is examined is the file
 * that is read. It is opened without blocking, because it could be a pipe. The rules for this file and for the key of
 * TLS are those that PostgreSQL has for its own key.
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/fd.h"
#include "utils/guc.h"

#include "redis/failure.h"
#include "redis/hiredis_compat.h"
#include "redis/target.h"

typedef enum Access
{
	ACCESS_ALL,					/* every user of the system may read the file: a certificate */
	ACCESS_SERVER,				/* only the server may: a secret */
} Access;

#define PASSWORD_FILE "pg_sweep.redis_password_file"

#ifndef SWEEP_REDIS_TLS
static const char tls_hint[] = "Build pg_sweep with hiredis 1.0 or later and its hiredis_ssl; this one was built with hiredis "
	CppAsString2(HIREDIS_MAJOR) "." CppAsString2(HIREDIS_MINOR) ".";
#endif
static const char password_hint[] = "The file must have the password in one line, and nothing else.";

static SweepBucketResult
read_where(SweepRedisTarget *target)
{
	const char *text = GetConfigOption("pg_sweep.redis_url", true, false);
	const char *timeout = GetConfigOption("pg_sweep.redis_timeout", true, false);
	const char *error;

	if (text == NULL || text[0] == '\0')
		return sweep_redis_fail(REDIS_CLASS_CONFIGURATION, NULL,
								"Set it to where Redis is, redis://host:port/db, and reload the configuration.",
								"pg_sweep.redis_url is not set");
	error = sweep_redis_url_parse(text, &target->url);
	if (error != NULL)
		return sweep_redis_fail(REDIS_CLASS_CONFIGURATION, error, NULL, "pg_sweep.redis_url cannot be read");
	target->timeout_us = timeout ? strtol(timeout, NULL, 10) * 1000 : 0;
	if (target->url.path[0])
		snprintf(target->place, sizeof(target->place), "\"%s\"", target->url.path);
	else
		snprintf(target->place, sizeof(target->place), "\"%s\", port %d", target->url.host, target->url.port);
	return BUCKET_OK;
}

static void
copy_setting(char *place, const char *name)
{
	const char *value = GetConfigOption(name, true, false);

	strlcpy(place, value ? value : "", MAXPGPATH);
}

static SweepBucketResult
refuse_file(const char *setting, const char *path, const char *reason, const char *hint)
{
	return sweep_redis_fail(REDIS_CLASS_CONFIGURATION, NULL, hint, "could not use %s \"%.300s\": %s", setting, path, reason);
}

/* The descriptor of the file, or -1. No code between open and close raises an error. */
static int
open_file(const char *setting, const char *path, Access access)
{
	int			fd = BasicOpenFile(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | PG_BINARY);
	const char *reason = NULL;
	const char *hint = "It must be a file that the user of the server can read.";
	struct stat file;

	if (fd < 0 || fstat(fd, &file) != 0)
		reason = strerror(errno);
	else if (!S_ISREG(file.st_mode))
		reason = "it is not a regular file";
	else if (access == ACCESS_SERVER && file.st_uid != geteuid() && file.st_uid != 0)
	{
		reason = "it belongs to another user";
		hint = "It must belong to the user of the server, or to root.";
	}
	else if (access == ACCESS_SERVER && (file.st_mode & (file.st_uid == geteuid() ? S_IRWXG | S_IRWXO : S_IWGRP | S_IXGRP | S_IRWXO)) != 0)
	{
		reason = "others have access to it";
		hint = "Its permissions must be 0600 or less, or 0640 or less where it belongs to root.";
	}
	if (reason == NULL)
		return fd;
	(void) refuse_file(setting, path, reason, hint);
	if (fd >= 0)
		(void) close(fd);
	return -1;
}

static bool
examine(const char *setting, const char *path, Access access)
{
	int			fd = path[0] ? open_file(setting, path, access) : -1;

	if (fd >= 0)
		(void) close(fd);
	return fd >= 0 || path[0] == '\0';
}

/* OpenSSL reads the files itself, but its error messages say little. */
static SweepBucketResult
read_tls(SweepRedisTarget *target)
{
#ifndef SWEEP_REDIS_TLS
	return sweep_redis_fail(REDIS_CLASS_CONFIGURATION, NULL, tls_hint,
							"pg_sweep.redis_url asks for TLS, but pg_sweep_redis was built without TLS");
#endif
	copy_setting(target->ca_file, "pg_sweep.redis_tls_ca_file");
	copy_setting(target->cert_file, "pg_sweep.redis_tls_cert_file");
	copy_setting(target->key_file, "pg_sweep.redis_tls_key_file");
	if ((target->cert_file[0] == '\0') != (target->key_file[0] == '\0'))
		return sweep_redis_fail(REDIS_CLASS_CONFIGURATION, NULL, "Set both, or neither.",
								"only one of pg_sweep.redis_tls_cert_file and pg_sweep.redis_tls_key_file is set");
	return examine("pg_sweep.redis_tls_ca_file", target->ca_file, ACCESS_ALL) &&
		examine("pg_sweep.redis_tls_cert_file", target->cert_file, ACCESS_ALL) &&
		examine("pg_sweep.redis_tls_key_file", target->key_file, ACCESS_SERVER) ? BUCKET_OK : BUCKET_FAILED;
}

/* One read() returns the whole of a regular file. The caller also wipes a refused password. */
static SweepBucketResult
read_password(SweepRedisTarget *target)
{
	char		path[MAXPGPATH];
	char	   *password = target->password;
	const char *reason;
	ssize_t		size;
	int			fd;

	copy_setting(target->user, "pg_sweep.redis_user");
	copy_setting(path, PASSWORD_FILE);
	if (path[0] == '\0' && target->user[0] == '\0')
		return BUCKET_OK;
	if (path[0] == '\0')
		return sweep_redis_fail(REDIS_CLASS_CONFIGURATION, NULL,
								"Set " PASSWORD_FILE " to a file with the password, and reload the configuration.",
								"pg_sweep.redis_user is set, but " PASSWORD_FILE " is not");
	fd = open_file(PASSWORD_FILE, path, ACCESS_SERVER);
	if (fd < 0)
		return BUCKET_FAILED;
	size = read(fd, password, sizeof(target->password));
	reason = size < 0 ? strerror(errno) : NULL;
	(void) close(fd);
	if (size < 0)
		return refuse_file(PASSWORD_FILE, path, reason, NULL);
	if (size > SWEEP_REDIS_MAX_PASSWORD)
		return refuse_file(PASSWORD_FILE, path, "it is longer than 4096 bytes", password_hint);
	if (size > 0 && password[size - 1] == '\n')
		size--;
	if (size > 0 && password[size - 1] == '\r')
		size--;
	password[size] = '\0';
	if (size == 0)
		return refuse_file(PASSWORD_FILE, path, "it is empty", password_hint);
	if (strlen(password) != (size_t) size)
		return refuse_file(PASSWORD_FILE, path, "it has a zero byte", password_hint);
	if (strchr(password, '\n') != NULL)
		return refuse_file(PASSWORD_FILE, path, "it has more than one line", password_hint);
	return BUCKET_OK;
}

SweepBucketResult
sweep_redis_target_read(SweepRedisTarget *target)
{
	SweepBucketResult result = read_where(target);

	if (result == BUCKET_OK && target->url.tls)
		result = read_tls(target);
	return result == BUCKET_OK ? read_password(target) : result;
}
