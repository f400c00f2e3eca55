/*
 * consumer_turn.c
 *		One turn of a consumer in the database.
 *
 * Called by consumer.c. A turn: claim in a transaction of its own, which writes nothing; then the handler
 * and the acknowledgement, which are one commit: what a handler does in this database happens once. A
 * handler of sweep.message is called for each message of the batch, one of sweep.message[] once with all of
 * them. A batch that fails is halved until the failing message stands alone (bisect.c), and that one follows
 * sweep.fail in a transaction of its own.
 *
 * Messages in whose handling the server went down before are suspects: each is handled alone, and only
 * one in a database at a time, so that the harmless ones among them get done and the guilty one is known.
 * With the third crash a message is moved to the dead-letter table. See consumer_note.c for how that is counted.
 *
 * Nothing is waited for with a transaction open.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "pgstat.h"
#include "storage/proc.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timeout.h"

#include "base/elsewhere.h"
#include "base/lock.h"
#include "base/worker.h"
#include "engine/report.h"
#include "process/consumer_note.h"
#include "process/consumer_turn.h"
#include "queue/queue.h"

#define MOST_CRASHES 3

#define HEARTBEAT_MS 10000
#define RETRY_MS 1
#define FIRST_PAUSE_MS 100
#define LONGEST_PAUSE_MS 30000

static bool claim_messages(SweepConsumer *consumer);
static void claim_work(void *arg);
static bool is_meant(SweepConsumer *consumer);
static void mark_suspects(SweepConsumer *consumer);
static void handle_messages(SweepConsumer *consumer, int first, int count);
static void handle_suspect(SweepConsumer *consumer, int index);
static bool handle_piece(SweepConsumer *consumer, ErrorData **error);
static void handle_work(void *arg);
static void prepare_call(SweepConsumer *consumer);
static Datum piece_array(const SweepConsumer *consumer);
static void call_handler(SweepConsumer *consumer, Datum argument, int first, int count);
static void acknowledge(SweepConsumer *consumer);
static void fail_message(SweepConsumer *consumer, ErrorData *error);
static void fail_work(void *arg);
static void bury_work(void *arg);
static void problem_work(void *arg);
static Datum piece_ids(const SweepConsumer *consumer);

bool
sweep_consumer_transact(SweepConsumer *consumer, SweepWork work, ErrorData **error)
{
	const SweepTxnPolicy policy = {.error_context = consumer->turn_context, .waits = true};
	SweepTxnEnd end = sweep_txn_execute(&policy, work, consumer, error);

	if (end == TXN_ABSENT)
		consumer->present = false;
	return end != TXN_FAILED;
}

void
sweep_consumer_take_turn(SweepConsumer *consumer)
{
	int			harmless = 0;

	if (!claim_messages(consumer))
		return;
	if (consumer->count == 0)
	{
		sweep_queue_wait(consumer->relation, consumer->queue_id, HEARTBEAT_MS, &consumer->slot->leave);
		return;
	}
	sweep_worker_watch_postmaster(true);
	/* Suspects come last, so that what waits for them is as little as possible. */
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

/* False when it failed; then it has waited. */
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
	sweep_consumer_shared_note(consumer->index, 0, error->message);
	/* A handler may have left a session in which nothing can be claimed: then the second try will do. */
	sweep_worker_reset_session();
	if (consumer->pause_ms == RETRY_MS)
		ereport(WARNING,
				(errcode(error->sqlerrcode),
				 errmsg("consumer of queue \"%s\" could not claim messages: %s", consumer->queue, error->message)));
	consumer->pause_ms = consumer->pause_ms == 0 ? RETRY_MS : Min(Max(consumer->pause_ms * 2, FIRST_PAUSE_MS), LONGEST_PAUSE_MS);
	sweep_worker_wait(consumer->pause_ms);
	return false;
}

static void
claim_work(void *arg)
{
	SweepConsumer *consumer = arg;
	Datum		values[] = {CStringGetTextDatum(consumer->queue), Int32GetDatum(consumer->batch)};

	consumer->count = 0;
	if (!is_meant(consumer))
		return;
	if (consumer->claim == NULL)
		consumer->claim = sweep_sql_prepare("SELECT m, m.message_id, m.lease FROM sweep.claim($1, $2, pg_catalog.interval '10 years') AS m",
										   2, (Oid[]) {TEXTOID, INT4OID}, false);
	consumer->count = (int) sweep_sql_execute_plan(consumer->claim, values, NULL);
	consumer->messages = MemoryContextAllocZero(consumer->turn_context, sizeof(SweepClaimed) * (consumer->count + 1));
	for (int i = 0; i < consumer->count; i++)
	{
		sweep_sql_row(i);
		consumer->messages[i].record = sweep_sql_copy(1, consumer->turn_context);
		consumer->messages[i].message_id = sweep_sql_int64(2);
		consumer->lease = *DatumGetUUIDP(sweep_sql_copy(3, consumer->turn_context));
	}
	if (consumer->has_suspects && consumer->count > 0)
		mark_suspects(consumer);
}

/*
 * Whether the queue of that name is still ours, and so is the consumer. Another one of the same name may
 * have another handler. The lock that is taken here keeps the queue from being dropped until the claim is
 * made.
 */
static bool
is_meant(SweepConsumer *consumer)
{
	Datum		id = Int32GetDatum(consumer->consumer_id);

	consumer->present = sweep_queue_lock_to_consume(consumer->queue) == consumer->queue_id &&
		sweep_sql_execute(SWEEP_SQL_CONSUMER_IS_MEANT, &id, NULL) == 1;
	return consumer->present;
}

static void
mark_suspects(SweepConsumer *consumer)
{
	Datum		values[] = {Int32GetDatum(consumer->queue_id), (Datum) 0};
	uint64		found;

	consumer->piece = (SweepPiece) {0, consumer->count};
	values[1] = piece_ids(consumer);
	found = sweep_sql_execute(SWEEP_SQL_FIND_CRASHES, values, NULL);
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
		if (!handle_piece(consumer, &error) && !sweep_bisect_split(&bisect, piece))
			fail_message(consumer, error);
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
		if (!sweep_consumer_transact(consumer, bury_work, &error))
			ereport(FATAL,
					(errcode(error->sqlerrcode),
					 errmsg("message %lld of queue \"%s\" could not be moved to the dead-letter table: %s",
							(long long) message->message_id, consumer->queue, error->message)));
		ereport(WARNING,
				(errmsg("message %lld of queue \"%s\" was moved to the dead-letter table: %s",
						(long long) message->message_id, consumer->queue, crash.message)));
		return;
	}
	while (!sweep_lock_acquire_number(SWEEP_LOCK_SUSPECTS, 0))
	{
		sweep_worker_wait(pause_ms);
		pause_ms = Min(pause_ms * 2, 1000);
		if (pg_atomic_read_u32(&consumer->slot->leave) != 0)
			return;
	}
	handle_messages(consumer, index, 1);
	sweep_lock_give_back_number(SWEEP_LOCK_SUSPECTS, 0);
}

static bool
handle_piece(SweepConsumer *consumer, ErrorData **error)
{
	int			count = consumer->piece.end - consumer->piece.first;
	int64	   *ids = palloc(sizeof(int64) * count);
	bool		done;

	for (int i = 0; i < count; i++)
		ids[i] = consumer->messages[consumer->piece.first + i].message_id;
	sweep_consumer_note_write(consumer->queue_id, ids, count);
	sweep_worker_allow_cancel(true);
	done = sweep_consumer_transact(consumer, handle_work, error);
	disable_timeout(STATEMENT_TIMEOUT, false);
	sweep_worker_allow_cancel(false);
	sweep_consumer_note_clear();
	if (done && consumer->present)
		sweep_consumer_shared_note(consumer->index, count, NULL);
	pfree(ids);
	return done;
}

static void
handle_work(void *arg)
{
	SweepConsumer *consumer = arg;

	if (consumer->call == NULL)
		prepare_call(consumer);
	sweep_step_check_callee(&consumer->callee);
	if (OidIsValid(consumer->element))
		call_handler(consumer, piece_array(consumer), consumer->piece.first, consumer->piece.end - consumer->piece.first);
	else
	{
		for (int i = consumer->piece.first; i < consumer->piece.end; i++)
			call_handler(consumer, consumer->messages[i].record, i, 1);
	}
	acknowledge(consumer);
}

static void
prepare_call(SweepConsumer *consumer)
{
	/* It may have been dropped since the consumer was read. */
	char	   *name = sweep_step_function_name(consumer->handler);
	Oid		   *types;
	int			count;

	(void) get_func_signature(consumer->handler, &types, &count);
	consumer->callee = (SweepCallee) {.name = MemoryContextStrdup(TopMemoryContext, name), .argument = types[0]};
	consumer->element = get_element_type(types[0]);
	consumer->call = sweep_sql_prepare(psprintf("SELECT %s($1)", name), count, types, false);
}

/* The messages of the piece, as sweep.message[], in the order of the claim. */
static Datum
piece_array(const SweepConsumer *consumer)
{
	int			count = consumer->piece.end - consumer->piece.first;
	Datum	   *elements = palloc(sizeof(Datum) * count);
	int16		length;
	bool		by_value;
	char		align;

	for (int i = 0; i < count; i++)
		elements[i] = consumer->messages[consumer->piece.first + i].record;
	get_typlenbyvalalign(consumer->element, &length, &by_value, &align);
	return PointerGetDatum(construct_array(elements, count, consumer->element, length, by_value, align));
}

/* The statement timeout of the role is that of one call. */
static void
call_handler(SweepConsumer *consumer, Datum argument, int first, int count)
{
	char		activity[NAMEDATALEN + 64];
	long long	message_id = (long long) consumer->messages[first].message_id;

	if (count == 1)
		snprintf(activity, sizeof(activity), "%s: message %lld", consumer->queue, message_id);
	else
		snprintf(activity, sizeof(activity), "%s: %d messages from %lld", consumer->queue, count, message_id);
	pgstat_report_activity(STATE_RUNNING, activity);
	if (StatementTimeout > 0)
		enable_timeout_after(STATEMENT_TIMEOUT, StatementTimeout);
	sweep_door_put_back(consumer->meaning, GUC_ACTION_SET);
	(void) sweep_sql_execute_plan(consumer->call, &argument, NULL);
	if (StatementTimeout > 0)
		disable_timeout(STATEMENT_TIMEOUT, false);
}

/* Without the lease the effect must not stand: the messages are somebody else's. */
static void
acknowledge(SweepConsumer *consumer)
{
	Datum		values[] = {UUIDPGetDatum(&consumer->lease), piece_ids(consumer)};
	int			count = consumer->piece.end - consumer->piece.first;

	/* A handler may have become another role. */
	if (GetUserId() != consumer->role)
		sweep_worker_set("role", "none");
	if (consumer->ack == NULL)
		consumer->ack = sweep_sql_prepare("SELECT sweep.ack($1, $2)", 2, (Oid[]) {UUIDOID, INT8ARRAYOID}, false);
	(void) sweep_sql_execute_plan(consumer->ack, values, NULL);
	if (sweep_sql_int32(1) != count)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg_plural("lease of queue \"%s\" holds %d of %d message", "lease of queue \"%s\" holds %d of %d messages", count,
							   consumer->queue, sweep_sql_int32(1), count),
				 errhint("The consumer acknowledges by itself: a handler must not.")));
	if (consumer->has_suspects)
	{
		values[0] = Int32GetDatum(consumer->queue_id);
		(void) sweep_sql_execute(SWEEP_SQL_FORGET_CRASHES, values, NULL);
	}
	(void) sweep_elsewhere_prepare_commit();
}

/*
 * What stands in the way of the consumer itself, a handler that was dropped or replaced by one with another
 * argument, is no failure of the message: the process ends and gives it back.
 */
static void
fail_message(SweepConsumer *consumer, ErrorData *error)
{
	const SweepClaimed *message = &consumer->messages[consumer->piece.first];
	ErrorData  *second = NULL;

	consumer->error = sweep_report_error_jsonb(error);
	sweep_consumer_shared_note(consumer->index, 1, sweep_report_error_text(error));
	if (!sweep_consumer_transact(consumer, fail_work, &second))
		ereport(FATAL,
				(errcode(second->sqlerrcode),
				 errmsg("failure of message %lld of queue \"%s\" could not be recorded: %s",
						(long long) message->message_id, consumer->queue, second->message),
				 errdetail("It had failed with: %s", error->message)));
	if (consumer->present)
		ereport(LOG,
				(errcode(error->sqlerrcode),
				 errmsg("message %lld of queue \"%s\" failed: %s", (long long) message->message_id, consumer->queue,
						error->message)));
}

static void
fail_work(void *arg)
{
	SweepConsumer *consumer = arg;

	problem_work(consumer);
	if (consumer->present)
		(void) sweep_queue_fail_with(&consumer->lease, consumer->error, piece_ids(consumer), false);
}

/* Moves the one message of the piece to the dead-letter table, whatever its attempts. */
static void
bury_work(void *arg)
{
	SweepConsumer *consumer = arg;
	Datum		values[] = {Int32GetDatum(consumer->queue_id), piece_ids(consumer)};

	(void) sweep_queue_fail_with(&consumer->lease, consumer->error, values[1], true);
	(void) sweep_sql_execute(SWEEP_SQL_FORGET_CRASHES, values, NULL);
}

/* Whether the consumer is still meant, with the handler that this process knows, and nothing is known to stand in its way. */
static void
problem_work(void *arg)
{
	SweepConsumer *consumer = arg;
	Datum		values[] = {Int32GetDatum(consumer->consumer_id), ObjectIdGetDatum(consumer->handler)};

	consumer->present = sweep_sql_execute(SWEEP_SQL_CONSUMER_PROBLEM, values, NULL) == 1 && sweep_sql_is_null(1);
}

/* The ids of the messages of the piece, as bigint[]. */
static Datum
piece_ids(const SweepConsumer *consumer)
{
	int			count = consumer->piece.end - consumer->piece.first;
	Datum	   *elements = palloc(sizeof(Datum) * count);

	for (int i = 0; i < count; i++)
		elements[i] = Int64GetDatum(consumer->messages[consumer->piece.first + i].message_id);
	return PointerGetDatum(construct_array(elements, count, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}
