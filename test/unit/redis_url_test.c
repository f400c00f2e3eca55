/*
 * redis_url_test.c
 *	  What is a URL of Redis, what is none, and that none has a password.
 */
#include "check.h"
#include "pure/redis_url.h"

static SweepRedisUrl
accept(const char *text)
{
	SweepRedisUrl url;

	check_text(sweep_redis_url_parse(text, &url), NULL, text);
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
static const char bad_host[] = "The host is too long or not well-formed.";
static const char has_login[] = "It must have neither a user nor a password.";
static const char bad_scheme[] = "It must begin with redis://, rediss:// or unix://.";
static const char bad_path[] = "The path of a unix socket must begin with a slash.";
static const char bad_parameter[] = "The only parameter that it may have is db.";

static void
test_tcp(void)
{
	SweepRedisUrl url;

	url = accept("redis://localhost");
	check_number(url.tls, false, "without TLS");
	check_text(url.host, "localhost", "host");
	check_number(url.port, SWEEP_REDIS_DEFAULT_PORT, "port");
	check_number(url.database, 0, "database");
	check_text(url.path, "", "no socket");
	url = accept("redis://h%2dx:1234/5");
	check_text(url.host, "h-x", "decoded host");
	check_number(url.port, 1234, "port");
	check_number(url.database, 5, "database");
	url = accept("redis://10.0.0.1:65535/65535");
	check_text(url.host, "10.0.0.1", "address");
	check_number(url.port, 65535, "largest port");
	check_number(url.database, 65535, "largest database");
	url = accept("redis://[::1]:7/2");
	check_text(url.host, "::1", "IPv6 without brackets");
	check_number(url.port, 7, "port");
	url = accept("redis://h/?db=3");
	check_number(url.database, 3, "database as a parameter");
	url = accept("redis://h?db=3");
	check_number(url.database, 3, "without the slash");
	url = accept("rediss://h:6380/1");
	check_number(url.tls, true, "with TLS");
}

static void
test_unix(void)
{
	SweepRedisUrl url;

	url = accept("unix:///run/redis.sock");
	check_text(url.path, "/run/redis.sock", "path");
	check_number(url.database, 0, "database");
	url = accept("unix:/run/redis.sock");
	check_text(url.path, "/run/redis.sock", "path after one slash");
	url = accept("unix:///run/r%23%40.sock?db=4");
	check_text(url.path, "/run/r#@.sock", "decoded path");
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
	reject("redis://h?ca_file=/x", bad_parameter);
	reject("redis://%", bad_host);
	reject("redis://h%4", bad_host);
	reject("redis://h%4g", bad_host);
	reject("redis://h%00", bad_host);
	reject("redis://h%0Ax", bad_host);
	reject("redis://geheim%40h", bad_host);
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
	char		long_text[300];
	SweepRedisUrl url;

	memset(long_text, 'a', sizeof(long_text));
	snprintf(text, sizeof(text), "redis://%.255s", long_text);
	check_text(sweep_redis_url_parse(text, &url), NULL, "the longest host");
	snprintf(text, sizeof(text), "redis://%.256s", long_text);
	check_text(sweep_redis_url_parse(text, &url), bad_host, "one byte more");
	snprintf(text, sizeof(text), "unix:/%.106s", long_text);
	check_text(sweep_redis_url_parse(text, &url), NULL, "the longest path");
	snprintf(text, sizeof(text), "unix:/%.107s", long_text);
	check_text(sweep_redis_url_parse(text, &url), "The path of the unix socket is too long or not well-formed.", "one byte more");
}

/* A user or a password is found wherever it stands, also where the URL is mistyped around it. */
static void
test_login(void)
{
	static const char *const texts[] = {
		"redis://u:geheim@h", "redis://:geheim@h", "redis://geheim@h", "redis://u@h", "redis://u:@h", "redis://@h",
		"redis://:ge/heim@h", "redis://:1/2?x#@h", "redis:/:geheim@h", "redis:geheim@h", "geheim@h", "REDIS://:geheim@h",
		"unix://:geheim@/run/s", "unix:/:geheim@/run/s", "unix:///run/s?db=0@geheim", "rediss://h:1/0?password=geheim@", "@",
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
	{
		reject(texts[i], has_login);
		check_number(sweep_redis_url_has_login(texts[i]), true, "  and known as such");
	}
	check_number(sweep_redis_url_has_login("redis://h:1/0?x"), false, "neither user nor password");
}

/* No prefix of a URL shows anything of its password as an error. */
static void
test_secrecy(void)
{
	static const char whole[] = "rediss://someone:geheim@host:6379/1?db=1";
	char		text[sizeof(whole)];
	int			shown = 0;

	for (size_t length = 0; length < sizeof(whole); length++)
	{
		SweepRedisUrl url;
		const char *error;

		memcpy(text, whole, length);
		text[length] = '\0';
		error = sweep_redis_url_parse(text, &url);
		if (error != NULL && strstr(error, "geh") != NULL)
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
	test_login();
	test_secrecy();
	return check_finish();
}
