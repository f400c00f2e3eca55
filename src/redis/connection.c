/*
 * connection.c
 *		Speaks to Redis: connect, log in, one command and its reply at a time.
 *
 * Called by bucket_store.c. hiredis allocates with malloc, of which the server knows nothing. So whatever
 * comes from it hangs on the one static Connection: the command while it is written, the reader and the
 * reply until the next call. Nothing here raises, and should the wait ever be left by a longjmp, "busy" tells
 * the next call that the connection is of no use; ending the process closes and frees it all.
 *
 * Nothing is ever tried twice. A command whose reply did not come may have been executed, and only its
 * author knows whether it may be repeated. But a connection that the other side has closed in the meantime
 * is found before anything is sent, and replaced.
 *
 * A reply has a limit in bytes, in elements and in depth: hiredis 0.14 ends the process when there is no
 * memory, and 1.x frees nested replies by recursion.
 */
#include "postgres.h"

#include "utils/guc.h"

#include "connection.h"
#include "socket.h"

#define MAX_REPLY_BYTES (1024 * 1024)
#define MAX_REPLY_ELEMENTS 10000
#define MAX_REPLY_DEPTH 7

typedef struct Connection
{
	SweepRedisUrl url;
	char		place[384];		/* for messages: where it leads */
	bool		open;
	bool		busy;			/* a command is on its way */
	int			timeout_ms;
	redisReader *reader;
	redisReply *reply;
	char	   *request;		/* as hiredis wrote it */
	int64		redis_ms;		/* clock of Redis ... */
	int64		redis_read_us;	/* ... at this moment of ours */
} Connection;

static Connection connection;
static SweepRedisFailure failure;
static redisReplyObjectFunctions limited;
static void *(*create_array) (const redisReadTask *task, SweepRedisElements elements);

static bool read_settings(void);
static SweepRedisOutcome log_in(const SweepRedisStop *stop);
static SweepRedisOutcome authenticate(const SweepRedisStop *stop);
static SweepRedisOutcome read_clock(const SweepRedisStop *stop);
static bool create_reader(void);
static void *create_limited_array(const redisReadTask *task, SweepRedisElements elements);
static SweepRedisOutcome converse(const SweepRedisCommand *command, const SweepRedisStop *stop);
static SweepRedisProgress send_command(const SweepRedisCommand *command, const SweepRedisPatience *patience);
static SweepRedisProgress receive_reply(const SweepRedisPatience *patience);
static SweepRedisPatience patience_of(const SweepRedisStop *stop);
static SweepRedisOutcome fail(SweepRedisClass class, const char *message, const char *detail, const char *hint);
static SweepRedisOutcome fail_to_connect(SweepRedisProgress progress);
static SweepRedisOutcome refused(const char *what, const char *reply);

SweepRedisOutcome
sweep_redis_connect(const SweepRedisStop *stop)
{
	SweepRedisPatience patience;
	SweepRedisProgress progress;
	SweepRedisOutcome outcome;

	if (connection.open && !connection.busy && sweep_redis_socket_is_usable())
		return REDIS_REPLIED;
	sweep_redis_disconnect();
	if (!read_settings())
		return REDIS_FAILED;
	if (!create_reader())
		return fail(REDIS_CLASS_RETRY, "out of memory", "", NULL);
	patience = patience_of(stop);
	progress = sweep_redis_socket_open(&connection.url, &patience);
	if (progress != PROGRESS_DONE)
		return fail_to_connect(progress);
	outcome = log_in(stop);
	if (outcome != REDIS_REPLIED)
		sweep_redis_disconnect();
	else
		connection.open = true;
	return outcome;
}

SweepRedisOutcome
sweep_redis_execute(const SweepRedisCommand *command, const SweepRedisStop *stop, const redisReply **reply)
{
	SweepRedisOutcome outcome = sweep_redis_connect(stop);

	*reply = NULL;
	if (outcome != REDIS_REPLIED)
		return outcome;
	outcome = converse(command, stop);
	if (outcome != REDIS_REPLIED)
		return outcome;
	if (connection.reply->type == REDIS_REPLY_ERROR)
	{
		outcome = refused("a command", connection.reply->str);
		sweep_redis_disconnect();
		return outcome;
	}
	*reply = connection.reply;
	return REDIS_REPLIED;
}

int64
sweep_redis_last_moment(void)
{
	int64		end_us = sweep_redis_now() + (int64) connection.timeout_ms * 1000;

	return connection.redis_ms + (end_us - connection.redis_read_us) / 1000;
}

const SweepRedisFailure *
sweep_redis_failure(void)
{
	return &failure;
}

void
sweep_redis_disconnect(void)
{
	sweep_redis_socket_close();
	if (connection.request != NULL)
		redisFreeCommand(connection.request);
	if (connection.reply != NULL)
		freeReplyObject(connection.reply);
	if (connection.reader != NULL)
		redisReaderFree(connection.reader);
	explicit_bzero(&connection, sizeof(connection));
}

/* Reads the settings anew for each connection, so a reload is enough to move to another Redis. */
static bool
read_settings(void)
{
	const char *text = GetConfigOption("pg_sweep.redis_url", true, false);
	const char *timeout = GetConfigOption("pg_sweep.redis_timeout", true, false);
	const char *error;

	if (text == NULL || text[0] == '\0')
	{
		(void) fail(REDIS_CLASS_CONFIGURATION, "pg_sweep.redis_url is not set", "",
					"Set it to where Redis is, redis://host:port/db, and reload the configuration.");
		return false;
	}
	error = sweep_redis_url_parse(text, &connection.url);
	if (error != NULL)
	{
		(void) fail(REDIS_CLASS_CONFIGURATION, "pg_sweep.redis_url cannot be read", error, NULL);
		return false;
	}
	connection.timeout_ms = timeout ? (int) strtol(timeout, NULL, 10) : 0;
	if (connection.url.path[0])
		snprintf(connection.place, sizeof(connection.place), "\"%s\"", connection.url.path);
	else
		snprintf(connection.place, sizeof(connection.place), "\"%s\", port %d", connection.url.host, connection.url.port);
	return true;
}

static SweepRedisOutcome
log_in(const SweepRedisStop *stop)
{
	SweepRedisOutcome outcome = REDIS_REPLIED;

	if (connection.url.password[0])
		outcome = authenticate(stop);
	if (outcome == REDIS_REPLIED && connection.url.database != 0)
	{
		char		number[16];
		SweepRedisCommand command = {2, {"SELECT", number}};

		snprintf(number, sizeof(number), "%d", connection.url.database);
		outcome = converse(&command, stop);
		if (outcome == REDIS_REPLIED && connection.reply->type == REDIS_REPLY_ERROR)
			outcome = refused("to select the database", connection.reply->str);
	}
	if (outcome == REDIS_REPLIED)
		outcome = read_clock(stop);
	return outcome;
}

/* Of the reply only the code is shown: an unknown command, for one, comes back with what was sent. */
static SweepRedisOutcome
authenticate(const SweepRedisStop *stop)
{
	SweepRedisCommand command = {2, {"AUTH", connection.url.password}};
	SweepRedisOutcome outcome;

	if (connection.url.user[0])
		command = (SweepRedisCommand) {3, {"AUTH", connection.url.user, connection.url.password}};
	outcome = converse(&command, stop);
	if (outcome != REDIS_REPLIED || connection.reply->type != REDIS_REPLY_ERROR)
		return outcome;
	outcome = refused("user or password", connection.reply->str);
	snprintf(failure.message, sizeof(failure.message), "Redis at %s refused user or password: %.*s", connection.place,
			 (int) Min(strcspn(connection.reply->str, " "), 32), connection.reply->str);
	return outcome;
}

static SweepRedisOutcome
read_clock(const SweepRedisStop *stop)
{
	static const SweepRedisCommand command = {1, {"TIME"}};
	SweepRedisOutcome outcome = converse(&command, stop);
	const redisReply *reply = connection.reply;

	if (outcome != REDIS_REPLIED)
		return outcome;
	if (reply->type == REDIS_REPLY_ERROR)
		return refused("to tell its time", reply->str);
	if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
		reply->element[0]->type != REDIS_REPLY_STRING || reply->element[1]->type != REDIS_REPLY_STRING)
		return refused("to tell its time", "the reply is not one of Redis");
	connection.redis_ms = strtoll(reply->element[0]->str, NULL, 10) * 1000 + strtoll(reply->element[1]->str, NULL, 10) / 1000;
	connection.redis_read_us = sweep_redis_now();
	return REDIS_REPLIED;
}

static bool
create_reader(void)
{
	connection.reader = redisReaderCreate();
	if (connection.reader == NULL)
		return false;
	limited = *connection.reader->fn;
	create_array = limited.createArray;
	limited.createArray = create_limited_array;
	connection.reader->fn = &limited;
	return true;
}

static void *
create_limited_array(const redisReadTask *task, SweepRedisElements elements)
{
	int			depth = 0;

	for (const redisReadTask *parent = task->parent; parent != NULL; parent = parent->parent)
		depth++;
	if (elements > MAX_REPLY_ELEMENTS || depth >= MAX_REPLY_DEPTH)
		return NULL;
	return create_array(task, elements);
}

/* One command, one reply; anything else and the connection is closed. */
static SweepRedisOutcome
converse(const SweepRedisCommand *command, const SweepRedisStop *stop)
{
	SweepRedisPatience patience = patience_of(stop);
	SweepRedisProgress progress;
	char		message[sizeof(failure.message)];

	if (connection.reply != NULL)
		freeReplyObject(connection.reply);
	connection.reply = NULL;
	connection.busy = true;
	progress = send_command(command, &patience);
	if (progress == PROGRESS_DONE)
	{
		patience = patience_of(stop);
		progress = receive_reply(&patience);
	}
	if (progress == PROGRESS_DONE)
	{
		connection.busy = false;
		return REDIS_REPLIED;
	}
	snprintf(message, sizeof(message), "no reply from Redis at %s: %s", connection.place,
			 progress == PROGRESS_REFUSED ? "what it sent is not a reply, or is too long" : sweep_redis_socket_reason());
	sweep_redis_disconnect();
	return progress == PROGRESS_STOPPED ? REDIS_STOPPED : fail(REDIS_CLASS_RETRY, message, "", NULL);
}

static SweepRedisProgress
send_command(const SweepRedisCommand *command, const SweepRedisPatience *patience)
{
	size_t		lengths[SWEEP_REDIS_MOST_ARGUMENTS];
	const char *arguments[SWEEP_REDIS_MOST_ARGUMENTS];
	SweepRedisProgress progress;
	int			size;

	for (int i = 0; i < command->count; i++)
	{
		arguments[i] = command->argument[i];
		lengths[i] = strlen(command->argument[i]);
	}
	size = redisFormatCommandArgv(&connection.request, command->count, arguments, lengths);
	if (size < 0)
		return PROGRESS_BROKEN;
	progress = sweep_redis_socket_write(connection.request, (size_t) size, patience);
	explicit_bzero(connection.request, (size_t) size);
	redisFreeCommand(connection.request);
	connection.request = NULL;
	return progress;
}

static SweepRedisProgress
receive_reply(const SweepRedisPatience *patience)
{
	size_t		total = 0;

	for (;;)
	{
		char		buffer[4096];
		size_t		length = 0;
		SweepRedisProgress progress;
		void	   *reply = NULL;

		progress = sweep_redis_socket_read(buffer, sizeof(buffer), &length, patience);
		if (progress != PROGRESS_DONE)
			return progress;
		total += length;
		if (total > MAX_REPLY_BYTES || redisReaderFeed(connection.reader, buffer, length) != REDIS_OK ||
			redisReaderGetReply(connection.reader, &reply) != REDIS_OK)
			return PROGRESS_REFUSED;
		if (reply != NULL)
		{
			connection.reply = reply;
			return PROGRESS_DONE;
		}
	}
}

static SweepRedisPatience
patience_of(const SweepRedisStop *stop)
{
	return (SweepRedisPatience)
	{
		sweep_redis_now() + (int64) connection.timeout_ms * 1000, stop->is_stopped, stop->arg
	};
}

static SweepRedisOutcome
fail(SweepRedisClass class, const char *message, const char *detail, const char *hint)
{
	failure.class = class;
	strlcpy(failure.message, message, sizeof(failure.message));
	strlcpy(failure.detail, detail, sizeof(failure.detail));
	failure.hint = hint;
	return REDIS_FAILED;
}

static SweepRedisOutcome
fail_to_connect(SweepRedisProgress progress)
{
	char		message[sizeof(failure.message)];

	snprintf(message, sizeof(message), "could not connect to Redis at %s: %s", connection.place, sweep_redis_socket_reason());
	sweep_redis_disconnect();
	if (progress == PROGRESS_STOPPED)
		return REDIS_STOPPED;
	return fail(progress == PROGRESS_REFUSED ? REDIS_CLASS_CONFIGURATION : REDIS_CLASS_RETRY, message, "", NULL);
}

/* An error reply. */
static SweepRedisOutcome
refused(const char *what, const char *reply)
{
	char		message[sizeof(failure.message)];

	snprintf(message, sizeof(message), "Redis at %s refused %s: %s", connection.place, what, reply);
	return fail(sweep_redis_reply_class(reply), message, "", sweep_redis_reply_hint(reply));
}
