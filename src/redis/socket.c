/*
 * socket.c
 *		One socket to Redis, waited for without ever blocking.
 *
 * Called by connection.c. The socket is ours and not one of hiredis, whose connect blocks in 0.14 and in
 * 1.x alike for the first address only, leaves the descriptor open to programs that SQL starts, and has
 * no deadline of its own. So it is here that every wait is: for the latch, the socket, the deadline and
 * the end of the postmaster, in pieces short enough that a request to stop is answered at once.
 *
 * Everything is in static places: whatever ends the wait, sweep_redis_socket_close() finds it. The one
 * thing that can block is the resolver of the operating system, for a host that is no address and not in
 * /etc/hosts; it gives up as /etc/resolv.conf says.
 */
#include "postgres.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "miscadmin.h"
#include "port.h"
#include "portability/instr_time.h"
#include "storage/fd.h"
#include "storage/latch.h"

#include "base/compat.h"
#include "redis/socket.h"
#include "redis/tls.h"

/* The longest time without a question whether to stop. */
#define SLICE_US INT64CONST(150000)

static pgsocket fd = PGINVALID_SOCKET;
static struct addrinfo *addresses = NULL;
static char reason[256];

static SweepRedisProgress open_unix(const char *path, const SweepRedisDeadline *deadline);
static SweepRedisProgress open_tcp(const SweepRedisUrl *url, const SweepRedisDeadline *deadline);
static SweepRedisProgress open_address(const struct sockaddr *address, socklen_t size, int family, const SweepRedisDeadline *deadline);
static bool create_socket(int family);
static SweepRedisProgress begin_tls(const SweepRedisTarget *target, const SweepRedisDeadline *deadline);
static SweepRedisProgress wait_for(uint32 event, const SweepRedisDeadline *deadline);
static SweepRedisProgress broken(const char *text);
static void close_descriptor(void);

int64
sweep_redis_now(void)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	return (int64) INSTR_TIME_GET_MICROSEC(now);
}

const char *
sweep_redis_socket_reason(void)
{
	return reason;
}

SweepRedisProgress
sweep_redis_socket_open(const SweepRedisTarget *target, const SweepRedisDeadline *deadline)
{
	const SweepRedisUrl *url = &target->url;
	SweepRedisProgress progress;

	sweep_redis_socket_close();
	reason[0] = '\0';
	progress = url->path[0] ? open_unix(url->path, deadline) : open_tcp(url, deadline);
	if (progress == PROGRESS_DONE && url->tls)
		progress = begin_tls(target, deadline);
	if (progress != PROGRESS_DONE)
		sweep_redis_socket_close();
	return progress;
}

bool
sweep_redis_socket_is_usable(void)
{
	char		byte;

	if (fd == PGINVALID_SOCKET)
		return false;
	if (sweep_redis_tls_is_active())
		return sweep_redis_tls_is_quiet();
	/* 0 would be the end, 1 something that nobody has asked for. */
	return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
}

SweepRedisProgress
sweep_redis_socket_write(const char *data, size_t size, const SweepRedisDeadline *deadline)
{
	while (size > 0)
	{
		uint32		wants = 0;
		ssize_t		done;

		if (sweep_redis_tls_is_active())
			done = sweep_redis_tls_write(data, size, &wants);
		else
		{
			done = send(fd, data, size, MSG_NOSIGNAL);
			if (done < 0 && errno == EINTR)
				continue;
			if (done < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
				wants = WL_SOCKET_WRITEABLE;
		}
		if (done > 0)
		{
			data += done;
			size -= (size_t) done;
		}
		else if (wants == 0)
			return broken("the connection was lost");
		else
		{
			SweepRedisProgress progress = wait_for(wants, deadline);

			if (progress != PROGRESS_DONE)
				return progress;
		}
	}
	return PROGRESS_DONE;
}

SweepRedisProgress
sweep_redis_socket_read(char *data, size_t size, size_t *length, const SweepRedisDeadline *deadline)
{
	for (;;)
	{
		uint32		wants = 0;
		ssize_t		done;
		SweepRedisProgress progress;

		if (sweep_redis_tls_is_active())
			done = sweep_redis_tls_read(data, size, &wants);
		else
		{
			done = recv(fd, data, size, 0);
			if (done < 0 && errno == EINTR)
				continue;
			if (done < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
				wants = WL_SOCKET_READABLE;
		}
		if (done > 0)
		{
			*length = (size_t) done;
			return PROGRESS_DONE;
		}
		if (wants == 0)
			return broken(done == 0 ? "it closed the connection" : "the connection was lost");
		progress = wait_for(wants, deadline);
		if (progress != PROGRESS_DONE)
			return progress;
	}
}

void
sweep_redis_socket_close(void)
{
	sweep_redis_tls_end();
	close_descriptor();
	if (addresses != NULL)
		freeaddrinfo(addresses);
	addresses = NULL;
}

static SweepRedisProgress
open_unix(const char *path, const SweepRedisDeadline *deadline)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	strlcpy(address.sun_path, path, sizeof(address.sun_path));
	return open_address((struct sockaddr *) &address, sizeof(address), AF_UNIX, deadline);
}

/* Each address gets its share of the time that is left. */
static SweepRedisProgress
open_tcp(const SweepRedisUrl *url, const SweepRedisDeadline *deadline)
{
	struct addrinfo hint = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
	SweepRedisProgress progress = PROGRESS_BROKEN;
	char		port[16];
	int			left = 0;
	int			error;

	snprintf(port, sizeof(port), "%d", url->port);
	error = getaddrinfo(url->host, port, &hint, &addresses);
	if (error != 0)
	{
		addresses = NULL;
		return broken(gai_strerror(error));
	}
	for (const struct addrinfo *address = addresses; address; address = address->ai_next)
		left++;
	for (const struct addrinfo *address = addresses; address; address = address->ai_next)
	{
		SweepRedisDeadline share = *deadline;
		int64		now = sweep_redis_now();

		share.deadline_us = now + Max(deadline->deadline_us - now, 0) / Max(left, 1);
		left--;
		progress = open_address(address->ai_addr, address->ai_addrlen, address->ai_family, &share);
		if (progress == PROGRESS_DONE || progress == PROGRESS_STOPPED)
			break;
	}
	return progress;
}

static SweepRedisProgress
open_address(const struct sockaddr *address, socklen_t size, int family, const SweepRedisDeadline *deadline)
{
	SweepRedisProgress progress = PROGRESS_DONE;
	int			error = 0;
	socklen_t	error_size = sizeof(error);

	if (!create_socket(family))
		return PROGRESS_BROKEN;
	if (connect(fd, address, size) != 0)
	{
		error = errno;
		if (error == EINPROGRESS || error == EINTR)
		{
			progress = wait_for(WL_SOCKET_CONNECTED, deadline);
			if (progress == PROGRESS_DONE && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_size) != 0)
				error = errno;
		}
		if (progress == PROGRESS_DONE && error != 0)
			progress = broken(strerror(error));
	}
	if (progress != PROGRESS_DONE)
		close_descriptor();
	return progress;
}

/* Not to block, not for programs that SQL may start, and counted among the files of the process. */
static bool
create_socket(int family)
{
	int			on = 1;

	close_descriptor();
	if (!AcquireExternalFD())
	{
		(void) broken("too many files are open");
		return false;
	}
	fd = socket(family, SOCK_STREAM, 0);
	if (fd == PGINVALID_SOCKET)
	{
		int			error = errno;

		ReleaseExternalFD();
		(void) broken(strerror(error));
		return false;
	}
	(void) fcntl(fd, F_SETFD, FD_CLOEXEC);
	if (!pg_set_noblock(fd))
	{
		(void) broken("its socket cannot be used without blocking");
		close_descriptor();
		return false;
	}
	if (family != AF_UNIX)
	{
		(void) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		(void) setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	}
	return true;
}

static SweepRedisProgress
begin_tls(const SweepRedisTarget *target, const SweepRedisDeadline *deadline)
{
	const char *error = sweep_redis_tls_begin(target, fd);
	SweepRedisProgress progress = PROGRESS_DONE;

	if (error != NULL)
	{
		(void) broken(error);
		return PROGRESS_REFUSED;
	}
	while (progress == PROGRESS_DONE)
	{
		uint32		wants = 0;

		if (sweep_redis_tls_handshake(&wants) == 1)
			return PROGRESS_DONE;
		if (wants == 0)
		{
			progress = broken(sweep_redis_tls_reason());
			return sweep_redis_tls_is_cert_rejected() ? PROGRESS_REFUSED : progress;
		}
		progress = wait_for(wants, deadline);
	}
	return progress;
}

/*
 * Waits until the socket can go on. A request to cancel is not raised: is_stopped() sees it, and the caller
 * of all this decides. What else interrupts a process is served here.
 */
static SweepRedisProgress
wait_for(uint32 event, const SweepRedisDeadline *deadline)
{
	for (;;)
	{
		int64		left = deadline->deadline_us - sweep_redis_now();
		int			happened;

		if (deadline->is_stopped(deadline->arg))
			return PROGRESS_STOPPED;
		if (left <= 0)
		{
			snprintf(reason, sizeof(reason), "no answer within pg_sweep.redis_timeout");
			return PROGRESS_LATE;
		}
		happened = WaitLatchOrSocket(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH | event,
									 fd, Min(left, SLICE_US) / 1000 + 1, sweep_wait_event());
		if (happened & WL_LATCH_SET)
			ResetLatch(MyLatch);
		if (deadline->is_stopped(deadline->arg))
			return PROGRESS_STOPPED;
		HOLD_CANCEL_INTERRUPTS();
		CHECK_FOR_INTERRUPTS();
		RESUME_CANCEL_INTERRUPTS();
		if (happened & event)
			return PROGRESS_DONE;
	}
}

static SweepRedisProgress
broken(const char *text)
{
	strlcpy(reason, text, sizeof(reason));
	return PROGRESS_BROKEN;
}

static void
close_descriptor(void)
{
	if (fd == PGINVALID_SOCKET)
		return;
	(void) closesocket(fd);
	fd = PGINVALID_SOCKET;
	ReleaseExternalFD();
}
