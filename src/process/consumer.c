/*
 * consumer.c
 *		The process of a consumer in the database: calls a function for each message of a queue, or each batch of them.
 *
 * Registered by consumer_pool.c and connected as the role of the consumer from the beginning, so that the handler has
 * no other identity to go back to.
 *
 * A turn claims messages in a transaction of its own, which writes nothing. Then the handler
 * and the acknowledgement are one commit, so the changes of a handler in this database happen once. A handler that
 * takes sweep.message is called for each message of the batch, a handler that takes sweep.message[] once with all of
 * them. A batch that fails is halved until the failing message is alone (bisect.c); that message goes through
 * sweep.fail in a transaction of its own.
 *
 * A call of the handler counts as an attempt for its messages, unless an error of the server ends the call. Then the
 * process pauses and calls the handler again, up to ten times for a message, because a handler can raise such an
 * error itself.
 *
 * A message that was being handled when the server went down is a suspect. Each suspect is handled alone, and only
 * one of a role at a time, so that harmless ones are completed and the one that crashes the server is found. A
 * suspect has a time limit, because others wait for its end. With the third crash a message is moved to the
 * dead-letter table. See crash_note.c for how that is counted.
 *
 * A claim does not expire while its process lives; the exit callback gives its messages back. Therefore another
 * process never gets a message while its handler works, and gets it at once when the process ends.
 *
 * The process never waits with a transaction open. Contexts: data about the consumer is in TopMemoryContext; "turn" is reset at the top of each turn.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "pgstat.h"
#include "storage/ipc.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/lock.h"
#include "base/log_context.h"
#include "base/role.h"
#include "base/worker.h"
#include "engine/report.h"
#include "process/consumer_handle.h"
#include "process/crash_note.h"
#include "queue/queue.h"

static SweepStatement read_consumer_sql = {
	.text = "SELECT c.queue_id, q.name, c.batch, CASE WHEN sweep._handler_problem(c.handler) IS NULL "
		"THEN (sweep._find_handlers(c.handler))[1]::pg_catalog.oid END, "
		"EXISTS (SELECT FROM sweep.consumer_crash x WHERE x.queue_id = c.queue_id), "
		"'sweep.queue_message'::pg_catalog.regclass::pg_catalog.oid, q.visibility "
		"FROM sweep.consumer c JOIN sweep.queue q USING (queue_id) WHERE c.consumer_id = $1",
	.types = {INT4OID}};
static SweepStatement consumer_is_meant_sql = {
	.text = "SELECT FROM sweep.consumer c WHERE c.consumer_id = $1 AND c.paused_at IS NULL",
	.types = {INT4OID}};
static SweepStatement consumer_problem_sql = {
	.text = "SELECT sweep._consumer_problem(c) FROM sweep.consumer c "
		"WHERE c.consumer_id = $1 AND $2 = ANY (sweep._find_handlers(c.handler)::pg_catalog.oid[])",
	.types = {INT4OID, OIDOID}};
static SweepStatement find_crashes_sql = {
	.text = "SELECT message_id, crashes FROM sweep.consumer_crash WHERE queue_id = $1 AND message_id = ANY ($2)",
	.types = {INT4OID, INT8ARRAYOID}};

#define MOST_CRASHES 3

/* Number of calls with a message that an error of the server may end without counting as attempts. */
#define MOST_SPARED 10

#define HEARTBEAT_MS 10000
#define RETRY_MS 1
#define FIRST_PAUSE_MS 100
#define LONGEST_PAUSE_MS 30000
#define LONGEST_OUTAGE_MS 60000

/* Entry function of the process. Its arguments have the index and generation of the slot, and the consumer_id as run_id. */
extern PGDLLEXPORT void sweep_consumer_main(Datum arg);

static SweepConsumer own;

static void read_work(void *arg);
static void prepare_session(void);
static void take_turn(SweepConsumer *consumer);
static bool claim_messages(SweepConsumer *consumer);
static void claim_work(void *arg);
static bool is_meant(SweepConsumer *consumer);
static void mark_suspects(SweepConsumer *consumer);
static void handle_messages(SweepConsumer *consumer, int first, int count);
static void handle_suspect(SweepConsumer *consumer, int index);
static bool is_of_server(const ErrorData *error);
static bool may_spare(const SweepConsumer *consumer);
static void wait_for_server(SweepConsumer *consumer, const ErrorData *error);
static bool record(SweepConsumer *consumer, SweepWork work, ErrorData **error);
static bool fail_message(SweepConsumer *consumer, ErrorData **error);
static void fail_work(void *arg);
static void bury_work(void *arg);
static void problem_work(void *arg);
static void leave(int code, Datum arg);

void
sweep_consumer_main(Datum arg)
{
	SweepWorkerArgs args;
	ErrorData  *error = NULL;

	sweep_worker_args(&args);
	own.slot = &sweep_shared()->slots[args.index];
	own.consumer_id = (int32) args.run_id;
	own.role = args.role;
	if (!sweep_shared_attach(own.slot, args.generation))
		proc_exit(0);
	before_shmem_exit(leave, 0);
	sweep_worker_begin();
	sweep_worker_connect(args.database, args.role);
	sweep_crash_note_open(NOTE_OF_CONSUMER, args.index);

	own.turn_context = AllocSetContextCreate(TopMemoryContext, "pg_sweep turn", ALLOCSET_DEFAULT_SIZES);
	own.session_context = AllocSetContextCreate(TopMemoryContext, "pg_sweep session", ALLOCSET_SMALL_SIZES);
	MemoryContextSwitchTo(own.turn_context);
	if (!sweep_consumer_transact(&own, read_work, &error))
		ereport(FATAL,
				(errcode(error->sqlerrcode),
				 errmsg("consumer %d could not be read: %s", own.consumer_id, error->message)));
	if (own.present)
		sweep_log_context_say(psprintf("queue \"%s\"", own.queue));
	while (own.present && pg_atomic_read_u32(&own.slot->stop_request) == 0)
	{
		own.count = 0;
		MemoryContextReset(own.turn_context);
		MemoryContextSwitchTo(own.turn_context);
		sweep_worker_wait(0);	/* handles interrupts, and reloads the configuration */
		prepare_session();
		take_turn(&own);
	}
	proc_exit(0);
}

static void
read_work(void *arg)
{
	Datum		id = Int32GetDatum(own.consumer_id);

	own.present = sweep_sql_execute(&read_consumer_sql, &id, NULL) > 0;
	if (!own.present)
		return;
	own.queue_id = sweep_sql_int32(1);
	own.queue = sweep_sql_text(2, TopMemoryContext);
	own.batch = sweep_sql_int32(3);
	own.handler = sweep_sql_oid(4);
	own.has_suspects = sweep_sql_bool(5);
	own.relation = sweep_sql_oid(6);
	own.visibility_us = sweep_sql_interval_us(7, 0);
	own.present = OidIsValid(own.handler);
	/* The name as application_name will show it. */
	strlcpy(own.name, sweep_worker_ascii(psprintf("pg_sweep: %s", own.queue)), sizeof(own.name));
}

/* A handler may leave settings behind, so the settings that the engine relies on are set again. A new configuration takes effect in the next turn. */
static void
prepare_session(void)
{
	if (own.meaning == NULL || own.configured_at != PgReloadTime)
	{
		MemoryContextReset(own.session_context);
		sweep_worker_reset_session();
		sweep_worker_set("search_path", "pg_catalog, pg_temp");
		own.meaning = sweep_door_note_meaning(own.session_context, InvalidOid);
		own.configured_at = PgReloadTime;
	}
	sweep_door_put_back(own.meaning, own.role, GUC_ACTION_SET);
	if (strcmp(application_name, own.name) != 0)
		sweep_worker_set("application_name", own.name);
	pgstat_report_activity(STATE_IDLE, NULL);
}

/* Claims and handles messages. Without any, waits until there are some or the process is asked to leave. */
static void
take_turn(SweepConsumer *consumer)
{
	int			harmless = 0;

	if (!claim_messages(consumer))
		return;
	if (consumer->count == 0)
	{
		sweep_queue_wait(consumer->relation, consumer->queue_id, HEARTBEAT_MS, &consumer->slot->stop_request);
		return;
	}
	sweep_worker_watch_postmaster(true);
	/* Suspects come last, so that as few messages as possible wait for them. */
	for (int i = 0; i < consumer->count; i++)
	{
		SweepClaimed message = consumer->messages[i];

		if (message.crashes > 0)
			continue;
		memmove(&consumer->messages[harmless + 1], &consumer->messages[harmless], sizeof(SweepClaimed) * (i - harmless));
		consumer->messages[harmless++] = message;
	}
	handle_messages(consumer, 0, harmless);
	for (int i = harmless; i < consumer->count && consumer->present; i++)
		handle_suspect(consumer, i);
	sweep_worker_watch_postmaster(false);
}

/* False when the claim failed; then the process has paused. */
static bool
claim_messages(SweepConsumer *consumer)
{
	ErrorData  *error = NULL;
	ErrorData  *second = NULL;

	if (sweep_consumer_transact(consumer, claim_work, &error))
	{
		consumer->pause_ms = 0;
		return consumer->present;
	}
	/* The queue may have been dropped, and the consumer with it. */
	if (sweep_consumer_transact(consumer, problem_work, &second) && !consumer->present)
		return false;
	sweep_consumer_note(consumer, 0, error->message);
	/* A handler may have left the session in a state in which claims fail: the session is reset for a second try. */
	sweep_worker_reset_session();
	if (consumer->pause_ms == RETRY_MS)
		ereport(WARNING,
				(errcode(error->sqlerrcode),
				 errmsg("consumer of queue \"%s\" could not claim messages: %s", consumer->queue, error->message)));
	consumer->pause_ms = consumer->pause_ms == 0 ? RETRY_MS : Min(Max(consumer->pause_ms * 2, FIRST_PAUSE_MS), LONGEST_PAUSE_MS);
	sweep_worker_pause(consumer->pause_ms, &consumer->slot->stop_request);
	return false;
}

static void
claim_work(void *arg)
{
	SweepConsumer *consumer = arg;
	Datum		values[] = {CStringGetTextDatum(consumer->queue), Int32GetDatum(consumer->batch)};
	int			count;

	consumer->count = 0;
	if (!is_meant(consumer))
		return;
	if (consumer->claim == NULL)
		consumer->claim = sweep_sql_prepare("SELECT m, m.message_id, m.lease FROM sweep.claim($1, $2, pg_catalog.interval '10 years') AS m",
										   2, (Oid[]) {TEXTOID, INT4OID}, PLANNED_AS_CHOSEN);
	count = (int) sweep_sql_execute_plan(consumer->claim, values, NULL);
	consumer->messages = MemoryContextAllocZero(consumer->turn_context, sizeof(SweepClaimed) * (count + 1));
	consumer->untried = MemoryContextAlloc(consumer->turn_context, sizeof(int64) * (count + 1));
	for (int i = 0; i < count; i++)
	{
		sweep_sql_row(i);
		consumer->messages[i].record = sweep_sql_copy(1, consumer->turn_context);
		consumer->messages[i].message_id = sweep_sql_int64(2);
		consumer->lease = *DatumGetUUIDP(sweep_sql_copy(3, consumer->turn_context));
	}
	consumer->count = count;
	if (consumer->has_suspects && consumer->count > 0)
		mark_suspects(consumer);
}

/*
 * Whether the queue and the consumer are still those that this process was started for. New ones of the same name may
 * have another handler. The lock that is taken here keeps the queue from being dropped until the claim is made.
 */
static bool
is_meant(SweepConsumer *consumer)
{
	Datum		id = Int32GetDatum(consumer->consumer_id);

	consumer->present = sweep_role_problem(GetUserId(), true) == NULL &&
		sweep_queue_lock_to_consume(consumer->queue) == consumer->queue_id &&
		sweep_sql_execute(&consumer_is_meant_sql, &id, NULL) == 1;
	return consumer->present;
}

static void
mark_suspects(SweepConsumer *consumer)
{
	Datum		values[] = {Int32GetDatum(consumer->queue_id), (Datum) 0};
	uint64		found;

	consumer->piece = (SweepPiece) {0, consumer->count};
	values[1] = sweep_consumer_piece_ids(consumer);
	found = sweep_sql_execute(&find_crashes_sql, values, NULL);
	for (uint64 i = 0; i < found; i++)
	{
		sweep_sql_row(i);
		for (int m = 0; m < consumer->count; m++)
		{
			if (consumer->messages[m].message_id == sweep_sql_int64(1))
				consumer->messages[m].crashes = sweep_sql_int32(2);
		}
	}
}

static void
handle_messages(SweepConsumer *consumer, int first, int count)
{
	SweepBisect bisect;
	ErrorData  *error;
	SweepPiece	piece;

	sweep_bisect_begin(&bisect, count, false);
	while (consumer->present && sweep_bisect_next(&bisect, &piece))
	{
		consumer->piece = (SweepPiece) {first + piece.first, first + piece.end};
		while (consumer->present && !sweep_consumer_handle(consumer, &error))
		{
			if (!(is_of_server(error) && may_spare(consumer)) && (sweep_bisect_split(&bisect, piece) || fail_message(consumer, &error)))
				break;
			wait_for_server(consumer, error);
		}
	}
}

static void
handle_suspect(SweepConsumer *consumer, int index)
{
	const SweepClaimed *message = &consumer->messages[index];
	long		pause_ms = FIRST_PAUSE_MS;
	ErrorData  *error = NULL;

	consumer->piece = (SweepPiece) {index, index + 1};
	if (message->crashes >= MOST_CRASHES)
	{
		ErrorData	crash = {
			.sqlerrcode = ERRCODE_CRASH_SHUTDOWN,
			.message = psprintf("the server went down %d times while this message was handled", message->crashes)
		};

		consumer->error = sweep_report_error_jsonb(&crash);
		if (!record(consumer, bury_work, &error))
			ereport(FATAL,
					(errcode(error->sqlerrcode),
					 errmsg("message %lld of queue \"%s\" could not be moved to the dead-letter table: %s",
							(long long) message->message_id, consumer->queue, error->message)));
		ereport(WARNING,
				(errmsg("message %lld of queue \"%s\" was moved to the dead-letter table: %s",
						(long long) message->message_id, consumer->queue, crash.message)));
		return;
	}
	while (!sweep_lock_acquire_number(SWEEP_LOCK_SUSPECTS, consumer->role))
	{
		sweep_worker_wait(pause_ms);
		pause_ms = Min(pause_ms * 2, 1000);
		if (pg_atomic_read_u32(&consumer->slot->stop_request) != 0)
			return;
	}
	handle_messages(consumer, index, 1);
	sweep_lock_give_back_number(SWEEP_LOCK_SUSPECTS, consumer->role);
}

/* Whether the error is one of the server and not of a message. A shortage of memory can be either. */
static bool
is_of_server(const ErrorData *error)
{
	switch (error->sqlerrcode)
	{
		case ERRCODE_DISK_FULL:
		case ERRCODE_TOO_MANY_CONNECTIONS:
		case ERRCODE_CONFIGURATION_LIMIT_EXCEEDED:
		case ERRCODE_ADMIN_SHUTDOWN:
		case ERRCODE_CRASH_SHUTDOWN:
		case ERRCODE_CANNOT_CONNECT_NOW:
		case ERRCODE_DATABASE_DROPPED:
		case ERRCODE_IDLE_SESSION_TIMEOUT:
			return true;
		default:
			return ERRCODE_TO_CATEGORY(error->sqlerrcode) == ERRCODE_TO_CATEGORY(ERRCODE_SYSTEM_ERROR);
	}
}

/* Whether each message of the piece may be tried again without counting an attempt. */
static bool
may_spare(const SweepConsumer *consumer)
{
	for (int i = consumer->piece.first; i < consumer->piece.end; i++)
		if (consumer->messages[i].spared >= MOST_SPARED)
			return false;
	return true;
}

/* Pauses before the piece is tried again. A process that is asked to leave meanwhile gives the messages back as not tried. */
static void
wait_for_server(SweepConsumer *consumer, const ErrorData *error)
{
	for (int i = consumer->piece.first; i < consumer->piece.end; i++)
	{
		consumer->messages[i].called = false;
		consumer->messages[i].spared++;
	}
	consumer->outage_ms = consumer->outage_ms == 0 ? FIRST_PAUSE_MS : Min(consumer->outage_ms * 2, LONGEST_OUTAGE_MS);
	sweep_consumer_note(consumer, 0, error->message);
	ereport(WARNING,
			(errcode(error->sqlerrcode),
			 errmsg("consumer of queue \"%s\" pauses for %ld ms: %s", consumer->queue, consumer->outage_ms, error->message)));
	sweep_worker_pause(consumer->outage_ms, &consumer->slot->stop_request);
	if (pg_atomic_read_u32(&consumer->slot->stop_request) != 0)
		consumer->present = false;
}

/* Records the failure of a message. A handler may have left the session in a state in which writes fail: the session is reset for a second try. */
static bool
record(SweepConsumer *consumer, SweepWork work, ErrorData **error)
{
	if (sweep_consumer_transact(consumer, work, error))
		return true;
	sweep_worker_reset_session();
	return sweep_consumer_transact(consumer, work, error);
}

/*
 * A problem of the consumer itself, for example a handler that was dropped or has another argument now, does not count as a
 * failure of the message: the process ends and gives the message back. False when an error of the server prevents the record of
 * the failure; *error is that error then.
 */
static bool
fail_message(SweepConsumer *consumer, ErrorData **error)
{
	const SweepClaimed *message = &consumer->messages[consumer->piece.first];
	ErrorData  *failure = *error;

	consumer->error = sweep_report_error_jsonb(failure);
	if (!record(consumer, fail_work, error))
	{
		if (is_of_server(*error))
			return false;
		ereport(FATAL,
				(errcode((*error)->sqlerrcode),
				 errmsg("failure of message %lld of queue \"%s\" could not be recorded: %s",
						(long long) message->message_id, consumer->queue, (*error)->message),
				 errdetail("It had failed with: %s", failure->message)));
	}
	if (consumer->present)
	{
		sweep_consumer_note(consumer, 1, sweep_report_error_text(failure));
		ereport(LOG,
				(errcode(failure->sqlerrcode),
				 errmsg("message %lld of queue \"%s\" failed: %s", (long long) message->message_id, consumer->queue,
						failure->message)));
	}
	return true;
}

static void
fail_work(void *arg)
{
	SweepConsumer *consumer = arg;

	problem_work(consumer);
	if (consumer->present)
		(void) sweep_queue_fail_with(&consumer->lease, consumer->error, sweep_consumer_piece_ids(consumer), false);
}

/* Moves the only message of the piece to the dead-letter table, whatever its attempts. */
static void
bury_work(void *arg)
{
	SweepConsumer *consumer = arg;
	Datum		values[] = {Int32GetDatum(consumer->queue_id), sweep_consumer_piece_ids(consumer)};

	(void) sweep_queue_fail_with(&consumer->lease, consumer->error, values[1], true);
	(void) sweep_sql_execute(&sweep_forget_crashes_sql, values, NULL);
}

/* Checks that the consumer still exists with the handler that this process knows, and has no known problem. */
static void
problem_work(void *arg)
{
	SweepConsumer *consumer = arg;
	Datum		values[] = {Int32GetDatum(consumer->consumer_id), ObjectIdGetDatum(consumer->handler)};

	consumer->present = sweep_sql_execute(&consumer_problem_sql, values, NULL) == 1 && sweep_sql_is_null(1);
}

/*
 * Registered before the connection is made, so it runs after the transaction is rolled back: the messages that the
 * transaction was acknowledging are held again, and are given back here. A message that was not passed to the handler counts no attempt.
 */
static void
leave(int code, Datum arg)
{
	int			count = 0;

	for (int i = 0; i < own.count; i++)
		if (!own.messages[i].called)
			own.untried[count++] = own.messages[i].message_id;
	sweep_queue_release_lease(&own.lease, own.untried, count);
	if (own.queue != NULL)
		sweep_queue_pass_on(own.relation, own.queue_id);
	sweep_crash_note_close();
	sweep_shared_release(own.slot, true, false);
}
