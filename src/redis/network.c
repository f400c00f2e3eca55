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
#include "storage/fd.h"
#include "storage/latch.h"

#include "base/clock.h"
#include "base/compat.h"
#include "redis/network.h"
#include "redis/tls.h"

/* Longest time between two calls of sweep_bucket_is_stopped(), in us. */
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

static const char no_reply[] = "what it sent is not a reply, or is too long";

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

static SweepBucketResult
because(const char *reason)
{
	network.reason = reason;
	return BUCKET_FAILED;
}

/* The result of a call of hiredis, which has left an error in the context if there is one. */
static SweepBucketResult
result_of(int status)
{
	const redisContext *context = network.context;

	if (status == REDIS_OK)
		return BUCKET_OK;
	if (context->err == REDIS_ERR_PROTOCOL || context->err == REDIS_ERR_OOM)
		return because(no_reply);
	return because(sweep_redis_tls_reason(context->err == REDIS_ERR_EOF ? "it closed the connection" : context->errstr, &network.class));
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

/*
 * Waits until the socket is readable or writeable. A request to cancel is not raised: sweep_bucket_is_stopped() sees it, and
 * the caller decides. Other interrupts are processed.
 */
static SweepBucketResult
wait_for(int event, int64 deadline_us, const SweepBucketRequest *request)
{
	int			happened = 0;

	while ((happened & event) == 0)
	{
		int64		left = deadline_us - sweep_monotonic_us();

		if (sweep_bucket_is_stopped(request))
			return BUCKET_STOPPED;
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
	return BUCKET_OK;
}

/* An address with its port, or the path of a unix socket with port 0. */
static SweepBucketResult
open_address(const char *place, int port, int64 deadline_us, const SweepBucketRequest *request)
{
	SweepBucketResult result;
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
	result = wait_for(WL_SOCKET_WRITEABLE, deadline_us, request);
	if (result != BUCKET_OK || getpeername(network.context->fd, (struct sockaddr *) &peer, &size) == 0)
		return result;
	/* From hiredis 1.3 on, a unix socket with a full queue is writeable and has no error, but is not connected. */
	size = sizeof(error);
	(void) getsockopt(network.context->fd, SOL_SOCKET, SO_ERROR, &error, &size);
	return because(strerror(error ? error : EAGAIN));
}

/* Each address gets its share of the remaining time. hiredis gets numeric addresses, which it need not resolve. */
static SweepBucketResult
open_host(const SweepRedisUrl *url, int64 deadline_us, const SweepBucketRequest *request)
{
	struct addrinfo hint = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
	SweepBucketResult result = BUCKET_FAILED;
	int			left = 0;
	int			error = getaddrinfo(url->host, NULL, &hint, &network.addresses);

	if (error != 0)
	{
		network.addresses = NULL;
		return because(gai_strerror(error));
	}
	for (const struct addrinfo *address = network.addresses; address; address = address->ai_next)
		left++;
	for (const struct addrinfo *address = network.addresses; address && result == BUCKET_FAILED; address = address->ai_next, left--)
	{
		int64		now = sweep_monotonic_us();
		char		number[NI_MAXHOST];

		error = getnameinfo(address->ai_addr, address->ai_addrlen, number, sizeof(number), NULL, 0, NI_NUMERICHOST);
		result = error != 0 ? because(gai_strerror(error)) :
			open_address(number, url->port, now + Max(deadline_us - now, 0) / left, request);
	}
	return result;
}

/* hiredis negotiates when it reads. */
static SweepBucketResult
begin_tls(int64 deadline_us, const SweepBucketRequest *request)
{
	const char *error = sweep_redis_tls_begin(network.context, network.target);
	SweepBucketResult result = error ? because(error) : BUCKET_OK;

	if (error != NULL)
		network.class = REDIS_CLASS_CONFIGURATION;
	while (result == BUCKET_OK && sweep_redis_tls_is_negotiating())
	{
		result = wait_for(WL_SOCKET_READABLE, deadline_us, request);
		if (result == BUCKET_OK)
			result = result_of(redisBufferRead(network.context));
	}
	return result;
}

/* Sets the failure, and closes a connection that cannot be used any more. */
static SweepBucketResult
finish(SweepBucketResult result, const char *what)
{
	if (result == BUCKET_FAILED)
		(void) sweep_redis_fail(network.class, NULL, NULL, "%s Redis at %s: %s", what, network.target->place, network.reason);
	if (result != BUCKET_OK)
		sweep_redis_network_close();
	return result;
}

SweepBucketResult
sweep_redis_network_open(const SweepRedisTarget *target, const SweepBucketRequest *request)
{
	const SweepRedisUrl *url = &target->url;
	int64		deadline_us = sweep_monotonic_us() + target->timeout_us;
	SweepBucketResult result;

	sweep_redis_network_close();
	network.target = target;
	if (url->path[0])
		result = open_address(url->path, 0, deadline_us, request);
	else
		result = open_host(url, deadline_us, request);
	if (result == BUCKET_OK && url->tls)
		result = begin_tls(deadline_us, request);
	return finish(result, "could not connect to");
}

bool
sweep_redis_network_is_usable(void)
{
	char		byte;

	/* A result of 0 is the end of the connection, 1 is data that no command has asked for. */
	return network.context != NULL &&
		recv(network.context->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EINTR);
}

/* Reads once; the reply may still be incomplete. A second reply to one command is an error. */
static SweepBucketResult
read_reply(int *reads)
{
	redisContext *context = network.context;

	if (++*reads > MOST_READS)
		return because(no_reply);
	if (redisBufferRead(context) != REDIS_OK || redisGetReplyFromReader(context, (void **) &network.reply) != REDIS_OK)
		return result_of(REDIS_ERR);
	if (network.reply == NULL)
		return BUCKET_OK;
	if (context->reader->pos < context->reader->len)
		return because(no_reply);
	if (network.reply->type == REDIS_REPLY_ERROR)
		sweep_redis_clean_text(network.reply->str, (size_t) network.reply->len);
	return BUCKET_OK;
}

SweepBucketResult
sweep_redis_network_execute(const SweepRedisCommand *command, const SweepBucketRequest *request, const redisReply **reply)
{
	int64		deadline_us = sweep_monotonic_us() + network.target->timeout_us;
	SweepBucketResult result;
	int			reads = 0;
	int			written = 0;

	freeReplyObject(network.reply);
	network.reply = NULL;
	result = result_of(redisAppendCommandArgv(network.context, command->count, (const char **) command->argument, NULL));
	while (result == BUCKET_OK && network.reply == NULL)
	{
		result = wait_for(written ? WL_SOCKET_READABLE : WL_SOCKET_WRITEABLE, deadline_us, request);
		if (result == BUCKET_OK)
			result = written ? read_reply(&reads) : result_of(redisBufferWrite(network.context, &written));
	}
	result = finish(result, "no reply from");
	*reply = network.reply;
	return result;
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
