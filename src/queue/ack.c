/*
 * ack.c
 *		sweep.ack, release and extend.
 *
 * Shared memory has the messages of a lease: a call that comes too late finds no lease, and ends nothing. Ending a
 * message is part of the caller's transaction. Until that transaction ends no other process can claim or end the
 * message, even if the lease has run out; then the message is gone, or LEASED again after a rollback.
 *
 * The rows are deleted without SQL, by their place in the table, which is verified. That works whatever the snapshot of
 * the transaction sees. Release and extend change only shared memory, at once.
 *
 * In a queue with keep_done an acknowledgement adds a row to sweep.queue_done, and prunes rows that were kept long enough,
 * so that the table does not grow while the queue is used. While an old snapshot is held, deleted rows stay, and a scan of
 * the index from its start reads all of them. Pruning is therefore done once a second, at once again only while many rows
 * are due, and begins at the oldest row that the last pruning found. Rows before that place, written by a long transaction,
 * are found by a scan from the start, which is rare.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/tuptable.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "base/clock.h"
#include "base/compat_table.h"
#include "base/extension.h"
#include "base/sql.h"
#include "queue/ack.h"
#include "queue/in_flight.h"
#include "queue/queue.h"
#include "queue/table.h"
#include "queue/transaction.h"

static SweepStatement keep_done_sql = {
	.text = "INSERT INTO sweep.queue_done (message_id, queue_id, key, headers, payload, attempts, sent_at) VALUES ($1, $2, $3, $4, $5, $6, $7)",
	.types = {INT8OID, INT4OID, TEXTOID, JSONBOID, JSONBOID, INT2OID, TIMESTAMPTZOID},
	.reads_latest = true};
static SweepStatement prune_done_sql = {
	.text = "WITH gone AS (DELETE FROM sweep.queue_done d WHERE d.ctid = ANY (ARRAY(SELECT o.ctid FROM sweep.queue_done o "
		"WHERE o.queue_id = $1 AND o.done_at < $2 AND o.done_at >= $3 ORDER BY o.done_at LIMIT 1000 FOR UPDATE SKIP LOCKED)) "
		"RETURNING d.done_at) SELECT pg_catalog.count(*), pg_catalog.min(g.done_at) FROM gone g",
	.types = {INT4OID, TIMESTAMPTZOID, TIMESTAMPTZOID},
	.reads_latest = true};

#define PRUNE_AT_ONCE 1000		/* also the LIMIT of the statement */
#define PRUNE_EVERY_US USECS_PER_SEC

/* Pause between two scans from the start: a minute, but at least this many times the duration of the last one. */
#define FROM_FRONT_EVERY_US USECS_PER_MINUTE
#define FROM_FRONT_SHARE 1000

static const pg_uuid_t *kept_lease = NULL;

PG_FUNCTION_INFO_V1(sweep_queue_ack);
PG_FUNCTION_INFO_V1(sweep_queue_release);
PG_FUNCTION_INFO_V1(sweep_queue_extend);

bool
sweep_ending_open(SweepEnding *ending, FunctionCallInfo fcinfo, int ids_argument, const char *name)
{
	SweepQueueLease *lease = NULL;
	const SweepQueue *queue;
	int32		queue_id = 0;

	sweep_require_usable(name);
	PreventCommandIfReadOnly(name);
	PreventCommandIfParallelMode(name);
	sweep_queue_require_memory(name);
	ending->messages = sweep_queue_open();
	ending->lease = PG_ARGISNULL(0) ? NULL : PG_GETARG_UUID_P(0);
	ending->all = ids_argument < 0 || PG_ARGISNULL(ids_argument);
	if (!ending->all)
	{
		Datum	   *values;
		bool	   *nulls;

		deconstruct_array(PG_GETARG_ARRAYTYPE_P(ids_argument), INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE,
						  &values, &nulls, &ending->id_count);
		ending->ids = palloc((ending->id_count + 1) * sizeof(int64));
		for (int i = 0; i < ending->id_count; i++)
			ending->ids[i] = nulls[i] ? 0 : DatumGetInt64(values[i]);
		qsort(ending->ids, ending->id_count, sizeof(int64), sweep_in_flight_compare_ids);
	}
	if (ending->lease == NULL)
		return false;
	sweep_queue_settle_prepared();
	sweep_queue_lock(LW_SHARED);
	lease = sweep_lease_find(ending->lease);
	if (lease != NULL && sweep_queue_slot(lease->slot)->relation == RelationGetRelid(ending->messages))
	{
		queue_id = sweep_queue_slot(lease->slot)->queue_id;
		ending->count = lease->messages.count + lease->ending;
	}
	sweep_queue_unlock();
	queue = queue_id != 0 ? sweep_queue_find_by_id(queue_id, RIGHT_CONSUME) : NULL;
	if (queue != NULL)
		ending->queue = *queue;
	return queue != NULL;
}

/* The next message of the call that no transaction is ending, or -1; lends the lock. *position begins with 0. */
static int
next_message(const SweepEnding *ending, int *position)
{
	int			number;

	do
	{
		SweepQueueLease *lease;

		(void) sweep_queue_lend_lock_after(SWEEP_QUEUE_PIECE, position);
		lease = sweep_lease_find(ending->lease);
		if (lease == NULL || (!ending->all && *position > ending->id_count))
			return -1;
		number = ending->all ? lease->messages.first : sweep_in_flight_find_leased(lease, ending->ids[*position - 1]);
	} while (number < 0 && !ending->all);
	return number;
}

int
sweep_ending_begin(SweepEnding *ending)
{
	int			count = 0;
	int			position = 0;
	int			number;

	sweep_transaction_reserve(ending->count);
	ending->change = sweep_transaction_change(RelationGetRelid(ending->messages), ending->queue.queue_id);
	ending->held = palloc_extended((ending->count + 1) * sizeof(SweepInFlight), MCXT_ALLOC_HUGE);
	sweep_queue_lock(LW_EXCLUSIVE);
	while (count < ending->count && (number = next_message(ending, &position)) >= 0)
	{
		sweep_in_flight_begin_ending(number);
		sweep_transaction_note(PENDING_ENDING, number, NULL);
		ending->held[count++] = *sweep_in_flight(number);
	}
	sweep_queue_unlock();
	return count;
}

bool
sweep_ending_remove_row(const SweepEnding *ending, SweepMessageRef *message, Snapshot snapshot, TupleTableSlot *slot)
{
	TM_Result	result = TM_Updated;
	Snapshot	current = snapshot;
	Snapshot	latest = InvalidSnapshot;

	while (result == TM_Updated)
	{
		TM_FailureData failure;

		result = TM_Deleted;
		if (sweep_queue_fetch(ending->messages, ending->blocks, &ending->queue, current, message, slot))
			result = sweep_table_tuple_delete(ending->messages, &message->tid, GetCurrentCommandId(true), current,
											  true, &failure);
		/* Another statement has updated the row: try again with the new version. */
		if (result == TM_Updated)
		{
			if (latest != InvalidSnapshot)
				UnregisterSnapshot(latest);
			current = latest = RegisterSnapshot(GetLatestSnapshot());
		}
	}
	if (latest != InvalidSnapshot)
		UnregisterSnapshot(latest);
	return result == TM_Ok;
}

int
sweep_ending_close(const SweepEnding *ending, int done)
{
	int			missed = ending->all ? done == 0 : ending->id_count - done;
	const char *lease = ending->lease ? DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(ending->lease))) : "<NULL>";

	table_close(ending->messages, NoLock);
	if (missed > 0)
		ereport(NOTICE,
				(ending->all ? errmsg("lease %s does not hold any of the messages", lease)
				 : errmsg("lease %s does not hold %d of the messages", lease, missed),
				 errdetail("They were acknowledged before, or the lease ran out and another claim took them.")));
	return done;
}

static void
keep_done(const SweepInFlight *entry, TupleTableSlot *slot)
{
	Datum		values[7];
	char		nulls[] = "       ";

	slot_getallattrs(slot);
	values[0] = slot->tts_values[MESSAGE_ID - 1];
	values[1] = slot->tts_values[MESSAGE_QUEUE_ID - 1];
	values[2] = slot->tts_values[MESSAGE_KEY - 1];
	nulls[2] = slot->tts_isnull[MESSAGE_KEY - 1] ? 'n' : ' ';
	values[3] = slot->tts_values[MESSAGE_HEADERS - 1];
	nulls[3] = slot->tts_isnull[MESSAGE_HEADERS - 1] ? 'n' : ' ';
	values[4] = slot->tts_values[MESSAGE_PAYLOAD - 1];
	values[5] = Int16GetDatum((int16) Min(entry->attempts, PG_INT16_MAX));
	values[6] = slot->tts_values[MESSAGE_SENT_AT - 1];
	sweep_sql_begin_call();
	(void) sweep_sql_execute(&keep_done_sql, values, nulls);
	sweep_sql_end_call();
}

static void
prune_done(Relation messages, const SweepQueue *queue)
{
	Oid			relation = RelationGetRelid(messages);
	int64		begin_us = sweep_monotonic_us();
	SweepQueueSlot *slot;
	bool		from_front = false;
	Datum		values[3];
	int64		count;
	TimestampTz oldest;

	sweep_queue_lock(LW_EXCLUSIVE);
	slot = sweep_queue_find_slot(relation, queue->queue_id);
	if (slot == NULL || slot->prune_us > begin_us)
	{
		sweep_queue_unlock();
		return;
	}
	from_front = slot->prune_front_us <= begin_us;
	values[0] = Int32GetDatum(queue->queue_id);
	values[1] = TimestampTzGetDatum(GetCurrentTimestamp() - queue->keep_done_us);
	values[2] = TimestampTzGetDatum(from_front ? DT_NOBEGIN : slot->prune_from);
	if (from_front)
		slot->prune_front_us = begin_us + FROM_FRONT_EVERY_US;
	slot->prune_us = begin_us + PRUNE_EVERY_US;
	sweep_queue_unlock();

	sweep_sql_begin_call();
	(void) sweep_sql_execute(&prune_done_sql, values, NULL);
	count = sweep_sql_int64(1);
	oldest = sweep_sql_moment(2);
	sweep_sql_end_call();

	sweep_queue_lock(LW_EXCLUSIVE);
	slot = sweep_queue_find_slot(relation, queue->queue_id);
	if (slot != NULL)
	{
		int64		now_us = sweep_monotonic_us();

		/* The next pruning begins with the oldest row that this one deleted: a rollback brings it back. */
		if (count > 0)
			slot->prune_from = oldest;
		if (count >= PRUNE_AT_ONCE)
			slot->prune_us = now_us;
		if (from_front)
			slot->prune_front_us = now_us + Max(FROM_FRONT_EVERY_US, (now_us - begin_us) * FROM_FRONT_SHARE);
	}
	sweep_queue_unlock();
}

/* SQL: sweep.ack(lease uuid, message_ids bigint[]) RETURNS int */
Datum
sweep_queue_ack(PG_FUNCTION_ARGS)
{
	SweepEnding ending = {0};
	int			acked = 0;

	if (sweep_ending_open(&ending, fcinfo, 1, "sweep.ack()"))
	{
		int			count = sweep_ending_begin(&ending);
		TupleTableSlot *slot = table_slot_create(ending.messages, NULL);
		Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());

		ending.blocks = RelationGetNumberOfBlocks(ending.messages);
		for (int i = 0; i < count; i++)
		{
			SweepInFlight *entry = &ending.held[i];

			if (!sweep_ending_remove_row(&ending, &entry->message, snapshot, slot))
				continue;
			if (ending.queue.keep_done_us > 0)
				keep_done(entry, slot);
			ending.change->rows[SWEEP_LANE_IS_DELAYED(entry->message.lane)]--;
			ending.change->acked++;
			acked++;
		}
		UnregisterSnapshot(snapshot);
		ExecDropSingleTupleTableSlot(slot);
		if (ending.queue.keep_done_us > 0)
			prune_done(ending.messages, &ending.queue);
	}
	PG_RETURN_INT32(sweep_ending_close(&ending, acked));
}

/* SQL: sweep.release(lease uuid, message_ids bigint[]) RETURNS int */
Datum
sweep_queue_release(PG_FUNCTION_ARGS)
{
	SweepEnding ending = {0};
	int			released = 0;

	if (kept_lease != NULL && !PG_ARGISNULL(0) && memcmp(kept_lease, PG_GETARG_UUID_P(0), UUID_LEN) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("a handler cannot release its messages"),
				 errhint("Let it raise an error: the message comes again after the backoff of its queue.")));
	if (sweep_ending_open(&ending, fcinfo, 1, "sweep.release()"))
	{
		int			position = 0;
		int			number;

		sweep_queue_lock(LW_EXCLUSIVE);
		for (; (number = next_message(&ending, &position)) >= 0; released++)
			sweep_in_flight_return(number, true);
		sweep_queue_unlock();
	}
	PG_RETURN_INT32(sweep_ending_close(&ending, released));
}

/* SQL: sweep.extend(lease uuid, by interval) RETURNS int */
Datum
sweep_queue_extend(PG_FUNCTION_ARGS)
{
	SweepEnding ending = {0};
	int			held = 0;

	if (PG_ARGISNULL(1) || sweep_interval_us(PG_GETARG_INTERVAL_P(1)) <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a lease cannot be extended by %s",
						PG_ARGISNULL(1) ? "NULL" : psprintf("\"%s\"", DatumGetCString(DirectFunctionCall1(interval_out, PG_GETARG_DATUM(1))))),
				 errhint("The time is greater than zero and counts from now, for example '5 min'.")));
	if (sweep_ending_open(&ending, fcinfo, -1, "sweep.extend()"))
	{
		SweepQueueLease *lease;

		sweep_queue_lock(LW_EXCLUSIVE);
		lease = sweep_lease_find(ending.lease);
		if (lease != NULL)
		{
			sweep_lease_set_expiry(sweep_queue_lease_number(lease), sweep_monotonic_us() + sweep_interval_us(PG_GETARG_INTERVAL_P(1)));
			held = lease->messages.count + lease->ending;
		}
		sweep_queue_unlock();
	}
	PG_RETURN_INT32(sweep_ending_close(&ending, held));
}

void
sweep_queue_keep_lease(const pg_uuid_t *lease)
{
	kept_lease = lease;
}

void
sweep_queue_release_lease(const pg_uuid_t *id, int64 *untried, int count)
{
	qsort(untried, count, sizeof(int64), sweep_in_flight_compare_ids);
	sweep_queue_lock(LW_EXCLUSIVE);
	sweep_in_flight_return_lease(id, count > 0, untried, count);
	sweep_queue_unlock();
}
