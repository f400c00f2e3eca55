/*
 * queue_send.c
 *		sweep.send and sweep.send_many.
 *
 * A message is a row that is inserted in the sender's transaction; the books (queue_books.c) tell the
 * consumers when that has committed. Without a key the rows are inserted without SQL, many at a time.
 * With a key it is a statement with ON CONFLICT: the index decides whether the key is waiting, so two
 * senders at once, or one that rolls back, can neither double nor lose a message. A sender whose key is
 * in an open transaction of another sender, or of a consumer that is just claiming it, waits for that
 * transaction: only its end tells.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "queue_books.h"
#include "queue_table.h"
#include "sql.h"

/* Rows that are inserted at a time. */
#define INSERT_ROWS 100

typedef struct Shipment
{
	Relation	messages;
	const SweepQueue *queue;
	Oid			sequence;
	int16		lane;
	TimestampTz due_at;			/* when the lane is one of delayed messages */
	Datum		headers;
	bool		has_headers;
	int			count;
	Datum	   *payloads;
	SweepQueueChange *change;
} Shipment;

static void open_shipment(Shipment *shipment, FunctionCallInfo fcinfo, int delay_argument, const char *name);
static int64 next_id(Shipment *shipment);
static int64 insert_rows(Shipment *shipment);
static void fill_slot(const Shipment *shipment, TupleTableSlot *slot, int64 message_id, TimestampTz sent_at, int number);
static bool insert_with_key(Shipment *shipment, Datum key, int64 message_id);
static int64 insert_with_keys(Shipment *shipment, ArrayType *payloads, ArrayType *keys);
static int count_elements(ArrayType *array);

PG_FUNCTION_INFO_V1(sweep_queue_send);
PG_FUNCTION_INFO_V1(sweep_queue_send_many);

/* SQL: sweep.send(queue text, payload jsonb, key text, delay interval, priority int, headers jsonb) */
Datum
sweep_queue_send(PG_FUNCTION_ARGS)
{
	Shipment	shipment = {0};
	Datum		payload;
	int64		message_id;
	bool		sent = true;

	open_shipment(&shipment, fcinfo, 3, "sweep.send()");
	if (PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("payload must not be null"),
				 errhint("Send '{}' or 'null' when there is nothing to say.")));
	payload = PG_GETARG_DATUM(1);
	shipment.payloads = &payload;
	shipment.count = 1;
	shipment.has_headers = !PG_ARGISNULL(5);
	shipment.headers = shipment.has_headers ? PG_GETARG_DATUM(5) : (Datum) 0;
	if (PG_ARGISNULL(2))
		message_id = insert_rows(&shipment);
	else
	{
		message_id = next_id(&shipment);
		sent = insert_with_key(&shipment, PG_GETARG_DATUM(2), message_id);
	}
	sweep_queue_close(shipment.messages);
	if (!sent)
		PG_RETURN_NULL();
	PG_RETURN_INT64(message_id);
}

/* SQL: sweep.send_many(queue text, payloads jsonb[], keys text[], delay interval, priority int) */
Datum
sweep_queue_send_many(PG_FUNCTION_ARGS)
{
	Shipment	shipment = {0};
	ArrayType  *payloads = PG_ARGISNULL(1) ? construct_empty_array(JSONBOID) : PG_GETARG_ARRAYTYPE_P(1);
	ArrayType  *keys = PG_ARGISNULL(2) ? NULL : PG_GETARG_ARRAYTYPE_P(2);
	bool	   *nulls;
	int64		sent;

	open_shipment(&shipment, fcinfo, 3, "sweep.send_many()");
	if (keys != NULL && count_elements(keys) != count_elements(payloads))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%d keys for %d payloads", count_elements(keys), count_elements(payloads)),
				 errhint("Give one key for each payload, NULL where a message has none, or no keys at all.")));
	deconstruct_array(payloads, JSONBOID, -1, false, TYPALIGN_INT, &shipment.payloads, &nulls, &shipment.count);
	for (int i = 0; i < shipment.count; i++)
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("payload %d must not be null", i + 1),
					 errhint("Send '{}' or 'null' when there is nothing to say.")));
	sent = shipment.count;
	if (shipment.count > 0 && keys == NULL)
		(void) insert_rows(&shipment);
	else if (shipment.count > 0)
		sent = insert_with_keys(&shipment, payloads, keys);
	sweep_queue_close(shipment.messages);
	PG_RETURN_INT64(sent);
}

/* What both functions have in common: the queue is the first argument, delay and priority follow each other. */
static void
open_shipment(Shipment *shipment, FunctionCallInfo fcinfo, int delay_argument, const char *name)
{
	int64		delay_us = PG_ARGISNULL(delay_argument) ? 0 : sweep_interval_us(PG_GETARG_INTERVAL_P(delay_argument));
	int32		priority = PG_ARGISNULL(delay_argument + 1) ? 0 : PG_GETARG_INT32(delay_argument + 1);

	PreventCommandIfReadOnly(name);
	if (PG_ARGISNULL(0))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("name of the queue must not be null")));
	if (priority < SWEEP_PRIORITY_MIN || priority > SWEEP_PRIORITY_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid priority %d", priority),
				 errhint("A priority is between %d and %d; higher ones are delivered first.", SWEEP_PRIORITY_MIN, SWEEP_PRIORITY_MAX)));
	if (delay_us < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a delay must not be negative")));
	shipment->messages = sweep_queue_open();
	shipment->queue = sweep_queue_find(PG_GETARG_TEXT_PP(0), RIGHT_SEND);
	shipment->lane = (int16) (delay_us > 0 ? priority + SWEEP_LANE_DELAYED : priority);
	shipment->due_at = delay_us > 0 ? GetCurrentTimestamp() + delay_us : 0;
	shipment->sequence = get_relname_relid("queue_message_message_id_seq", RelationGetNamespace(shipment->messages));
	shipment->change = sweep_books_open(RelationGetRelid(shipment->messages), shipment->queue->queue_id);
}

static int64
next_id(Shipment *shipment)
{
	return nextval_internal(shipment->sequence, false);
}

/* Inserts the messages, none of which has a key, and returns the id of the first. */
static int64
insert_rows(Shipment *shipment)
{
	EState	   *estate = CreateExecutorState();
	ResultRelInfo *relation = makeNode(ResultRelInfo);
	TimestampTz sent_at = GetCurrentTransactionStartTimestamp();
	int			room = Min(shipment->count, INSERT_ROWS);
	TupleTableSlot **slots = palloc(room * sizeof(TupleTableSlot *));
	int64		first_id = 0;

	InitResultRelInfo(relation, shipment->messages, 0, NULL, 0);
	ExecOpenIndices(relation, false);
	for (int i = 0; i < room; i++)
		slots[i] = table_slot_create(shipment->messages, NULL);
	for (int done = 0; done < shipment->count; done += room)
	{
		int			rows = Min(room, shipment->count - done);

		CHECK_FOR_INTERRUPTS();
		for (int i = 0; i < rows; i++)
		{
			int64		message_id = next_id(shipment);

			if (first_id == 0)
				first_id = message_id;
			fill_slot(shipment, slots[i], message_id, sent_at, done + i);
			sweep_books_add_sent(shipment->change, shipment->lane, message_id, shipment->due_at);
		}
		table_multi_insert(shipment->messages, slots, rows, GetCurrentCommandId(true), 0, NULL);
		for (int i = 0; i < rows; i++)
		{
			(void) sweep_insert_index_tuples(relation, slots[i], estate);
			ResetPerTupleExprContext(estate);
		}
	}
	for (int i = 0; i < room; i++)
		ExecDropSingleTupleTableSlot(slots[i]);
	ExecCloseIndices(relation);
	FreeExecutorState(estate);
	pfree(slots);
	return first_id;
}

static void
fill_slot(const Shipment *shipment, TupleTableSlot *slot, int64 message_id, TimestampTz sent_at, int number)
{
	bool		delayed = SWEEP_LANE_IS_DELAYED(shipment->lane);

	ExecClearTuple(slot);
	memset(slot->tts_isnull, false, MESSAGE_COLUMNS * sizeof(bool));
	slot->tts_values[MESSAGE_ID - 1] = Int64GetDatum(message_id);
	slot->tts_values[MESSAGE_SENT_AT - 1] = TimestampTzGetDatum(sent_at);
	/* A microsecond apart, so that a search goes on from where it stopped. */
	slot->tts_values[MESSAGE_DUE_AT - 1] = TimestampTzGetDatum(shipment->due_at + number);
	slot->tts_isnull[MESSAGE_DUE_AT - 1] = !delayed;
	slot->tts_values[MESSAGE_QUEUE_ID - 1] = Int32GetDatum(shipment->queue->queue_id);
	slot->tts_values[MESSAGE_LANE - 1] = Int16GetDatum(shipment->lane);
	slot->tts_values[MESSAGE_ATTEMPTS - 1] = Int16GetDatum(0);
	slot->tts_values[MESSAGE_CLAIMED - 1] = BoolGetDatum(false);
	slot->tts_isnull[MESSAGE_KEY - 1] = true;
	slot->tts_values[MESSAGE_HEADERS - 1] = shipment->headers;
	slot->tts_isnull[MESSAGE_HEADERS - 1] = !shipment->has_headers;
	slot->tts_isnull[MESSAGE_ERROR - 1] = true;
	slot->tts_values[MESSAGE_PAYLOAD - 1] = shipment->payloads[number];
	ExecStoreVirtualTuple(slot);
}

/* False when the key is waiting already. */
static bool
insert_with_key(Shipment *shipment, Datum key, int64 message_id)
{
	bool		delayed = SWEEP_LANE_IS_DELAYED(shipment->lane);
	Datum		values[] = {
		Int64GetDatum(message_id), Int32GetDatum(shipment->queue->queue_id), Int16GetDatum(shipment->lane),
		TimestampTzGetDatum(shipment->due_at), key, shipment->headers, shipment->payloads[0]
	};
	char		nulls[] = "       ";
	uint64		sent;

	nulls[3] = delayed ? ' ' : 'n';
	nulls[5] = shipment->has_headers ? ' ' : 'n';
	sweep_sql_begin_call();
	sweep_books_begin_statement();
	sent = sweep_sql_execute(SWEEP_SQL_SEND_KEY, values, nulls);
	sweep_books_end_statement();
	sweep_sql_end_call();
	if (sent > 0)
		sweep_books_add_sent(shipment->change, shipment->lane, message_id, shipment->due_at);
	return sent > 0;
}

static int64
insert_with_keys(Shipment *shipment, ArrayType *payloads, ArrayType *keys)
{
	Datum	   *ids = palloc(shipment->count * sizeof(Datum));
	char		nulls[] = "      ";
	uint64		sent;

	for (int i = 0; i < shipment->count; i++)
		ids[i] = Int64GetDatum(next_id(shipment));
	Datum		values[] = {
		PointerGetDatum(construct_array(ids, shipment->count, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE)),
		Int32GetDatum(shipment->queue->queue_id), Int16GetDatum(shipment->lane), TimestampTzGetDatum(shipment->due_at),
		PointerGetDatum(keys), PointerGetDatum(payloads)
	};

	nulls[3] = SWEEP_LANE_IS_DELAYED(shipment->lane) ? ' ' : 'n';
	sweep_sql_begin_call();
	sweep_books_begin_statement();
	sent = sweep_sql_execute(SWEEP_SQL_SEND_KEYS, values, nulls);
	sweep_books_end_statement();
	sweep_sql_end_call();
	/* Which of them were sent is not asked; the first id is low enough for all. */
	for (uint64 i = 0; i < sent; i++)
		sweep_books_add_sent(shipment->change, shipment->lane, DatumGetInt64(ids[0]), shipment->due_at);
	return (int64) sent;
}

static int
count_elements(ArrayType *array)
{
	return ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));
}
