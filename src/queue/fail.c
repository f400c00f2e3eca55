/*
 * fail.c
 *		sweep.fail: a failed message is delivered again after a pause, or is moved to the dead-letter table.
 *
 * Called by consumers, and by claims for messages that were delivered too often. Like an acknowledgement it is part of
 * the caller's transaction. The row is deleted and inserted again, which can take a key back that a claim has freed
 * (key.c).
 */
#include "postgres.h"

#include "access/tableam.h"
#include "common/pg_prng.h"
#include "fmgr.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/compat_value.h"
#include "base/sql.h"
#include "queue/ack.h"
#include "queue/fail.h"
#include "queue/key.h"
#include "queue/queue.h"
#include "queue/transaction.h"

static SweepStatement bury_message_sql = {
	.text = "WITH m AS (DELETE FROM sweep.queue_message m WHERE m.queue_id = $1 AND m.lane = $2 AND m.message_id = $3 RETURNING m.*) "
		"INSERT INTO sweep.queue_dead (message_id, queue_id, priority, key, headers, payload, attempts, sent_at, error) "
		"SELECT m.message_id, m.queue_id, $4, m.key, m.headers, m.payload, $5, m.sent_at, coalesce($6, m.error) FROM m",
	.types = {INT4OID, INT2OID, INT8OID, INT2OID, INT2OID, JSONBOID},
	.reads_latest = true};

PG_FUNCTION_INFO_V1(sweep_queue_fail);

/* The pauses of Sidekiq: the fourth power of the number of retries, 15 s, and some seconds at random. */
static int64
backoff_us(const SweepQueue *queue, int attempts)
{
	double		retries = attempts - 1;
	double		seconds = retries * retries * retries * retries + 15 + pg_prng_double(&pg_global_prng_state) * 10 * (retries + 1);

	if (queue->backoff_us != SWEEP_BACKOFF_SIDEKIQ)
		return queue->backoff_us;
	return (int64) (Min(seconds, SWEEP_LONGEST_DAYS * SECS_PER_DAY) * USECS_PER_SEC);
}

/* Puts the message off; false when its row is gone. The new row takes the key back if a claim has freed it. */
static bool
retry_message(const SweepEnding *ending, const SweepInFlight *entry, Jsonb *error)
{
	SweepSendRequest request = {
		.messages = ending->messages, .queue_id = ending->queue.queue_id, .count = 1,
		.lane = (int16) (SWEEP_LANE_PRIORITY(entry->message.lane) + SWEEP_LANE_DELAYED),
		.due_at = GetCurrentTimestamp() + backoff_us(&ending->queue, entry->attempts)
	};
	SweepMessageRef message = entry->message;
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TupleTableSlot *slot = table_slot_create(ending->messages, NULL);
	bool		removed = sweep_ending_remove_row(ending, &message, snapshot, slot);

	if (removed)
	{
		sweep_key_put_back(&request, slot, message.key_hash != 0, entry->attempts, error);
		ending->change->rows[SWEEP_LANE_IS_DELAYED(message.lane)]--;
		ending->change->rows[1]++;
		ending->change->first_due = Min(ending->change->first_due, request.due_at);
	}
	ExecDropSingleTupleTableSlot(slot);
	UnregisterSnapshot(snapshot);
	return removed;
}

/* Implements sweep.fail; "error" replaces its argument. With "for_good" the messages are dead, whatever their attempts. */
static Datum
fail(FunctionCallInfo fcinfo, Jsonb *error, bool for_good)
{
	SweepEnding ending = {0};
	int			failed = 0;

	if (sweep_ending_open(&ending, fcinfo, 2, "sweep.fail()"))
	{
		int			count = sweep_ending_begin(&ending);

		ending.blocks = RelationGetNumberOfBlocks(ending.messages);
		for (int i = 0; i < count; i++)
		{
			const SweepInFlight *entry = &ending.held[i];

			if (for_good || entry->attempts >= ending.queue.max_attempts
				? sweep_queue_move_to_dead(ending.messages, &ending.queue, &entry->message, entry->attempts, error)
				: retry_message(&ending, entry, error))
				failed++;
		}
	}
	PG_RETURN_INT32(sweep_ending_close(&ending, failed));
}

/* SQL: sweep.fail(lease uuid, error text, message_ids bigint[]) RETURNS int */
Datum
sweep_queue_fail(PG_FUNCTION_ARGS)
{
	return fail(fcinfo, PG_ARGISNULL(1) ? NULL : sweep_queue_error(text_to_cstring(PG_GETARG_TEXT_PP(1))), false);
}

int
sweep_queue_fail_with(const pg_uuid_t *lease, Jsonb *error, Datum message_ids, bool for_good)
{
	LOCAL_FCINFO(fcinfo, 3);

	InitFunctionCallInfoData(*fcinfo, NULL, 3, InvalidOid, NULL, NULL);
	fcinfo->args[0] = (NullableDatum) {.value = UUIDPGetDatum(lease)};
	fcinfo->args[1] = (NullableDatum) {.isnull = true};
	fcinfo->args[2] = (NullableDatum) {.value = message_ids};
	return DatumGetInt32(fail(fcinfo, error, for_good));
}

bool
sweep_queue_move_to_dead(Relation messages, const SweepQueue *queue, const SweepMessageRef *message, int attempts, Jsonb *error)
{
	SweepQueueChange *change = sweep_transaction_change(RelationGetRelid(messages), queue->queue_id);
	Datum		values[] = {
		Int32GetDatum(queue->queue_id), Int16GetDatum(message->lane), Int64GetDatum(message->message_id),
		Int16GetDatum((int16) SWEEP_LANE_PRIORITY(message->lane)), Int16GetDatum((int16) Min(attempts, PG_INT16_MAX)),
		PointerGetDatum(error)
	};
	uint64		moved;

	sweep_sql_begin_call();
	change->own_statements++;
	moved = sweep_sql_execute(&bury_message_sql, values, error != NULL ? "      " : "     n");
	change->own_statements--;
	sweep_sql_end_call();
	if (moved > 0)
	{
		change->rows[SWEEP_LANE_IS_DELAYED(message->lane)]--;
		change->dead++;
	}
	return moved > 0;
}

Jsonb *
sweep_queue_error(char *message)
{
	JsonbInState state = {0};
	JsonbValue	key = {.type = jbvString, .val.string = {.val = "message", .len = strlen("message")}};
	JsonbValue	value = {.type = jbvString, .val.string = {.val = message, .len = strlen(message)}};

	sweep_push_jsonb_value(&state, WJB_BEGIN_OBJECT, NULL);
	sweep_push_jsonb_value(&state, WJB_KEY, &key);
	sweep_push_jsonb_value(&state, WJB_VALUE, &value);
	sweep_push_jsonb_value(&state, WJB_END_OBJECT, NULL);
	return JsonbValueToJsonb(state.result);
}
