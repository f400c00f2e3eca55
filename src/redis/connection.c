/*
 * connection.c
 *		Logs in to Redis, and executes commands there.
 *
 * Called by bucket_store.c. No command is tried twice: without a reply it may have been executed, and only the caller
 * knows whether it may be repeated. If Redis has closed the connection since the last command, a new one is made
 * before the next command. No function raises an error.
 */
#include "postgres.h"

#include "base/clock.h"
#include "redis/connection.h"

/* End of the year 9999, in seconds: a later time is not accepted. */
#define LATEST_SECOND INT64CONST(253402300799)

typedef struct Connection
{
	SweepRedisTarget target;
	bool		open;			/* logged in, and no reply is expected; false during a wait, which a longjmp may leave */
	int64		redis_ms;		/* clock of Redis ... */
	int64		redis_read_us;	/* ... when our monotonic clock was this */
} Connection;

static Connection connection;

/* Sets the failure for an error reply. */
static SweepBucketResult
refused(const char *what, const char *reply)
{
	return sweep_redis_fail(sweep_redis_reply_class(reply), NULL, sweep_redis_reply_hint(reply),
							"Redis at %s refused %s: %s", connection.target.place, what, reply);
}

/* Only the code of an error reply is shown, because the reply to an unknown command repeats the command with the password. */
static SweepBucketResult
authenticate(const SweepBucketRequest *request)
{
	SweepRedisCommand command = {2, {"AUTH", connection.target.password}};
	const redisReply *reply;
	SweepBucketResult result;

	if (connection.target.user[0])
		command = (SweepRedisCommand) {3, {"AUTH", connection.target.user, connection.target.password}};
	result = sweep_redis_network_execute(&command, request, &reply);
	if (result != BUCKET_OK || reply->type != REDIS_REPLY_ERROR)
		return result;
	return sweep_redis_fail(sweep_redis_reply_class(reply->str), NULL, sweep_redis_reply_hint(reply->str),
							"Redis at %s refused user or password: %.*s", connection.target.place,
							(int) Min(strcspn(reply->str, " "), 32), reply->str);
}

/* Executes a command; an error reply is a failure. */
static SweepBucketResult
ask(const SweepRedisCommand *command, const char *what, const SweepBucketRequest *request, const redisReply **reply)
{
	SweepBucketResult result = sweep_redis_network_execute(command, request, reply);

	if (result == BUCKET_OK && (*reply)->type == REDIS_REPLY_ERROR)
		result = refused(what, (*reply)->str);
	return result;
}

static SweepBucketResult
read_clock(const SweepBucketRequest *request)
{
	static const SweepRedisCommand command = {1, {"TIME"}};
	const redisReply *reply;
	SweepBucketResult result = ask(&command, "to tell its time", request, &reply);
	int64		seconds;
	int64		microseconds;

	if (result != BUCKET_OK)
		return result;
	if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
		!sweep_redis_read_number(reply->element[0], 1, LATEST_SECOND, &seconds) ||
		!sweep_redis_read_number(reply->element[1], 0, 999999, &microseconds))
		return refused("to tell its time", "the reply is not one of Redis");
	connection.redis_ms = seconds * 1000 + microseconds / 1000;
	connection.redis_read_us = sweep_monotonic_us();
	return BUCKET_OK;
}

static SweepBucketResult
log_in(const SweepBucketRequest *request)
{
	SweepBucketResult result = BUCKET_OK;

	if (connection.target.password[0])
		result = authenticate(request);
	explicit_bzero(connection.target.password, sizeof(connection.target.password));
	if (result == BUCKET_OK && connection.target.url.database != 0)
	{
		char		number[16];
		SweepRedisCommand command = {2, {"SELECT", number}};
		const redisReply *reply;

		snprintf(number, sizeof(number), "%d", connection.target.url.database);
		result = ask(&command, "to select the database", request, &reply);
	}
	if (result == BUCKET_OK)
		result = read_clock(request);
	return result;
}

SweepBucketResult
sweep_redis_connect(const SweepBucketRequest *request)
{
	SweepBucketResult result;

	if (connection.open && sweep_redis_network_is_usable())
		return BUCKET_OK;
	sweep_redis_disconnect();
	result = sweep_redis_target_read(&connection.target);
	if (result == BUCKET_OK)
		result = sweep_redis_network_open(&connection.target, request);
	if (result == BUCKET_OK)
		result = log_in(request);
	connection.open = result == BUCKET_OK;
	if (result != BUCKET_OK)
		sweep_redis_disconnect();
	return result;
}

SweepBucketResult
sweep_redis_execute(const SweepRedisCommand *command, const SweepBucketRequest *request, const redisReply **reply)
{
	SweepBucketResult result = sweep_redis_connect(request);

	if (result == BUCKET_OK)
	{
		connection.open = false;
		result = ask(command, "a command", request, reply);
		connection.open = result == BUCKET_OK;
	}
	if (result != BUCKET_OK)
		sweep_redis_disconnect();
	return result;
}

int64
sweep_redis_last_moment(void)
{
	return connection.redis_ms + (sweep_monotonic_us() + connection.target.timeout_us - connection.redis_read_us) / 1000;
}

void
sweep_redis_disconnect(void)
{
	sweep_redis_network_close();
	explicit_bzero(&connection, sizeof(connection));
}

bool
sweep_redis_read_number(const redisReply *reply, int64 least, int64 most, int64 *number)
{
	char	   *end;

	if (reply->type == REDIS_REPLY_INTEGER)
		*number = reply->integer;
	else if (reply->type == REDIS_REPLY_STRING && reply->len > 0 && reply->str[0] >= '0' && reply->str[0] <= '9')
	{
		errno = 0;
		*number = strtoll(reply->str, &end, 10);
		if (errno != 0 || end != reply->str + reply->len)
			return false;
	}
	else
		return false;
	return *number >= least && *number <= most;
}
