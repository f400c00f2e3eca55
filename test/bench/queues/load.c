/*
 * load.c
 *		Producers and consumers of one queue, over libpq: what bench.sh and
 *		the TAP tests of queues put load on a server with.
 *
 * One thread and one loop over any number of connections, each with at most
 * one round trip under way; the statements of a round trip go as one pipeline.
 * The statements are arguments, so every queue that speaks SQL is measured by
 * the same program:
 *
 *	--send SQL       $1 text: a payload, with --send-batch an array of payloads;
 *	                 with --keys $2 text: a key; NULL when that was waiting already
 *	--claim SQL      returns (id bigint, payload text, handle text)
 *	--ack SQL        $1 bigint[]: the ids, $2 text: the handle; returns how many
 *	--release SQL    the same arguments: gives the messages back
 *	--fail SQL       the same arguments: they are not to come again for --backoff-ms
 *	--other SQL      something else that mixed transactions do within savepoints
 *
 * {client} in a statement is the number of the connection, {batch} the value of
 * --batch. Every payload has the number of its message, so books.c can tell what
 * was lost or doubled, and the time at which it was sent.
 *
 * Why not pgbench: it cannot keep what a consumer has received, and a number
 * that a queue reaches by losing messages is worth nothing.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <libpq-fe.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "load.h"

#define TYPE_TEXT 25
#define TYPE_INT8_ARRAY 1016
#define PRELOAD_BATCH 1000

/* What a connection is in the middle of. */
typedef enum State
{
	STATE_IDLE,					/* until wake_at */
	STATE_SENDING,				/* the statements before the end of a transaction */
	STATE_HOLDING,				/* in a transaction, until wake_at */
	STATE_ENDING,				/* COMMIT or whatever ends it */
	STATE_CLAIMING,
	STATE_WORKING,				/* on what it has claimed, until wake_at */
	STATE_ACKING,
	STATE_GIVING_BACK,
	STATE_CLEANING,				/* ROLLBACK after an error */
	STATE_STOPPED
} State;

typedef struct Client
{
	int			number;
	bool		producer;
	PGconn	   *conn;
	State		state;
	bool		failed;			/* an error in this round trip */
	int64_t		wake_at;
	int64_t		due,
				began;
	/* of a producer's transaction */
	char		ending[96];		/* the statement after the hold, or empty */
	int64_t    *numbers;
	Fate	   *fates;
	int			count;
	int			answers;		/* to sends */
	/* of a consumer's claim */
	char	   *ids;
	char	   *handle;
	long		acked;
	bool		some_row;
} Client;

static struct
{
	char	   *send,
			   *claim,
			   *ack,
			   *release,
			   *fail,
			   *other,
			   *tick,
			   *preload_send;
	int			producers,
				consumers,
				send_batch,
				batch,
				padding,
				mixed,
				one_transaction,
				keys,
				exclusive,
				after,
				warm_up,
				reconnect;
	double		rate,
				seconds,
				hold_ms,
				work_ms,
				backoff_ms,
				pause_ms,
				slice,
				patience,
				limit,
				forget;
	int64_t		messages,
				preload,
				preload_batch,
				first,
				stop_after;
} opt = {.send_batch = 1, .batch = 1, .padding = 40, .pause_ms = 5, .patience = 10, .limit = 600, .preload_batch = PRELOAD_BATCH};

static Client *clients;
static int	client_count;
static int	room;				/* for messages, per client */
static int64_t start_at,
			sending_ended_at,
			drain_began_at,
			last_ack_at,
			last_progress_at;
static int64_t issued,
			timed;
static bool sending,
			final_round,
			impatient,			/* ended while something was to come */
			cut_short;			/* what was not received is no loss */

static int64_t
now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t) ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

static void
die(const char *what, const char *detail)
{
	fprintf(stderr, "load: %s: %s\n", what, detail);
	exit(2);
}

static bool
is_resting(const Client *client)
{
	return client->state == STATE_IDLE || client->state == STATE_HOLDING || client->state == STATE_WORKING;
}

static double
chance(void)
{
	return drand48();
}

/* ------------------------------------------------------------- connections */

static void
prepare(Client *client, const char *name, const char *template, int types_count, const Oid *types)
{
	char		text[8192];
	size_t		length = 0;
	PGresult   *result;

	if (template == NULL)
		return;
	for (const char *c = template; *c != '\0' && length < sizeof(text) - 32; c++)
	{
		if (strncmp(c, "{client}", 8) == 0)
		{
			length += sprintf(text + length, "%d", client->number);
			c += 7;
		}
		else if (strncmp(c, "{batch}", 7) == 0)
		{
			length += sprintf(text + length, "%d", opt.batch);
			c += 6;
		}
		else
			text[length++] = *c;
	}
	text[length] = '\0';
	result = PQprepare(client->conn, name, text, types_count, types);
	if (PQresultStatus(result) != PGRES_COMMAND_OK)
		die(name, PQerrorMessage(client->conn));
	PQclear(result);
}

static void
must(PGconn *conn, PGresult *result)
{
	if (PQresultStatus(result) != PGRES_COMMAND_OK && PQresultStatus(result) != PGRES_TUPLES_OK)
		die("before the start", PQerrorMessage(conn));
	PQclear(result);
}

/*
 * --warm-up: the first calls of a session read catalogues and make plans. So before the clock starts, and
 * before there is a backlog, each consumer claims and acknowledges as many messages as that, one by one.
 */
static void
warm_up(Client *client)
{
	const char *message = "{\"{}\"}";

	must(client->conn, PQprepare(client->conn, "warm", opt.preload_send, 1, NULL));
	for (int i = 0; i < opt.warm_up; i++)
	{
		PGresult   *claimed;
		char		ids[32];
		const char *values[2] = {ids};

		must(client->conn, PQexecPrepared(client->conn, "warm", 1, &message, NULL, NULL, 0));
		claimed = PQexecPrepared(client->conn, "claim", 0, NULL, NULL, NULL, 0);
		if (PQntuples(claimed) != 1)
			die("warm-up", PQerrorMessage(client->conn));
		snprintf(ids, sizeof(ids), "{%s}", PQgetvalue(claimed, 0, 0));
		values[1] = PQgetvalue(claimed, 0, 2);
		must(client->conn, PQexecPrepared(client->conn, "ack", 2, values, NULL, NULL, 0));
		PQclear(claimed);
	}
}

static void
ignore_notice(void *arg, const char *message)
{
	(void) arg;
	(void) message;
}

/* Returns false when the server is not there. */
static bool
connect_client(Client *client)
{
	static const Oid send_types[] = {TYPE_TEXT, TYPE_TEXT};
	static const Oid ack_types[] = {TYPE_INT8_ARRAY, TYPE_TEXT};

	client->conn = PQconnectdb("");
	if (PQstatus(client->conn) != CONNECTION_OK)
		return false;
	PQsetNoticeProcessor(client->conn, ignore_notice, NULL);
	if (client->producer)
		prepare(client, "send", opt.send, opt.keys > 0 ? 2 : 1, send_types);
	else
	{
		prepare(client, "claim", opt.claim, 0, NULL);
		prepare(client, "ack", opt.ack, 2, ack_types);
		prepare(client, "release", opt.release, 2, ack_types);
		prepare(client, "fail", opt.fail, 2, ack_types);
		if (opt.warm_up > 0)
			warm_up(client);
	}
	PQsetnonblocking(client->conn, 1);
	PQenterPipelineMode(client->conn);
	return true;
}

static void
reconnect_client(Client *client)
{
	int64_t		give_up = now_us() + 60 * 1000000;

	if (!opt.reconnect)
		die("connection lost", PQerrorMessage(client->conn));
	do
	{
		struct timespec moment = {0, 20000000};

		PQfinish(client->conn);
		if (now_us() > give_up)
			die("cannot reconnect", "the server did not come back");
		ppoll(NULL, 0, &moment, NULL);
	} while (!connect_client(client));
	/* what it held or was about to commit has an unknown fate */
	books_crashed();
	if (client->state == STATE_ACKING)
	{
		for (int i = 0; i < client->count; i++)
			books_ack_in_doubt(client->numbers[i]);
	}
	client->state = STATE_IDLE;
	client->failed = false;
	client->wake_at = 0;
	last_progress_at = now_us();
}

static void
add_text(Client *client, const char *text)
{
	if (PQsendQueryParams(client->conn, text, 0, NULL, NULL, NULL, NULL, 0) != 1 && !opt.reconnect)
		books_fail(PQerrorMessage(client->conn));
}

static void
add_prepared(Client *client, const char *name, int count, const char *const *values)
{
	if (PQsendQueryPrepared(client->conn, name, count, values, NULL, NULL, 0) != 1 && !opt.reconnect)
		books_fail(PQerrorMessage(client->conn));
}

static void
go(Client *client, State state)
{
	client->state = state;
	client->failed = false;
	PQpipelineSync(client->conn);
	PQflush(client->conn);
}

static void
rest(Client *client, State state, int64_t until)
{
	client->state = state;
	client->wake_at = until;
}

/* --------------------------------------------------------------- producers */

/* Room for `count` payloads, each escaped, and the braces. */
static char *
payload_buffer(int count)
{
	static char *buffer;
	static int	size;

	if (count > size)
	{
		buffer = realloc(buffer, (size_t) count * (opt.padding + 96) + 3);
		size = count;
	}
	return buffer;
}

static void
new_message(Client *client, Fate fate)
{
	client->numbers[client->count] = books_next();
	client->fates[client->count++] = fate;
}

/* The payloads of numbers [from, from + count) of a client, one or as an array. */
static const char *
payloads(const int64_t *numbers, int count, bool array)
{
	char	   *buffer = payload_buffer(count),
			   *at = buffer;
	const char *quote = array ? "\\\"" : "\"";

	if (array)
		*at++ = '{';
	for (int i = 0; i < count; i++)
	{
		at += sprintf(at, array ? "%s\"{%sn%s: %lld, %st%s: %lld, %spad%s: %s" : "%s{%sn%s: %lld, %st%s: %lld, %spad%s: %s",
					  i > 0 ? "," : "", quote, quote, (long long) numbers[i], quote, quote, (long long) now_us(), quote, quote, quote);
		memset(at, 'x', opt.padding);
		at += opt.padding;
		at += sprintf(at, array ? "%s}\"" : "%s}", quote);
	}
	if (array)
		*at++ = '}';
	*at = '\0';
	return buffer;
}

static void
add_send(Client *client, Fate fate)
{
	int			from = client->count;
	const char *values[2];
	char		key[24];

	for (int i = 0; i < opt.send_batch; i++)
		new_message(client, fate);
	values[0] = payloads(client->numbers + from, opt.send_batch, opt.send_batch > 1);
	snprintf(key, sizeof(key), "%lld", opt.keys > 0 ? (long long) client->numbers[from] % opt.keys : 0);
	values[1] = key;
	add_prepared(client, "send", opt.keys > 0 ? 2 : 1, values);
}

/*
 * A transaction as real ones are: held open for a while, rolled back, with
 * subtransactions, or prepared. Each kind is a fifth.
 */
static void
begin_mixed(Client *client)
{
	char		gid[48],
				prepare_it[96];
	int			kind = (int) (chance() * 5);
	bool		commits = chance() < 0.75;
	Fate		fate = commits ? FATE_SENT : FATE_NEVER;

	strcpy(client->ending, commits ? "COMMIT" : "ROLLBACK");
	add_text(client, "BEGIN");
	add_send(client, fate);
	switch (kind)
	{
		case 0:					/* one part of it is undone */
			add_text(client, "SAVEPOINT s");
			add_send(client, FATE_NEVER);
			add_text(client, "ROLLBACK TO s");
			add_send(client, fate);
			break;
		case 1:					/* nested and kept, the inner one undone */
			add_text(client, "SAVEPOINT s");
			add_send(client, fate);
			if (opt.other != NULL)
				add_text(client, opt.other);
			add_text(client, "SAVEPOINT i");
			add_send(client, FATE_NEVER);
			add_text(client, "ROLLBACK TO i");
			add_text(client, "RELEASE s");
			break;
		case 2:					/* two phases */
			snprintf(gid, sizeof(gid), "load_%d_%lld", client->number, (long long) client->numbers[0]);
			snprintf(prepare_it, sizeof(prepare_it), "PREPARE TRANSACTION '%s'", gid);
			snprintf(client->ending, sizeof(client->ending), "%s PREPARED '%s'", commits ? "COMMIT" : "ROLLBACK", gid);
			add_text(client, prepare_it);
			break;
		default:
			break;
	}
}

static void
start_sending(Client *client, int64_t now)
{
	client->due = opt.rate > 0 ? start_at + (int64_t) (issued * 1e6 / opt.rate) : now;
	if (client->due > now)
	{
		rest(client, STATE_IDLE, client->due);
		return;
	}
	client->began = now;
	client->count = client->answers = 0;
	client->ending[0] = '\0';
	issued += opt.send_batch;
	books_time(METRIC_LAG, now - client->due, now);
	if (opt.mixed)
		begin_mixed(client);
	else if (opt.hold_ms > 0)
	{
		add_text(client, "BEGIN");
		add_send(client, FATE_SENT);
		strcpy(client->ending, "COMMIT");
	}
	else
		add_send(client, FATE_SENT);
	go(client, STATE_SENDING);
}

static void
sending_done(Client *client, int64_t now)
{
	if (client->state == STATE_SENDING && client->ending[0] != '\0')
	{
		rest(client, STATE_HOLDING, now + (int64_t) (chance() * opt.hold_ms * 1000));
		return;
	}
	for (int i = 0; i < client->count; i++)
		books_fate(client->numbers[i], client->fates[i]);
	timed += client->count;
	books_time(METRIC_SEND, now - client->due, now);
	last_progress_at = now;
	rest(client, STATE_IDLE, now);
}

/* --------------------------------------------------------------- consumers */

static void
start_claiming(Client *client, int64_t now)
{
	client->count = 0;
	client->some_row = false;
	client->began = now;
	if (opt.one_transaction)
		add_text(client, "BEGIN");
	add_prepared(client, "claim", 0, NULL);
	go(client, STATE_CLAIMING);
}

static int64_t
number_after(const char *payload, const char *name)
{
	const char *found = strstr(payload, name);

	return found == NULL ? -1 : strtoll(found + strlen(name), NULL, 10);
}

static void
take_rows(Client *client, const PGresult *result, int64_t now)
{
	int			rows = PQntuples(result);
	char	   *at = client->ids;

	*at++ = '{';
	client->some_row = rows > 0;
	for (int i = 0; i < rows; i++)
	{
		const char *payload = PQgetvalue(result, i, 1);

		if (PQgetisnull(result, i, 1))
			continue;
		if (client->count >= room)
			die("claim", "more rows than can be");
		client->numbers[client->count] = number_after(payload, "\"n\": ");
		books_got(client->numbers[client->count], now);
		books_time(METRIC_DELAY, now - number_after(payload, "\"t\": "), now);
		at += sprintf(at, "%s%s", client->count > 0 ? "," : "", PQgetvalue(result, i, 0));
		client->count++;
	}
	strcpy(at, "}");
	if (rows > 0)
		snprintf(client->handle, 128, "%s", PQgetvalue(result, 0, 2));
}

/*
 * From here on, before the answer, others may get messages with the keys of
 * these: they may be faster than our answer.
 */
static void
end_keys(const Client *client)
{
	for (int i = 0; opt.exclusive && i < client->count; i++)
		books_key_ends(client->numbers[i] % opt.keys);
}

/* It comes to somebody else; said before, because they may be faster than our answer. */
static void
give_back(Client *client, const char *how)
{
	int64_t		not_before = strcmp(how, "fail") == 0 ? now_us() + (int64_t) (opt.backoff_ms * 1000) : 0;
	const char *values[] = {client->ids, client->handle};

	for (int i = 0; i < client->count; i++)
	{
		books_returned(client->numbers[i]);
		books_not_before(client->numbers[i], not_before);
	}
	end_keys(client);
	if (strcmp(how, "rollback") == 0)
	{
		if (chance() < 0.5)
			add_prepared(client, "ack", 2, values);
		add_text(client, "ROLLBACK");
	}
	else
	{
		add_prepared(client, how, 2, values);
		if (opt.one_transaction)
			add_text(client, "COMMIT");
	}
	go(client, STATE_GIVING_BACK);
}

static void finish_work(Client *client, int64_t now);

static void
claiming_done(Client *client, int64_t now)
{
	books_time(client->count > 0 ? METRIC_CLAIM : METRIC_CLAIM_EMPTY, now - client->began, now);
	if (!client->some_row)
	{
		if (opt.one_transaction)
		{
			add_text(client, "COMMIT");
			go(client, STATE_GIVING_BACK);
		}
		else if (final_round)
			client->state = STATE_STOPPED;
		else
			rest(client, STATE_IDLE, now + (int64_t) (opt.pause_ms * 1000));
		return;
	}
	last_progress_at = now;
	for (int i = 0; opt.exclusive && i < client->count; i++)
		books_key_begins(client->numbers[i] % opt.keys);
	rest(client, STATE_WORKING, now + (int64_t) (chance() * opt.work_ms * 1000));
	if (opt.work_ms == 0)
		finish_work(client, now);
}

static void
finish_work(Client *client, int64_t now)
{
	const char *values[] = {client->ids, client->handle};

	if (opt.forget > 0 && chance() < opt.forget && !final_round)
	{
		for (int i = 0; i < client->count; i++)
			books_returned(client->numbers[i]);
		end_keys(client);
		if (opt.one_transaction)
			add_text(client, "COMMIT");
		go(client, STATE_GIVING_BACK);
		return;
	}
	if (opt.mixed && chance() < 0.15)
	{
		if (opt.fail != NULL && chance() < 0.3)
			give_back(client, "fail");
		else
			give_back(client, opt.one_transaction && chance() < 0.7 ? "rollback" : "release");
		return;
	}
	client->began = now;
	client->acked = -1;
	end_keys(client);
	add_prepared(client, "ack", 2, values);
	if (opt.one_transaction)
		add_text(client, "COMMIT");
	go(client, STATE_ACKING);
}

static void
acking_done(Client *client, int64_t now)
{
	if (client->acked != client->count)
	{
		char		text[96];

		snprintf(text, sizeof(text), "%ld of %d messages acknowledged", client->acked, client->count);
		books_fail(text);
	}
	for (int i = 0; i < client->count; i++)
		books_acked(client->numbers[i]);
	books_time(METRIC_ACK, now - client->began, now);
	last_ack_at = last_progress_at = now;
	rest(client, STATE_IDLE, now);
}

/* ---------------------------------------------------------------- the loop */

static void
round_trip_done(Client *client)
{
	int64_t		now = now_us();

	if (client->failed && client->state != STATE_CLEANING)
	{
		add_text(client, "ROLLBACK");
		go(client, STATE_CLEANING);
		return;
	}
	switch (client->state)
	{
		case STATE_SENDING:
		case STATE_ENDING:
			sending_done(client, now);
			break;
		case STATE_CLAIMING:
			claiming_done(client, now);
			break;
		case STATE_ACKING:
			acking_done(client, now);
			break;
		default:
			if (final_round && !client->producer && client->state == STATE_GIVING_BACK && client->count == 0)
				client->state = STATE_STOPPED;
			else
				rest(client, STATE_IDLE, client->count > 0 ? now : now + (int64_t) (opt.pause_ms * 1000));
			break;
	}
}

static void
take_result(Client *client, const PGresult *result)
{
	switch (PQresultStatus(result))
	{
		case PGRES_TUPLES_OK:
			if (client->state == STATE_CLAIMING)
				take_rows(client, result, now_us());
			else if (client->state == STATE_SENDING && opt.keys > 0 && PQntuples(result) == 1)
			{
				if (PQgetisnull(result, 0, 0) && client->fates[client->answers] == FATE_SENT)
					client->fates[client->answers] = FATE_LEFT_OUT;
				client->answers++;
			}
			else if (client->state == STATE_ACKING && PQntuples(result) == 1)
				client->acked = atol(PQgetvalue(result, 0, 0));
			break;
		case PGRES_FATAL_ERROR:
			client->failed = true;
			if (!opt.reconnect)
				books_fail(PQresultErrorMessage(result));
			break;
		default:
			break;
	}
}

static void
read_client(Client *client)
{
	if (PQconsumeInput(client->conn) != 1)
	{
		reconnect_client(client);
		return;
	}
	/* NULL ends the results of one statement; twice means that nothing more is here */
	for (int nulls = 0; nulls < 2 && client->state != STATE_STOPPED && !is_resting(client) && !PQisBusy(client->conn);)
	{
		PGresult   *result = PQgetResult(client->conn);
		bool		ended = result != NULL && PQresultStatus(result) == PGRES_PIPELINE_SYNC;

		nulls = result == NULL ? nulls + 1 : 0;
		if (PQstatus(client->conn) != CONNECTION_OK)
		{
			PQclear(result);
			reconnect_client(client);
			return;
		}
		if (result != NULL && !ended)
			take_result(client, result);
		PQclear(result);
		if (ended)
			round_trip_done(client);
	}
}

/* What an idle client does next, if anything; it is due now. */
static void
advance(Client *client, int64_t now)
{
	if (client->state == STATE_WORKING)
		finish_work(client, now);
	else if (client->state == STATE_HOLDING)
	{
		add_text(client, client->ending);
		go(client, STATE_ENDING);
	}
	else if (client->state != STATE_IDLE)
		return;
	else if (!client->producer)
	{
		if (!opt.after || !sending)
			start_claiming(client, now);
	}
	else if (sending && (opt.messages == 0 || issued < opt.messages) &&
			 (opt.seconds == 0 || now < start_at + (int64_t) (opt.seconds * 1e6)))
		start_sending(client, now);
	else
		client->state = STATE_STOPPED;
}

/* Returns false when everything is done. */
static bool
look_after_phases(int64_t now)
{
	bool		producing = false,
				consuming = false;

	for (int i = 0; i < client_count; i++)
	{
		if (clients[i].state == STATE_STOPPED)
			continue;
		producing |= clients[i].producer;
		consuming |= !clients[i].producer;
	}
	if (sending && !producing)
	{
		sending = false;
		sending_ended_at = last_progress_at = now;
		if (opt.after)
			drain_began_at = now;
	}
	/* An acknowledgement in doubt did not happen when its message comes again: then this was not the final round. */
	final_round = !sending && books_complete();
	impatient = !sending && now - last_progress_at > (int64_t) (opt.patience * 1e6);
	if (impatient)
		return false;
	if (now - start_at > (int64_t) (opt.limit * 1e6) ||
		(opt.stop_after > 0 && books_acked_count() >= opt.stop_after))
	{
		cut_short = true;
		return false;
	}
	return producing || consuming;
}

static void
run(void)
{
	struct pollfd *fds = calloc(client_count, sizeof(struct pollfd));
	int64_t		now = now_us();

	while (look_after_phases(now))
	{
		int64_t		wake = now + 100000;
		struct timespec wait;

		for (int i = 0; i < client_count; i++)
		{
			Client	   *client = &clients[i];

			if (is_resting(client) && client->wake_at <= now)
				advance(client, now);
			if (is_resting(client) && client->wake_at > now && client->wake_at < wake)
				wake = client->wake_at;
			fds[i].fd = PQsocket(client->conn);
			fds[i].events = POLLIN;
			if (!is_resting(client) && client->state != STATE_STOPPED && PQflush(client->conn) == 1)
				fds[i].events |= POLLOUT;
		}
		wait.tv_sec = (wake - now) / 1000000;
		wait.tv_nsec = (wake - now) % 1000000 * 1000;
		if (ppoll(fds, client_count, &wait, NULL) < 0 && errno != EINTR)
			die("ppoll", strerror(errno));
		for (int i = 0; i < client_count; i++)
			if (fds[i].revents != 0)
				read_client(&clients[i]);
		now = now_us();
	}
	free(fds);
}

/* -------------------------------------------------------- start and the end */

/* A backlog, before the clock starts; --tick closes each batch of it. */
static void
preload(void)
{
	PGconn	   *conn = PQconnectdb("");
	int64_t    *numbers = calloc(opt.preload_batch, sizeof(int64_t));

	if (PQstatus(conn) != CONNECTION_OK)
		die("preload", PQerrorMessage(conn));
	PQsetNoticeProcessor(conn, ignore_notice, NULL);
	must(conn, PQprepare(conn, "send", opt.preload_send, 1, NULL));
	for (int64_t done = 0; done < opt.preload; done += opt.preload_batch)
	{
		const char *value;

		for (int i = 0; i < opt.preload_batch; i++)
			numbers[i] = books_next();
		value = payloads(numbers, (int) opt.preload_batch, true);
		must(conn, PQexecPrepared(conn, "send", 1, &value, NULL, NULL, 0));
		for (int i = 0; i < opt.preload_batch; i++)
			books_fate(numbers[i], FATE_SENT);
		if (opt.tick != NULL)
			must(conn, PQexec(conn, opt.tick));
	}
	free(numbers);
	PQfinish(conn);
}

static void
create_clients(void)
{
	room = opt.batch > opt.send_batch * 4 ? opt.batch : opt.send_batch * 4;
	if (room < PRELOAD_BATCH)
		room = PRELOAD_BATCH;
	client_count = opt.producers + opt.consumers;
	clients = calloc(client_count, sizeof(Client));
	for (int i = 0; i < client_count; i++)
	{
		Client	   *client = &clients[i];

		client->producer = i < opt.producers;
		client->number = client->producer ? i + 1 : i - opt.producers + 1;
		client->numbers = calloc(room, sizeof(int64_t));
		client->fates = calloc(room, sizeof(Fate));
		client->ids = calloc(room, 24);
		client->handle = calloc(1, 128);
		if (!connect_client(client))
			die("connection", PQerrorMessage(client->conn));
	}
}

static void
parse(int argc, char **argv)
{
	static const struct
	{
		const char *name;
		char	  **text;
		int		   *number;
		double	   *real;
		int64_t    *large;
	}			table[] = {
		{"--send", .text = &opt.send}, {"--claim", .text = &opt.claim}, {"--ack", .text = &opt.ack},
		{"--release", .text = &opt.release}, {"--fail", .text = &opt.fail}, {"--other", .text = &opt.other}, {"--tick", .text = &opt.tick}, {"--preload-send", .text = &opt.preload_send},
		{"--producers", .number = &opt.producers}, {"--consumers", .number = &opt.consumers},
		{"--send-batch", .number = &opt.send_batch}, {"--batch", .number = &opt.batch}, {"--padding", .number = &opt.padding},
		{"--keys", .number = &opt.keys}, {"--exclusive", .number = &opt.exclusive}, {"--mixed", .number = &opt.mixed}, {"--one-transaction", .number = &opt.one_transaction},
		{"--after", .number = &opt.after}, {"--warm-up", .number = &opt.warm_up}, {"--reconnect", .number = &opt.reconnect},
		{"--rate", .real = &opt.rate}, {"--seconds", .real = &opt.seconds}, {"--hold-ms", .real = &opt.hold_ms},
		{"--work-ms", .real = &opt.work_ms}, {"--backoff-ms", .real = &opt.backoff_ms},
		{"--pause-ms", .real = &opt.pause_ms}, {"--slice", .real = &opt.slice}, {"--patience", .real = &opt.patience},
		{"--limit", .real = &opt.limit}, {"--forget", .real = &opt.forget},
		{"--messages", .large = &opt.messages}, {"--preload", .large = &opt.preload},
		{"--preload-batch", .large = &opt.preload_batch}, {"--first", .large = &opt.first},
		{"--stop-after", .large = &opt.stop_after},
	};
	size_t		n;

	for (int i = 1; i < argc; i += 2)
	{
		for (n = 0; n < sizeof(table) / sizeof(table[0]); n++)
			if (strcmp(argv[i], table[n].name) == 0)
				break;
		if (n == sizeof(table) / sizeof(table[0]) || i + 1 == argc)
			die("unknown option, or one without a value", argv[i]);
		if (table[n].text != NULL)
			*table[n].text = argv[i + 1];
		else if (table[n].number != NULL)
			*table[n].number = (int) strtol(argv[i + 1], NULL, 10);
		else if (table[n].real != NULL)
			*table[n].real = strtod(argv[i + 1], NULL);
		else
			*table[n].large = strtoll(argv[i + 1], NULL, 10);
	}
}

int
main(int argc, char **argv)
{
	int			status;
	double		send_seconds,
				drain_seconds;

	parse(argc, argv);
	srand48(20260101);
	books_set_keys(opt.keys);
	books_skip(opt.first);
	create_clients();
	opt.warm_up = 0;
	if (opt.preload > 0)
		preload();
	start_at = drain_began_at = last_progress_at = now_us();
	books_begin(start_at, (int64_t) (opt.slice * 1e6));
	sending = true;
	run();
	send_seconds = (double) (sending_ended_at - start_at) / 1e6;
	drain_seconds = last_ack_at > 0 ? (double) (last_ack_at - drain_began_at) / 1e6 : 0;
	printf("impatient\t%d\n", impatient);
	status = books_report(timed, send_seconds, drain_seconds, cut_short || opt.consumers == 0);
	for (int i = 0; i < client_count; i++)
		PQfinish(clients[i].conn);
	return status;
}
