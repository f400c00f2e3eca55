/*
 * send.c
 *		sweep.send and sweep.send_many.
 *
 * A message is a row that is inserted in the sender's transaction; the books (books.c) tell the
 * consumers when that has committed. It is done without SQL (insert.c). A message with a key is
 * inserted unless one with this key is waiting already (key.c).
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/compat.h"
#include "base/primary.h"
#include "queue/key.h"
#include "queue/send.h"
#include "queue/table.h"

static void open_shipment(SweepShipment *shipment, FunctionCallInfo fcinfo, int delay_argument, const char *name);
static int64 next_id(const SweepShipment *shipment);
static int64 send_without_keys(const SweepShipment *shipment);
static int64 send_with_keys(const SweepShipment *shipment, const Datum *keys, const bool *nulls);
static int	count_elements(ArrayType *array);

PG_FUNCTION_INFO_V1(sweep_queue_send);
PG_FUNCTION_INFO_V1(sweep_queue_send_many);

/* SQL: sweep.send(queue text, payload jsonb, key text, delay interval, priority int, headers jsonb) */
Datum
sweep_queue_send(PG_FUNCTION_ARGS)
{
	SweepShipment shipment = {0};
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
		message_id = send_without_keys(&shipment);
	else
	{
		SweepKeyed	message = {.key = PG_GETARG_TEXT_PP(2)};

		message.message_id = message_id = next_id(&shipment);
		sent = sweep_key_insert(&shipment, &message, 1) > 0;
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
	SweepShipment shipment = {0};
	ArrayType  *payloads = PG_ARGISNULL(1) ? construct_empty_array(JSONBOID) : PG_GETARG_ARRAYTYPE_P(1);
	ArrayType  *keys = PG_ARGISNULL(2) ? NULL : PG_GETARG_ARRAYTYPE_P(2);
	bool	   *nulls;
	int64		sent;

	open_shipment(&shipment, fcinfo, 3, "sweep.send_many()");
	if (keys != NULL && count_elements(keys) != count_elements(payloads))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("number of keys (%d) differs from number of payloads (%d)", count_elements(keys), count_elements(payloads)),
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
		(void) send_without_keys(&shipment);
	else if (shipment.count > 0)
	{
		Datum	   *values;

		deconstruct_array(keys, TEXTOID, -1, false, TYPALIGN_INT, &values, &nulls, &shipment.count);
		sent = send_with_keys(&shipment, values, nulls);
	}
	sweep_queue_close(shipment.messages);
	PG_RETURN_INT64(sent);
}

/* What both functions have in common: the queue is the first argument, delay and priority follow each other. */
static void
open_shipment(SweepShipment *shipment, FunctionCallInfo fcinfo, int delay_argument, const char *name)
{
	int64		delay_us = PG_ARGISNULL(delay_argument) ? 0 : sweep_interval_us(PG_GETARG_INTERVAL_P(delay_argument));
	int32		priority = PG_ARGISNULL(delay_argument + 1) ? 0 : PG_GETARG_INT32(delay_argument + 1);

	sweep_primary_require(name);
	PreventCommandIfReadOnly(name);
	PreventCommandIfParallelMode(name);
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
	shipment->queue_id = sweep_queue_find(PG_GETARG_TEXT_PP(0), RIGHT_SEND)->queue_id;
	shipment->lane = (int16) (delay_us > 0 ? priority + SWEEP_LANE_DELAYED : priority);
	shipment->due_at = delay_us > 0 ? GetCurrentTimestamp() + delay_us : 0;
	shipment->sequence = get_relname_relid("queue_message_message_id_seq", RelationGetNamespace(shipment->messages));
	shipment->change = sweep_books_open(RelationGetRelid(shipment->messages), shipment->queue_id);
}

static int64
next_id(const SweepShipment *shipment)
{
	return nextval_internal(shipment->sequence, false);
}

/* Returns the id of the first message. */
static int64
send_without_keys(const SweepShipment *shipment)
{
	SweepInserter inserter;
	int64		first_id = 0;

	sweep_inserter_open(&inserter, shipment);
	for (int done = 0; done < shipment->count; done += inserter.filled)
	{
		CHECK_FOR_INTERRUPTS();
		inserter.filled = 0;
		while (inserter.filled < Min(inserter.room, shipment->count - done))
		{
			int64		message_id = next_id(shipment);

			if (first_id == 0)
				first_id = message_id;
			sweep_inserter_add_row(&inserter, message_id, NULL, done + inserter.filled);
			sweep_books_add_sent(shipment->change, shipment->lane, message_id, shipment->due_at);
		}
		sweep_inserter_write_rows(&inserter);
		for (int i = 0; i < inserter.filled; i++)
			(void) sweep_inserter_write_entries(&inserter, i, InvalidOid);
	}
	sweep_inserter_close(&inserter);
	return first_id;
}

/* Returns how many were sent. They are delivered in the order of the arguments, so this is that of the ids. */
static int64
send_with_keys(const SweepShipment *shipment, const Datum *keys, const bool *nulls)
{
	SweepKeyed *messages = palloc(shipment->count * sizeof(SweepKeyed));

	for (int i = 0; i < shipment->count; i++)
	{
		messages[i].key = nulls[i] ? NULL : DatumGetTextPP(keys[i]);
		messages[i].number = i;
		messages[i].message_id = next_id(shipment);
	}
	return sweep_key_insert(shipment, messages, shipment->count);
}

static int
count_elements(ArrayType *array)
{
	return ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));
}
