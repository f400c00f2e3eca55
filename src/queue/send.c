/*
 * send.c
 *		sweep.send and sweep.send_many.
 *
 * A message is a row that is inserted in the sender's transaction, without SQL (table.c); consumers are woken when that
 * has committed (transaction.c). A message with a key is left out if one with this key waits already (key.c); then the key
 * is looked up again before the commit (left_out.c).
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/extension.h"
#include "base/lock.h"
#include "base/txn.h"
#include "queue/key.h"
#include "queue/left_out.h"
#include "queue/slot.h"
#include "queue/table.h"
#include "queue/transaction.h"

PG_FUNCTION_INFO_V1(sweep_queue_send);
PG_FUNCTION_INFO_V1(sweep_queue_send_many);
PG_FUNCTION_INFO_V1(sweep_queue_try_send);

/* Reads the arguments that both functions share: the queue (first), delay (fourth) and priority (fifth). */
static void
open_request(SweepSendRequest *request, FunctionCallInfo fcinfo, const char *name)
{
	int64		delay_us = PG_ARGISNULL(3) ? 0 : sweep_interval_us(PG_GETARG_INTERVAL_P(3));
	int32		priority = PG_ARGISNULL(4) ? 0 : PG_GETARG_INT32(4);
	const SweepQueue *queue;

	sweep_require_usable(name);
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
				 errmsg("invalid delay \"%s\"", DatumGetCString(DirectFunctionCall1(interval_out, PG_GETARG_DATUM(3)))),
				 errhint("A delay is zero or more, for example '10 min'.")));
	request->messages = sweep_queue_open();
	queue = sweep_queue_find(PG_GETARG_TEXT_PP(0), RIGHT_SEND);
	request->queue_id = queue->queue_id;
	request->key_policy = queue->key_policy;
	request->lane = (int16) (delay_us > 0 ? priority + SWEEP_LANE_DELAYED : priority);
	request->due_at = delay_us > 0 ? GetCurrentTimestamp() + delay_us : 0;
	request->sequence = sweep_queue_sequence();
	request->change = sweep_transaction_change(RelationGetRelid(request->messages), request->queue_id);
}

/* Returns the id of the first message. */
static int64
send_without_keys(const SweepSendRequest *request)
{
	SweepInserter inserter;
	int64		first_id = 0;

	sweep_inserter_open(&inserter, request);
	for (int done = 0; done < request->count; done += inserter.filled)
	{
		CHECK_FOR_INTERRUPTS();
		inserter.filled = 0;
		while (inserter.filled < Min(inserter.room, request->count - done))
		{
			int64		message_id = nextval_internal(request->sequence, false);

			if (first_id == 0)
				first_id = message_id;
			sweep_inserter_add_row(&inserter, message_id, NULL, done + inserter.filled, false);
			sweep_change_add_sent(request->change, request->lane, message_id, request->due_at);
		}
		sweep_inserter_write_rows(&inserter);
		for (int i = 0; i < inserter.filled; i++)
			(void) sweep_inserter_write_entries(&inserter, i, InvalidOid);
	}
	sweep_inserter_close(&inserter);
	return first_id;
}

/*
 * Returns how many were sent; keys may be NULL. The ids are drawn in the order of the arguments, in which the messages are then
 * delivered; *first_id is the first one.
 */
static int
send(const SweepSendRequest *request, const Datum *keys, const bool *nulls, int64 *first_id)
{
	SweepKeyedMessage *messages;
	int			sent;

	if (keys == NULL)
	{
		*first_id = send_without_keys(request);
		return request->count;
	}
	messages = palloc0(request->count * sizeof(SweepKeyedMessage));
	for (int i = 0; i < request->count; i++)
	{
		messages[i].key = nulls[i] ? NULL : DatumGetTextPP(keys[i]);
		messages[i].number = i;
		messages[i].message_id = nextval_internal(request->sequence, false);
		if (i == 0)
			*first_id = messages[i].message_id;
	}
	sent = sweep_key_insert(request, messages, request->count);
	for (int i = 0; i < request->count && sent < request->count; i++)
		sweep_left_out_note(request, &messages[i]);
	return sent;
}

/* SQL: sweep.send(queue text, payload jsonb, key text, delay interval, priority int, headers jsonb) */
Datum
sweep_queue_send(PG_FUNCTION_ARGS)
{
	SweepSendRequest request = {0};
	Datum		payload;
	int64		message_id;
	int			sent;

	open_request(&request, fcinfo, "sweep.send()");
	if (PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("payload must not be null"),
				 errhint("Send '{}' or 'null' when there is nothing to say.")));
	payload = PG_GETARG_DATUM(1);
	request.payloads = &payload;
	request.count = 1;
	request.has_headers = !PG_ARGISNULL(5);
	request.headers = request.has_headers ? PG_GETARG_DATUM(5) : (Datum) 0;
	sent = send(&request, PG_ARGISNULL(2) ? NULL : &fcinfo->args[2].value, &fcinfo->args[2].isnull, &message_id);
	table_close(request.messages, NoLock);
	if (sent == 0)
		PG_RETURN_NULL();
	PG_RETURN_INT64(message_id);
}

/* SQL: sweep.send_many(queue text, payloads jsonb[], keys text[], delay interval, priority int) */
Datum
sweep_queue_send_many(PG_FUNCTION_ARGS)
{
	SweepSendRequest request = {0};
	ArrayType  *payloads = PG_ARGISNULL(1) ? construct_empty_array(JSONBOID) : PG_GETARG_ARRAYTYPE_P(1);
	ArrayType  *keys = PG_ARGISNULL(2) ? NULL : PG_GETARG_ARRAYTYPE_P(2);
	Datum	   *key_values = NULL;
	bool	   *key_nulls = NULL;
	bool	   *nulls;
	int			key_count = 0;
	int64		sent;
	int64		first_id;

	open_request(&request, fcinfo, "sweep.send_many()");
	deconstruct_array(payloads, JSONBOID, -1, false, TYPALIGN_INT, &request.payloads, &nulls, &request.count);
	if (keys != NULL)
		deconstruct_array(keys, TEXTOID, -1, false, TYPALIGN_INT, &key_values, &key_nulls, &key_count);
	if (keys != NULL && key_count != request.count)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("number of keys (%d) differs from number of payloads (%d)", key_count, request.count),
				 errhint("Give one key for each payload, NULL where a message has none, or no keys at all.")));
	for (int i = 0; i < request.count; i++)
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("payload %d must not be null", i + 1),
					 errhint("Send '{}' or 'null' when there is nothing to say.")));
	sent = send(&request, key_values, key_nulls, &first_id);
	table_close(request.messages, NoLock);
	PG_RETURN_INT64(sent);
}

static void
try_send_work(void *arg)
{
	FunctionCallInfo fcinfo = arg;

	LOCAL_FCINFO(call, 6);

	if (sweep_lock_acquire_queue(PG_GETARG_INT32(0), ShareLock, false) == LOCKACQUIRE_NOT_AVAIL)
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("queue is being dropped")));
	/* The queue may have been dropped just before. */
	AcceptInvalidationMessages();
	InitFunctionCallInfoData(*call, NULL, 6, InvalidOid, NULL, NULL);
	call->args[0] = fcinfo->args[1];
	call->args[1] = fcinfo->args[2];
	call->args[2].isnull = true;
	call->args[3] = (NullableDatum) {.value = IntervalPGetDatum(&(Interval) {0})};
	call->args[4] = (NullableDatum) {.value = Int32GetDatum(0)};
	call->args[5].isnull = true;
	(void) sweep_queue_send(call);
}

/*
 * SQL: sweep._try_send(queue_id int, queue text, payload jsonb) RETURNS text: sends without waiting for a transaction that
 * drops the queue. Returns NULL, or the error for which the message was not sent; the transaction goes on. If query cancels were
 * held off before, they still are.
 */
Datum
sweep_queue_try_send(PG_FUNCTION_ARGS)
{
	uint32		held = QueryCancelHoldoffCount;
	ErrorData  *error = sweep_txn_savepoint(try_send_work, fcinfo, true);

	QueryCancelHoldoffCount = held;
	if (error == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(error->message));
}
