/*
 * network.c
 *		Drives hiredis on a non-blocking connection, with a wait event set of PostgreSQL.
 *
 * Called by connection.c. hiredis connects, formats and writes a command, and reads and parses its reply. When it would have
 * to wait, it returns, and wait_for() waits for the socket, the latch, the deadline and the end of the postmaster, in slices
 * short enough that a request to stop is noticed. The memory that hiredis allocates with malloc belongs to the static
 * Network, and no wait happens within hiredis, so a longjmp out of a wait leaks nothing.
 *
 * Three things are done here because hiredis does not do them: every address of a host is tried, the descriptor
 * is not inherited by programs that SQL starts, and a reply has a limit in reads, elements and depth.
 *
 * The resolver of the operating system can block, for a host that is neither an address nor in /etc/hosts;
 * /etc/resolv.conf sets its timeout.
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

/* Longest time between two calls of is_stopped, in us. */
#define SLICE_US INT64CONST(150000)

/* Limits of a reply. hiredis reads at most 16 kB at a time. */
#define MOST_READS 64
#define MOST_ELEMENTS 10000
#define MOST_DEPTH 7

typedef struct Network
{
	const SweepRedisTarget *target;
	redisContext *context;		/* NULL: no connection */
	struct addrinfo *addresses; /* of the host */
	redisReply *reply;			/* of the last command */
	const char *reason;			/* of the last failure; may be in the context */
	SweepRedisClass class;		/* of that failure: REDIS_CLASS_RETRY, unless TLS is refused */
} Network;

static Network network;

/* hiredis's own functions that create replies, with a limit. */
static redisReplyObjectFunctions limited;
static void *(*create_array) (const redisReadTask *task, SweepRedisElements elements);

static SweepRedisOutcome open_host(const SweepRedisUrl *url, int64 deadline_us, const SweepRedisStop *stop);
static SweepRedisOutcome open_address(const char *place, int port, int64 deadline_us, const SweepRedisStop *stop);
static SweepRedisOutcome begin_tls(int64 deadline_us, const SweepRedisStop *stop);
static void *create_limited_array(const redisReadTask *task, SweepRedisElements elements);
static SweepRedisOutcome read_reply(int *reads);
static SweepRedisOutcome wait_for(int event, int64 deadline_us, const SweepRedisStop *stop);
static void free_context(void);
static SweepRedisOutcome result_of(int status);
static SweepRedisOutcome because(const char *reason);
static SweepRedisOutcome finish(SweepRedisOutcome outcome, const char *what);

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
	int64		deadline_us = sweep_redis_now() + target->timeout_us;
	SweepRedisOutcome outcome;

	sweep_redis_network_close();
	network.target = target;
	if (url->path[0])
		outcome = open_address(url->path, 0, deadline_us, stop);
	else
		outcome = open_host(url, deadline_us, stop);
	if (outcome == REDIS_REPLIED && url->tls)
		outcome = begin_tls(deadline_us, stop);
	return finish(outcome, "could not connect to");
}

bool
sweep_redis_network_is_usable(void)
{
	char		byte;

	/* A result of 0 is the end of the connection, 1 is data that no command has asked for. */
	return network.context != NULL &&
		recv(network.context->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EINTR);
}

SweepRedisOutcome
sweep_redis_network_execute(const SweepRedisCommand *command, const SweepRedisStop *stop, const redisReply **reply)
{
	int64		deadline_us = sweep_redis_now() + network.target->timeout_us;
	SweepRedisOutcome outcome;
	int			reads = 0;
	int			written = 0;

	freeReplyObject(network.reply);
	network.reply = NULL;
	outcome = result_of(redisAppendCommandArgv(network.context, command->count, (const char **) command->argument, NULL));
	while (outcome == REDIS_REPLIED && network.reply == NULL)
	{
		outcome = wait_for(written ? WL_SOCKET_READABLE : WL_SOCKET_WRITEABLE, deadline_us, stop);
		if (outcome == REDIS_REPLIED)
			outcome = written ? read_reply(&reads) : result_of(redisBufferWrite(network.context, &written));
	}
	outcome = finish(outcome, "no reply from");
	*reply = network.reply;
	return outcome;
}

void
sweep_redis_network_close(void)
{
	freeReplyObject(network.reply);
	free_context();
	if (network.addresses != NULL)
		freeaddrinfo(network.addresses);
	memset(&network, 0, sizeof(network));
}

/* Each address gets its share of the remaining time. hiredis gets numeric addresses, which it need not resolve. */
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
	for (const struct addrinfo *address = network.addresses; address && outcome == REDIS_FAILED; address = address->ai_next, left--)
	{
		int64		now = sweep_redis_now();
		char		number[NI_MAXHOST];

		error = getnameinfo(address->ai_addr, address->ai_addrlen, number, sizeof(number), NULL, 0, NI_NUMERICHOST);
		outcome = error != 0 ? because(gai_strerror(error)) :
			open_address(number, url->port, now + Max(deadline_us - now, 0) / left, stop);
	}
	return outcome;
}

/* An address with its port, or the path of a unix socket with port 0. */
static SweepRedisOutcome
open_address(const char *place, int port, int64 deadline_us, const SweepRedisStop *stop)
{
	SweepRedisOutcome outcome;
	struct sockaddr_storage peer;
	socklen_t	size = sizeof(peer);
	int			error = 0;

	free_context();
	ReserveExternalFD();
	network.context = port > 0 ? redisConnectNonBlock(place, port) : redisConnectUnixNonBlock(place);
	if (network.context == NULL)
	{
		ReleaseExternalFD();
		return because("out of memory");
	}
	if (network.context->err != 0)
		return result_of(REDIS_ERR);
	(void) fcntl(network.context->fd, F_SETFD, FD_CLOEXEC);
	limited = *network.context->reader->fn;
	create_array = limited.createArray;
	limited.createArray = create_limited_array;
	network.context->reader->fn = &limited;
	outcome = wait_for(WL_SOCKET_WRITEABLE, deadline_us, stop);
	if (outcome != REDIS_REPLIED || getpeername(network.context->fd, (struct sockaddr *) &peer, &size) == 0)
		return outcome;
	/* From hiredis 1.3 on, a unix socket with a full queue is writeable and has no error, but is not connected. */
	size = sizeof(error);
	(void) getsockopt(network.context->fd, SOL_SOCKET, SO_ERROR, &error, &size);
	return because(strerror(error ? error : EAGAIN));
}

/* hiredis negotiates when it reads. */
static SweepRedisOutcome
begin_tls(int64 deadline_us, const SweepRedisStop *stop)
{
	const char *error = sweep_redis_tls_begin(network.context, network.target);
	SweepRedisOutcome outcome = error ? because(error) : REDIS_REPLIED;

	if (error != NULL)
		network.class = REDIS_CLASS_CONFIGURATION;
	while (outcome == REDIS_REPLIED && sweep_redis_tls_is_negotiating())
	{
		outcome = wait_for(WL_SOCKET_READABLE, deadline_us, stop);
		if (outcome == REDIS_REPLIED)
			outcome = result_of(redisBufferRead(network.context));
	}
	return outcome;
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

/* Reads once; the reply may still be incomplete. A second reply to one command is an error. */
static SweepRedisOutcome
read_reply(int *reads)
{
	redisContext *context = network.context;

	if (++*reads > MOST_READS)
		return because(no_reply);
	if (redisBufferRead(context) != REDIS_OK || redisGetReplyFromReader(context, (void **) &network.reply) != REDIS_OK)
		return result_of(REDIS_ERR);
	if (network.reply == NULL)
		return REDIS_REPLIED;
	if (context->reader->pos < context->reader->len)
		return because(no_reply);
	if (network.reply->type == REDIS_REPLY_ERROR)
		sweep_redis_clean_text(network.reply->str, (size_t) network.reply->len);
	return REDIS_REPLIED;
}

/*
 * Waits until the socket is readable or writeable. A request to cancel is not raised: is_stopped() sees it, and
 * the caller decides. Other interrupts are processed.
 */
static SweepRedisOutcome
wait_for(int event, int64 deadline_us, const SweepRedisStop *stop)
{
	int			happened = 0;

	while ((happened & event) == 0)
	{
		int64		left = deadline_us - sweep_redis_now();

		if (stop->is_stopped(stop->arg))
			return REDIS_STOPPED;
		HOLD_CANCEL_INTERRUPTS();
		CHECK_FOR_INTERRUPTS();
		RESUME_CANCEL_INTERRUPTS();
		if (left <= 0)
			return because("no answer within pg_sweep.redis_timeout");
		happened = WaitLatchOrSocket(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH | event, network.context->fd,
									 Min(left, SLICE_US) / 1000 + 1, sweep_wait_event(SWEEP_WAIT_REDIS));
		if (happened & WL_LATCH_SET)
			ResetLatch(MyLatch);
	}
	sweep_redis_tls_clear_errors();
	return REDIS_REPLIED;
}

static void
free_context(void)
{
	if (network.context == NULL)
		return;
	redisFree(network.context);
	network.context = NULL;
	sweep_redis_tls_end();
	ReleaseExternalFD();
}

/* The result of a call of hiredis, which has left an error in the context if there is one. */
static SweepRedisOutcome
result_of(int status)
{
	const redisContext *context = network.context;

	if (status == REDIS_OK)
		return REDIS_REPLIED;
	if (context->err == REDIS_ERR_PROTOCOL || context->err == REDIS_ERR_OOM)
		return because(no_reply);
	return because(sweep_redis_tls_reason(context->err == REDIS_ERR_EOF ? "it closed the connection" : context->errstr, &network.class));
}

static SweepRedisOutcome
because(const char *reason)
{
	network.reason = reason;
	return REDIS_FAILED;
}

/* Sets the failure, and closes a connection that cannot be used any more. */
static SweepRedisOutcome
finish(SweepRedisOutcome outcome, const char *what)
{
	if (outcome == REDIS_FAILED)
		(void) sweep_redis_fail(network.class, NULL, NULL, "%s Redis at %s: %s", what, network.target->place, network.reason);
	if (outcome != REDIS_REPLIED)
		sweep_redis_network_close();
	return outcome;
}
