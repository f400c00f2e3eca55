/*
 * consumer_handle.c
 *		One transaction of a consumer: the handler is called for messages, and they are acknowledged.
 *
 * Called by consumer.c for a piece of the claimed messages. Before the handler is called with a message, the note of the process names
 * it, in case the server goes down, and the message is marked as called, which counts as an attempt.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "utils/array.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "base/remote.h"
#include "base/timer.h"
#include "base/worker.h"
#include "process/consumer_handle.h"
#include "process/crash_note.h"
#include "queue/queue.h"

SweepStatement sweep_forget_crashes_sql = {
	.text = "DELETE FROM sweep.consumer_crash WHERE queue_id = $1 AND message_id = ANY ($2)",
	.types = {INT4OID, INT8ARRAYOID}};

/* Shortest time limit of a suspect whose role has no statement_timeout, in us. */
#define SUSPECT_LIMIT_US (60 * USECS_PER_SEC)

static void note_in_hand(const SweepConsumer *consumer, int first, int count);
static void handle_work(void *arg);
static void prepare_call(SweepConsumer *consumer);
static Datum piece_array(const SweepConsumer *consumer);
static void call_handler(SweepConsumer *consumer, Datum argument, int first, int count);
static int	timeout_ms(const SweepConsumer *consumer, const SweepClaimed *message);
static void acknowledge(SweepConsumer *consumer);

bool
sweep_consumer_transact(SweepConsumer *consumer, SweepWork work, ErrorData **error)
{
	const SweepTxnPolicy policy = {.error_context = consumer->turn_context, .waits = true};
	SweepTxnEnd end = sweep_txn_execute(&policy, work, consumer, error);

	if (end == TXN_ABSENT)
		consumer->present = false;
	return end != TXN_FAILED;
}

bool
sweep_consumer_handle(SweepConsumer *consumer, ErrorData **error)
{
	int			count = consumer->piece.end - consumer->piece.first;
	bool		done;

	note_in_hand(consumer, consumer->piece.first, count);
	sweep_worker_allow_cancel(true);
	sweep_queue_keep_lease(&consumer->lease);
	done = sweep_consumer_transact(consumer, handle_work, error);
	(void) sweep_timer_disarm_statement();
	sweep_queue_keep_lease(NULL);
	sweep_worker_allow_cancel(false);
	sweep_crash_note_clear();
	if (done)
		consumer->outage_ms = 0;
	if (done && consumer->present && !sweep_remote_has_confirmed(consumer->awaited))
		ereport(WARNING,
				(errmsg_plural("%d message of queue \"%s\" is acknowledged, but not replicated",
							   "%d messages of queue \"%s\" are acknowledged, but not replicated", count, count, consumer->queue),
				 errdetail("The commit of message %lld did not wait until a synchronous standby had it.",
						   (long long) consumer->messages[consumer->piece.first].message_id)));
	if (done && consumer->present)
		sweep_consumer_note(consumer, count, NULL);
	return done;
}

/* Notes the messages that are being handled, for the case that the server crashes. */
static void
note_in_hand(const SweepConsumer *consumer, int first, int count)
{
	int64	   *ids = palloc(sizeof(int64) * count);

	for (int i = 0; i < count; i++)
		ids[i] = consumer->messages[first + i].message_id;
	sweep_crash_note_write(consumer->queue_id, ids, count);
	pfree(ids);
}

static void
handle_work(void *arg)
{
	SweepConsumer *consumer = arg;
	int			first = consumer->piece.first;
	int			count = consumer->piece.end - first;

	if (consumer->call == NULL)
		prepare_call(consumer);
	sweep_step_check_callee(&consumer->callee);
	if (OidIsValid(consumer->element))
		call_handler(consumer, piece_array(consumer), first, count);
	else
	{
		for (int i = first; i < consumer->piece.end; i++)
		{
			if (count > 1)
				note_in_hand(consumer, i, 1);
			call_handler(consumer, consumer->messages[i].record, i, 1);
		}
		/* A deferred trigger may belong to any of the messages. */
		if (count > 1)
			note_in_hand(consumer, first, count);
	}
	acknowledge(consumer);
	consumer->awaited = sweep_remote_awaits();
}

static void
prepare_call(SweepConsumer *consumer)
{
	/* The handler may have been dropped since the consumer was read. */
	char	   *name = sweep_step_function_name(consumer->handler);
	Oid		   *types;
	int			count;

	(void) get_func_signature(consumer->handler, &types, &count);
	consumer->callee = (SweepCallee) {.name = MemoryContextStrdup(TopMemoryContext, name), .argument = types[0]};
	consumer->element = get_element_type(types[0]);
	consumer->call = sweep_sql_prepare(psprintf("SELECT %s($1)", name), count, types, PLANNED_AS_CHOSEN);
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

/* The timeout applies to each call. */
static void
call_handler(SweepConsumer *consumer, Datum argument, int first, int count)
{
	char		activity[NAMEDATALEN + 64];
	long long	message_id = (long long) consumer->messages[first].message_id;

	if (count == 1)
		snprintf(activity, sizeof(activity), "%s: message %lld", consumer->queue, message_id);
	else
		snprintf(activity, sizeof(activity), "%s: %d messages from %lld", consumer->queue, count, message_id);
	sweep_worker_report_activity(activity);
	for (int i = first; i < first + count; i++)
		consumer->messages[i].called = true;
	sweep_timer_arm_statement(timeout_ms(consumer, &consumer->messages[first]));
	sweep_door_put_back(consumer->meaning, consumer->role, GUC_ACTION_SET);
	(void) sweep_sql_execute_plan(consumer->call, &argument, NULL);
	(void) sweep_timer_disarm_statement();
}

/* The timeout of the role. Without one, a suspect, for whose end others wait, has the visibility timeout of the queue. 0 = no limit. */
static int
timeout_ms(const SweepConsumer *consumer, const SweepClaimed *message)
{
	if (StatementTimeout > 0 || message->crashes == 0)
		return StatementTimeout;
	return (int) Min(Max(consumer->visibility_us, SUSPECT_LIMIT_US) / 1000, PG_INT32_MAX);
}

/* Raises an error if the lease no longer holds the messages: the handler's changes must be undone, because another claim has them. */
static void
acknowledge(SweepConsumer *consumer)
{
	Datum		values[] = {UUIDPGetDatum(&consumer->lease), sweep_consumer_piece_ids(consumer)};
	int			count = consumer->piece.end - consumer->piece.first;

	/* A handler may have changed the role. */
	if (GetUserId() != consumer->role)
		sweep_worker_set("role", "none");
	if (consumer->ack == NULL)
		consumer->ack = sweep_sql_prepare("SELECT sweep.ack($1, $2)", 2, (Oid[]) {UUIDOID, INT8ARRAYOID}, PLANNED_AS_CHOSEN);
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
		(void) sweep_sql_execute(&sweep_forget_crashes_sql, values, NULL);
	}
	(void) sweep_remote_prepare_commit();
}

void
sweep_consumer_note(const SweepConsumer *consumer, int64 messages, const char *error)
{
	SweepSlot  *slot = consumer->slot;
	int			length = error == NULL ? 0 : pg_mbcliplen(error, strlen(error), SWEEP_CONSUMER_ERROR_SIZE - 1);

	SpinLockAcquire(&slot->mutex);
	if (error == NULL)
		slot->handled += messages;
	else
	{
		slot->failed += messages;
		memcpy(slot->last_error, error, length);
		slot->last_error[length] = '\0';
	}
	SpinLockRelease(&slot->mutex);
}

Datum
sweep_consumer_piece_ids(const SweepConsumer *consumer)
{
	int			count = consumer->piece.end - consumer->piece.first;
	Datum	   *elements = palloc(sizeof(Datum) * count);

	for (int i = 0; i < count; i++)
		elements[i] = Int64GetDatum(consumer->messages[consumer->piece.first + i].message_id);
	return PointerGetDatum(construct_array(elements, count, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}
