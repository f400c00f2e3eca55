/*
 * redis_url_test.c
 *	  What is a URL of Redis, what is none, and that no password is ever shown.
 */
#include "check.h"
#include "redis_url.h"

/* The URL is read, and described so. */
static SweepRedisUrl
accept(const char *text, const char *description)
{
	SweepRedisUrl url;
	char		found[SWEEP_REDIS_DESCRIPTION_SIZE];
	const char *error = sweep_redis_url_parse(text, &url);

	check_text(error, NULL, text);
	sweep_redis_url_describe(&url, found);
	check_text(found, description, "  and described");
	return url;
}

static void
reject(const char *text, const char *error)
{
	SweepRedisUrl url;

	check_text(sweep_redis_url_parse(text, &url), error, text);
}

static const char host_missing[] = "The host is missing.";
static const char bad_port[] = "The port must be a number between 1 and 65535.";
static const char bad_database[] = "The number of the database must be between 0 and 65535.";
static const char bad_password[] = "The password is too long or not well-formed.";
static const char bad_scheme[] = "It must begin with redis://, rediss:// or unix://.";
static const char bad_path[] = "The path of a unix socket must begin with a slash.";
static const char bad_parameter[] = "The parameters that it may have are db and ca_file.";

static void
test_tcp(void)
{
	SweepRedisUrl url;

	url = accept("redis://localhost", "redis://localhost:6379/0");
	check_number(url.tls, false, "without TLS");
	check_text(url.password, "", "without a password");
	url = accept("redis://u:p@h:1234/5", "redis://u:***@h:1234/5");
	check_text(url.user, "u", "user");
	check_text(url.password, "p", "password");
	check_text(url.host, "h", "host");
	check_number(url.port, 1234, "port");
	check_number(url.database, 5, "database");
	url = accept("redis://:p@h/", "redis://:***@h:6379/0");
	check_text(url.user, "", "no user");
	url = accept("redis://p@h", "redis://:***@h:6379/0");
	check_text(url.password, "p", "a user alone is the password");
	url = accept("redis://u:a%40b%2Fc%25:@h", "redis://u:***@h:6379/0");
	check_text(url.password, "a@b/c%:", "decoded, with a colon in it");
	url = accept("redis://u:a@b@h", "redis://u:***@h:6379/0");
	check_text(url.password, "a@b", "up to the last @");
	url = accept("redis://10.0.0.1:65535/65535", "redis://10.0.0.1:65535/65535");
	url = accept("redis://[::1]:7/2", "redis://[::1]:7/2");
	check_text(url.host, "::1", "IPv6 without brackets");
	(void) accept("redis://u:p@[fe80::1]", "redis://u:***@[fe80::1]:6379/0");
	(void) accept("redis://h?db=3", "redis://h:6379/3");
	url = accept("rediss://u:p@h:6380/1?ca_file=/etc/ca%20dir/ca.pem", "rediss://u:***@h:6380/1");
	check_number(url.tls, true, "with TLS");
	check_text(url.ca_file, "/etc/ca dir/ca.pem", "ca_file");
	check_text(url.path, "", "no socket");
}

static void
test_unix(void)
{
	SweepRedisUrl url;

	url = accept("unix:///run/redis.sock", "unix:///run/redis.sock?db=0");
	check_text(url.path, "/run/redis.sock", "path");
	url = accept("unix:/run/redis.sock", "unix:///run/redis.sock?db=0");
	url = accept("unix://u:p@/run/r%23.sock?db=4", "unix://u:***@/run/r#.sock?db=4");
	check_text(url.path, "/run/r#.sock", "decoded path");
	check_text(url.password, "p", "password");
	check_number(url.database, 4, "database");
}

static void
test_errors(void)
{
	reject("", bad_scheme);
	reject("localhost:6379", bad_scheme);
	reject("REDIS://h", bad_scheme);
	reject("http://h", bad_scheme);
	reject("redis:/h", bad_scheme);
	reject("redis://", host_missing);
	reject("redis:///1", host_missing);
	reject("redis://u:p@", host_missing);
	reject("redis://[]", host_missing);
	reject("redis://:6379", host_missing);
	reject("redis://h:", bad_port);
	reject("redis://h:0", bad_port);
	reject("redis://h:65536", bad_port);
	reject("redis://h:+1", bad_port);
	reject("redis://h:1a", bad_port);
	reject("redis://h:1:2", bad_port);
	reject("redis://[::1]x", bad_port);
	reject("redis://[::1]6379", bad_port);
	reject("redis://[::1", "The address has a [ without a ].");
	reject("redis://[::1/0]", "The address has a [ without a ].");
	reject("redis://h/x", bad_database);
	reject("redis://h/-1", bad_database);
	reject("redis://h/65536", bad_database);
	reject("redis://h/1/2", bad_database);
	reject("redis://h?db=", bad_database);
	reject("redis://h?db", bad_database);
	reject("redis://h?password=x", bad_parameter);
	reject("redis://h?", bad_parameter);
	reject("redis://h?db=1&", bad_parameter);
	reject("redis://h#x", "It must not have a fragment.");
	reject("redis://u:@h", "There is a user but no password.");
	reject("redis://u:%@h", bad_password);
	reject("redis://u:%4@h", bad_password);
	reject("redis://u:%4g@h", bad_password);
	reject("redis://u:%00@h", bad_password);
	reject("redis://u:a%0Ab@h", bad_password);
	reject("redis://%0au:p@h", "The user is too long or not well-formed.");
	reject("unix:", bad_path);
	reject("unix:/", bad_path);
	reject("unix://", bad_path);
	reject("unix://host/path", bad_path);
	reject("unix:relative", bad_path);
	reject("unix:/a%zz", "The path of the unix socket is too long or not well-formed.");
}

/* What does not fit is refused at the first byte too many, and not cut off. */
static void
test_lengths(void)
{
	char		text[1024];
	char		long_text[600];
	SweepRedisUrl url;

	memset(long_text, 'a', sizeof(long_text));
	snprintf(text, sizeof(text), "redis://:%.511s@h", long_text);
	check_text(sweep_redis_url_parse(text, &url), NULL, "the longest password");
	check_number((long long) strlen(url.password), 511, "  is complete");
	snprintf(text, sizeof(text), "redis://:%.512s@h", long_text);
	check_text(sweep_redis_url_parse(text, &url), bad_password, "one byte more");
	snprintf(text, sizeof(text), "redis://%.255s", long_text);
	check_text(sweep_redis_url_parse(text, &url), NULL, "the longest host");
	snprintf(text, sizeof(text), "redis://%.256s", long_text);
	check_text(sweep_redis_url_parse(text, &url), "The host is too long or not well-formed.", "one byte more");
	snprintf(text, sizeof(text), "unix:/%.106s", long_text);
	check_text(sweep_redis_url_parse(text, &url), NULL, "the longest path");
	snprintf(text, sizeof(text), "unix:/%.107s", long_text);
	check_text(sweep_redis_url_parse(text, &url), "The path of the unix socket is too long or not well-formed.", "one byte more");
}

/* No prefix of a URL shows anything of its password, as an error or as a description. */
static void
test_secrecy(void)
{
	static const char whole[] = "rediss://someone:geheim@host:6379/1?ca_file=/x";
	char		text[sizeof(whole)];
	int			shown = 0;

	for (size_t length = 0; length < sizeof(whole); length++)
	{
		SweepRedisUrl url;
		char		description[SWEEP_REDIS_DESCRIPTION_SIZE];
		const char *error;

		memcpy(text, whole, length);
		text[length] = '\0';
		error = sweep_redis_url_parse(text, &url);
		sweep_redis_url_describe(&url, description);
		/* before its @ the text is a host with a port, or no URL at all */
		if ((error != NULL && strstr(error, "geh") != NULL) || strstr(description, "geh") != NULL)
			shown++;
	}
	check_number(shown, 0, "no part of a password is shown");
}

int
main(void)
{
	test_tcp();
	test_unix();
	test_errors();
	test_lengths();
	test_secrecy();
	return check_finish();
}
