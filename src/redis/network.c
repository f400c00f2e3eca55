/*
 * network.c
 *		Runs hiredis's asynchronous interface on the wait events of PostgreSQL.
 *
 * Called by connection.c. hiredis connects, writes and reads; its hooks say what it waits for, and serve()
 * waits for it, together with the latch, the deadline and the end of the postmaster, in slices short enough
 * that a request to stop is noticed. Every wait stands in serve(), outside of hiredis, and the hooks do not
 * raise: no longjmp passes through hiredis. The memory that hiredis allocates with malloc belongs to the static Network;
 * if a wait is left by a longjmp, "waiting" stays set and the next call closes the connection.
 *
 * Four things are done here because hiredis does not do them: every address of a host is tried, the
 * descriptor is not inherited by programs that SQL starts, a reply has a limit in reads, elements and depth,
 * and a second reply to one command ends the connection (hiredis would abort the process).
 *
 * The resolver of the operating system can block, for a host that is neither an address nor in /etc/hosts; it
 * gives up as /etc/resolv.conf says.
 */
#include "postgres.h"

#include <fcntl.h>
#include <netdb.h>
#include <sys/socket.h>

#include "miscadmin.h"
#include "portability/instr_time.h"
#include "storage/fd.h"
#include "storage/latch.h"

#include "base/compat.h"
#include "redis/network.h"
#include "redis/tls.h"

/* Longest time between two looks at is_stopped. */
#define SLICE_US INT64CONST(150000)

/* Limits of a reply. hiredis reads at most 16 kB at a time. */
#define MOST_READS 64
#define MOST_ELEMENTS 10000
#define MOST_DEPTH 7

typedef struct Network
{
	const SweepRedisTarget *target;
	redisAsyncContext *context; /* NULL: no connection; hiredis frees it at its first error */
	struct addrinfo *addresses; /* of the host */
	redisReply *reply;			/* of the last command */
	int			reads;			/* since the last command */
	bool		writing;		/* hiredis wants to write */
	bool		waiting;		/* in serve() */
	bool		counted;		/* among the external descriptors of the process */
	char		reason[256];	/* why the connection is gone */
} Network;

static Network network;

/* hiredis's own functions that create and free replies, with a limit and with an exception. */
static redisReplyObjectFunctions limited;
static void *(*create_array) (const redisReadTask *task, SweepRedisElements elements);

static SweepRedisOutcome open_host(const SweepRedisUrl *url, int64 deadline_us, const SweepRedisStop *stop);
static SweepRedisOutcome open_address(const char *place, int port, int64 deadline_us, const SweepRedisStop *stop);
static void prepare(redisAsyncContext *context);
static SweepRedisOutcome serve(int64 deadline_us, const SweepRedisStop *stop);
static void begin_writing(void *arg);
static void end_writing(void *arg);
static void forget_context(void *arg);
static void take_reply(redisAsyncContext *context, void *reply, void *arg);
static void *create_limited_array(const redisReadTask *task, SweepRedisElements elements);
static void free_other_reply(void *reply);
static int64 deadline_of(const SweepRedisTarget *target);
static SweepRedisOutcome because(const char *reason);
static SweepRedisOutcome fail(SweepRedisOutcome outcome, const char *what);

static const char no_reply[] = "what it sent is not a reply, or is too long";

int64
sweep_redis_now(void)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	return (int64) INSTR_TIME_GET_MICROSEC(now);
}

SweepRedisOutcome
sweep_redis_network_open(const SweepRedisTarget *target, const SweepRedisStop *stop)
{
	const SweepRedisUrl *url = &target->url;
	int64		deadline_us = deadline_of(target);
	SweepRedisOutcome outcome;
	const char *error = NULL;

	sweep_redis_network_close();
	network.target = target;
	network.counted = AcquireExternalFD();
	if (!network.counted)
		outcome = because("too many files are open");
	else if (url->path[0])
		outcome = open_address(url->path, 0, deadline_us, stop);
	else
		outcome = open_host(url, deadline_us, stop);
	if (outcome == REDIS_REPLIED && url->tls)
		error = sweep_redis_tls_begin(&network.context->c, target);
	if (error != NULL)
		outcome = because(error);
	return outcome == REDIS_REPLIED ? outcome : fail(outcome, "could not connect to");
}

bool
sweep_redis_network_is_usable(void)
{
	char		byte;

	/* 0 would be the end of the connection, 1 data that no command has asked for. */
	return network.context != NULL && !network.waiting &&
		recv(network.context->c.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EINTR);
}

SweepRedisOutcome
sweep_redis_network_execute(const SweepRedisCommand *command, const SweepRedisStop *stop, const redisReply **reply)
{
	SweepRedisOutcome outcome;

	if (network.reply != NULL)
		freeReplyObject(network.reply);
	network.reply = NULL;
	network.reads = 0;
	if (redisAsyncCommandArgv(network.context, take_reply, NULL, command->count, (const char **) command->argument, NULL) == REDIS_OK)
		outcome = serve(deadline_of(network.target), stop);
	else
		outcome = because("out of memory");
	*reply = network.reply;
	return outcome == REDIS_REPLIED ? outcome : fail(outcome, sweep_redis_tls_is_negotiating() ? "could not connect to" : "no reply from");
}

void
sweep_redis_network_close(void)
{
	if (network.context != NULL)
		redisAsyncFree(network.context);
	sweep_redis_tls_end();
	if (network.reply != NULL)
		freeReplyObject(network.reply);
	if (network.addresses != NULL)
		freeaddrinfo(network.addresses);
	if (network.counted)
		ReleaseExternalFD();
	memset(&network, 0, sizeof(network));
}

/* Each address gets its share of the time that is left. hiredis is given numbers, which it need not resolve. */
static SweepRedisOutcome
open_host(const SweepRedisUrl *url, int64 deadline_us, const SweepRedisStop *stop)
{
	struct addrinfo hint = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
	SweepRedisOutcome outcome = REDIS_FAILED;
	int			left = 0;
	int			error = getaddrinfo(url->host, NULL, &hint, &network.addresses);

	if (error != 0)
	{
		network.addresses = NULL;
		return because(gai_strerror(error));
	}
	for (const struct addrinfo *address = network.addresses; address; address = address->ai_next)
		left++;
	for (const struct addrinfo *address = network.addresses; address && outcome == REDIS_FAILED; address = address->ai_next)
	{
		int64		now = sweep_redis_now();
		char		number[NI_MAXHOST];

		error = getnameinfo(address->ai_addr, address->ai_addrlen, number, sizeof(number), NULL, 0, NI_NUMERICHOST);
		if (error != 0)
			outcome = because(gai_strerror(error));
		else
			outcome = open_address(number, url->port, now + Max(deadline_us - now, 0) / Max(left, 1), stop);
		left--;
	}
	return outcome;
}

/* An address with its port, or the path of a unix socket with port 0. */
static SweepRedisOutcome
open_address(const char *place, int port, int64 deadline_us, const SweepRedisStop *stop)
{
	redisAsyncContext *context = port > 0 ? redisAsyncConnect(place, port) : redisAsyncConnectUnix(place);
	SweepRedisOutcome outcome;

	if (context == NULL)
		return because("out of memory");
	if (context->err != 0)
	{
		(void) because(context->errstr);
		redisAsyncFree(context);
		return REDIS_FAILED;
	}
	prepare(context);
	outcome = serve(deadline_us, stop);
	if (outcome != REDIS_REPLIED && network.context != NULL)
		redisAsyncFree(network.context);
	return outcome;
}

static void
prepare(redisAsyncContext *context)
{
	redisReader *reader = context->c.reader;

	(void) fcntl(context->c.fd, F_SETFD, FD_CLOEXEC);
	context->ev.addWrite = begin_writing;
	context->ev.delWrite = end_writing;
	context->ev.cleanup = forget_context;
	limited = *reader->fn;
	create_array = limited.createArray;
	limited.createArray = create_limited_array;
	limited.freeObject = free_other_reply;
	reader->fn = &limited;
	network.context = context;
	network.writing = true;		/* a connection that is made can be written to */
}

/*
 * Lets hiredis work until the connection is made or the reply to the command is there. A request to cancel is
 * not raised: is_stopped() sees it, and the caller decides. Other interrupts are served.
 */
static SweepRedisOutcome
serve(int64 deadline_us, const SweepRedisStop *stop)
{
	bool		connecting = (network.context->c.flags & REDIS_CONNECTED) == 0;
	bool		retrying = false;

	network.waiting = true;
	while (connecting ? (network.context->c.flags & REDIS_CONNECTED) == 0 : network.reply == NULL)
	{
		int64		left = deadline_us - sweep_redis_now();
		int			events = WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH;
		int			happened;

		if (stop->is_stopped(stop->arg))
			return REDIS_STOPPED;
		if (left <= 0)
			return because("no answer within pg_sweep.redis_timeout");
		if (!retrying)
			events |= (connecting ? 0 : WL_SOCKET_READABLE) | (network.writing ? WL_SOCKET_WRITEABLE : 0);
		happened = WaitLatchOrSocket(MyLatch, events, network.context->c.fd, Min(left, SLICE_US) / 1000 + 1, sweep_wait_event());
		if (happened & WL_LATCH_SET)
			ResetLatch(MyLatch);
		if (stop->is_stopped(stop->arg))
			return REDIS_STOPPED;
		HOLD_CANCEL_INTERRUPTS();
		CHECK_FOR_INTERRUPTS();
		RESUME_CANCEL_INTERRUPTS();
		sweep_redis_tls_clear_errors();
		if (happened & WL_SOCKET_WRITEABLE)
			redisAsyncHandleWrite(network.context);
		if (network.context != NULL && (happened & WL_SOCKET_READABLE) != 0)
		{
			if (++network.reads > MOST_READS)
				return because(no_reply);
			redisAsyncHandleRead(network.context);
		}
		if (network.context == NULL)
			return REDIS_FAILED;
		/* From hiredis 1.3 on a unix socket whose queue is full can be written to, and is not connected. */
		retrying = connecting && (happened & WL_SOCKET_WRITEABLE) != 0;
	}
	network.waiting = false;
	return REDIS_REPLIED;
}

static void
begin_writing(void *arg)
{
	network.writing = true;
}

static void
end_writing(void *arg)
{
	network.writing = false;
}

/* hiredis frees the context after this: at its first error, or because we asked for it. */
static void
forget_context(void *arg)
{
	const redisAsyncContext *context = network.context;

	if (context == NULL)
		return;
	if (context->err == REDIS_ERR_PROTOCOL || context->err == REDIS_ERR_OOM)
		(void) because(no_reply);
	else if (context->err != 0)
		(void) because(sweep_redis_tls_reason(context->err == REDIS_ERR_EOF ? "it closed the connection" : context->errstr));
	network.context = NULL;
}

static void
take_reply(redisAsyncContext *context, void *reply, void *arg)
{
	const redisReader *reader = context->c.reader;

	if (reply == NULL)
		return;
	if (reader->pos < reader->len)
	{
		(void) because(no_reply);
		redisAsyncFree(context);
		return;
	}
	network.reply = reply;
	if (network.reply->type == REDIS_REPLY_ERROR)
		sweep_redis_clean_text(network.reply->str, (size_t) network.reply->len);
}

static void *
create_limited_array(const redisReadTask *task, SweepRedisElements elements)
{
	int			depth = 0;

	for (const redisReadTask *parent = task->parent; parent != NULL; parent = parent->parent)
		depth++;
	if (elements > MOST_ELEMENTS || depth >= MOST_DEPTH)
		return NULL;
	return create_array(task, elements);
}

/* hiredis frees a reply after take_reply(); the one that was taken stays. */
static void
free_other_reply(void *reply)
{
	if (reply != network.reply)
		freeReplyObject(reply);
}

static int64
deadline_of(const SweepRedisTarget *target)
{
	return sweep_redis_now() + (int64) target->timeout_ms * 1000;
}

static SweepRedisOutcome
because(const char *reason)
{
	strlcpy(network.reason, reason, sizeof(network.reason));
	return REDIS_FAILED;
}

static SweepRedisOutcome
fail(SweepRedisOutcome outcome, const char *what)
{
	(void) sweep_redis_fail(sweep_redis_tls_is_misconfigured() ? REDIS_CLASS_CONFIGURATION : REDIS_CLASS_RETRY, NULL, NULL,
							"%s Redis at %s: %s", what, network.target->place, network.reason);
	sweep_redis_network_close();
	return outcome;
}
