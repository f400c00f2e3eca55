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

#include "redis/connection.h"
#include "redis/socket.h"
#include "redis/target.h"

#define MAX_REPLY_BYTES (1024 * 1024)
#define MAX_REPLY_ELEMENTS 10000
#define MAX_REPLY_DEPTH 7

/* The end of the year 9999: what is later is no clock. */
#define LATEST_SECOND INT64CONST(253402300799)

typedef struct Connection
{
	SweepRedisTarget target;
	bool		open;
	bool		busy;			/* a command is on its way */
	redisReader *reader;
	redisReply *reply;
	char	   *request;		/* as hiredis wrote it */
	int64		redis_ms;		/* clock of Redis ... */
	int64		redis_read_us;	/* ... at this moment of ours */
} Connection;

static Connection connection;
static redisReplyObjectFunctions limited;
static void *(*create_array) (const redisReadTask *task, SweepRedisElements elements);

static SweepRedisOutcome log_in(const SweepRedisStop *stop);
static SweepRedisOutcome authenticate(const SweepRedisStop *stop);
static SweepRedisOutcome read_clock(const SweepRedisStop *stop);
static bool create_reader(void);
static void *create_limited_array(const redisReadTask *task, SweepRedisElements elements);
static SweepRedisOutcome roundtrip(const SweepRedisCommand *command, const SweepRedisStop *stop);
static SweepRedisProgress send_command(const SweepRedisCommand *command, const SweepRedisDeadline *deadline);
static SweepRedisProgress receive_reply(const SweepRedisDeadline *deadline);
static SweepRedisDeadline deadline_of(const SweepRedisStop *stop);
static SweepRedisOutcome fail_to_connect(SweepRedisProgress progress);
static SweepRedisOutcome refused(const char *what, const char *reply);

SweepRedisOutcome
sweep_redis_connect(const SweepRedisStop *stop)
{
	SweepRedisDeadline deadline;
	SweepRedisProgress progress;
	SweepRedisOutcome outcome;

	if (connection.open && !connection.busy && sweep_redis_socket_is_usable())
		return REDIS_REPLIED;
	sweep_redis_disconnect();
	if (!sweep_redis_target_read(&connection.target))
		return REDIS_FAILED;
	if (!create_reader())
	{
		sweep_redis_disconnect();
		return sweep_redis_fail(REDIS_CLASS_RETRY, NULL, NULL, "out of memory");
	}
	deadline = deadline_of(stop);
	progress = sweep_redis_socket_open(&connection.target, &deadline);
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
	outcome = roundtrip(command, stop);
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
	int64		end_us = sweep_redis_now() + (int64) connection.target.timeout_ms * 1000;

	return connection.redis_ms + (end_us - connection.redis_read_us) / 1000;
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

static SweepRedisOutcome
log_in(const SweepRedisStop *stop)
{
	SweepRedisOutcome outcome = REDIS_REPLIED;

	if (connection.target.password[0])
		outcome = authenticate(stop);
	explicit_bzero(connection.target.password, sizeof(connection.target.password));
	if (outcome == REDIS_REPLIED && connection.target.url.database != 0)
	{
		char		number[16];
		SweepRedisCommand command = {2, {"SELECT", number}};

		snprintf(number, sizeof(number), "%d", connection.target.url.database);
		outcome = roundtrip(&command, stop);
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
	SweepRedisCommand command = {2, {"AUTH", connection.target.password}};
	SweepRedisOutcome outcome;
	const char *reply;

	if (connection.target.user[0])
		command = (SweepRedisCommand) {3, {"AUTH", connection.target.user, connection.target.password}};
	outcome = roundtrip(&command, stop);
	if (outcome != REDIS_REPLIED || connection.reply->type != REDIS_REPLY_ERROR)
		return outcome;
	reply = connection.reply->str;
	return sweep_redis_fail(sweep_redis_reply_class(reply), NULL, sweep_redis_reply_hint(reply),
							"Redis at %s refused user or password: %.*s", connection.target.place,
							(int) Min(strcspn(reply, " "), 32), reply);
}

static SweepRedisOutcome
read_clock(const SweepRedisStop *stop)
{
	static const SweepRedisCommand command = {1, {"TIME"}};
	SweepRedisOutcome outcome = roundtrip(&command, stop);
	const redisReply *reply = connection.reply;
	int64		seconds;
	int64		microseconds;

	if (outcome != REDIS_REPLIED)
		return outcome;
	if (reply->type == REDIS_REPLY_ERROR)
		return refused("to tell its time", reply->str);
	if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
		!sweep_redis_read_number(reply->element[0], 1, LATEST_SECOND, &seconds) ||
		!sweep_redis_read_number(reply->element[1], 0, 999999, &microseconds))
		return refused("to tell its time", "the reply is not one of Redis");
	connection.redis_ms = seconds * 1000 + microseconds / 1000;
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
roundtrip(const SweepRedisCommand *command, const SweepRedisStop *stop)
{
	SweepRedisDeadline deadline = deadline_of(stop);
	SweepRedisProgress progress;

	if (connection.reply != NULL)
		freeReplyObject(connection.reply);
	connection.reply = NULL;
	connection.busy = true;
	progress = send_command(command, &deadline);
	if (progress == PROGRESS_DONE)
	{
		deadline = deadline_of(stop);
		progress = receive_reply(&deadline);
	}
	if (progress == PROGRESS_DONE)
	{
		connection.busy = false;
		return REDIS_REPLIED;
	}
	(void) sweep_redis_fail(REDIS_CLASS_RETRY, NULL, NULL, "no reply from Redis at %s: %s", connection.target.place,
							progress == PROGRESS_REFUSED ? "what it sent is not a reply, or is too long" : sweep_redis_socket_reason());
	sweep_redis_disconnect();
	return progress == PROGRESS_STOPPED ? REDIS_STOPPED : REDIS_FAILED;
}

static SweepRedisProgress
send_command(const SweepRedisCommand *command, const SweepRedisDeadline *deadline)
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
	progress = sweep_redis_socket_write(connection.request, (size_t) size, deadline);
	explicit_bzero(connection.request, (size_t) size);
	redisFreeCommand(connection.request);
	connection.request = NULL;
	return progress;
}

static SweepRedisProgress
receive_reply(const SweepRedisDeadline *deadline)
{
	size_t		total = 0;

	for (;;)
	{
		char		buffer[4096];
		size_t		length = 0;
		SweepRedisProgress progress;
		void	   *reply = NULL;

		progress = sweep_redis_socket_read(buffer, sizeof(buffer), &length, deadline);
		if (progress != PROGRESS_DONE)
			return progress;
		total += length;
		if (total > MAX_REPLY_BYTES || redisReaderFeed(connection.reader, buffer, length) != REDIS_OK ||
			redisReaderGetReply(connection.reader, &reply) != REDIS_OK)
			return PROGRESS_REFUSED;
		if (reply != NULL)
		{
			connection.reply = reply;
			if (connection.reply->type == REDIS_REPLY_ERROR)
				sweep_redis_clean_text(connection.reply->str, (size_t) connection.reply->len);
			return PROGRESS_DONE;
		}
	}
}

static SweepRedisDeadline
deadline_of(const SweepRedisStop *stop)
{
	return (SweepRedisDeadline)
	{
		sweep_redis_now() + (int64) connection.target.timeout_ms * 1000, stop->is_stopped, stop->arg
	};
}

static SweepRedisOutcome
fail_to_connect(SweepRedisProgress progress)
{
	(void) sweep_redis_fail(progress == PROGRESS_REFUSED ? REDIS_CLASS_CONFIGURATION : REDIS_CLASS_RETRY, NULL, NULL,
							"could not connect to Redis at %s: %s", connection.target.place, sweep_redis_socket_reason());
	sweep_redis_disconnect();
	return progress == PROGRESS_STOPPED ? REDIS_STOPPED : REDIS_FAILED;
}

/* An error reply. */
static SweepRedisOutcome
refused(const char *what, const char *reply)
{
	return sweep_redis_fail(sweep_redis_reply_class(reply), NULL, sweep_redis_reply_hint(reply),
							"Redis at %s refused %s: %s", connection.target.place, what, reply);
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
