/*
 * done.c
 *		Acknowledged messages that are kept for a while: queues with keep_done.
 *
 * An acknowledgement adds to sweep.queue_done, and deletes what was kept long enough: the table does not grow while the
 * queue is used.
 *
 * While an old snapshot is held, deleted rows stay, and a read of the index from its front walks over all of them. The
 * table is therefore pruned once a second, more often only while many rows are to go, and from the place where the last
 * pruning found a row. A row before that place, of a transaction that was open for long, is found by a look from the
 * front, which is rare enough to cost next to nothing.
 */
#include "postgres.h"

#include "executor/tuptable.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/sql.h"
#include "queue/done.h"
#include "queue/slot.h"

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

#define PRUNE_AT_ONCE 1000		/* the limit in the statement, too */
#define PRUNE_EVERY_US USECS_PER_SEC

/* Pause between two looks from the front: a minute, and this many times of what the last one took. */
#define FROM_FRONT_EVERY_US USECS_PER_MINUTE
#define FROM_FRONT_SHARE 1000

void
sweep_queue_keep_done(const SweepInFlight *entry, TupleTableSlot *slot)
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

void
sweep_queue_prune_done(Relation messages, const SweepQueue *queue)
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
	sweep_sql_row(0);
	count = sweep_sql_int64(1);
	oldest = sweep_sql_int64(2);
	sweep_sql_end_call();

	sweep_queue_lock(LW_EXCLUSIVE);
	slot = sweep_queue_find_slot(relation, queue->queue_id);
	if (slot != NULL)
	{
		int64		now_us = sweep_monotonic_us();

		/* The next pruning begins with what this one found: should this transaction be rolled back, it is still there. */
		if (count > 0)
			slot->prune_from = oldest;
		if (count >= PRUNE_AT_ONCE)
			slot->prune_us = now_us;
		if (from_front)
			slot->prune_front_us = now_us + Max(FROM_FRONT_EVERY_US, (now_us - begin_us) * FROM_FRONT_SHARE);
	}
	sweep_queue_unlock();
}
