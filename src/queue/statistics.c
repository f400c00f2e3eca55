/*
 * statistics.c
 *		What sweep.queues shows.
 *
 * How many messages a queue has is known from counters that the end of every transaction keeps
 * (change.c). They begin with a count of the rows, by whoever asks first after the start of the
 * server or after a statement that was not ours. The count is exact while messages come and go: it uses
 * a snapshot that is published before, and a commit is added to the counters if and only if that
 * snapshot does not see it.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "executor/tuptable.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/array.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "base/clock.h"
#include "base/compat.h"
#include "base/lock.h"
#include "queue/in_flight.h"
#include "queue/prepared.h"
#include "queue/slot_pool.h"
#include "queue/table.h"

/* Column queue_id of sweep.queue_dead. */
#define DEAD_QUEUE_ID 2

typedef struct Count
{
	int32		queue_id;
	int64		rows[2];
	int64		dead;
} Count;

typedef struct Counts
{
	int			count;
	int			room;
	Count	   *of;
} Counts;

/* The columns of sweep._queue_states(). */
#define STATE_COLUMNS 13

static bool count_queues(Oid relation, Counts *counts, bool shared);
static bool is_counted(Oid relation);
static void begin_count(Oid relation, Snapshot snapshot);
static bool end_count(Oid relation);
static void count_rows(Oid relation, Snapshot snapshot, Counts *counts, bool dead);
static Count *count_of(Counts *counts, int32 queue_id);
static void put_slots(ReturnSetInfo *result, Oid relation);
static void put_counts(ReturnSetInfo *result, Oid relation, const Counts *counts, bool shared);
static void put_state(ReturnSetInfo *result, const Count *count, const SweepQueueSlot *slot);
static void look_at_due(const SweepQueueSlot *slot, int *known, int *inside);
static bool look_at_delayed(const SweepQueueSlot *slot, const SweepMessageRef *message, int *inside);
static int	first_ids(const SweepQueueSlot *slot, Datum *lanes, Datum *positions);
static void look_at_message(const SweepMessageRef *message, int64 *first);

PG_FUNCTION_INFO_V1(sweep_queue_states);

/* SQL: sweep._queue_states() RETURNS SETOF record */
Datum
sweep_queue_states(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	Oid			relation = sweep_queue_relation();
	bool		shared = sweep_queue_memory_exists() && !RecoveryInProgress();
	Counts		counts = {0};
	bool		counted = false;

	InitMaterializedSRF(fcinfo, 0);
	if (shared)
	{
		sweep_prepared_settle();
		sweep_queue_lock(LW_SHARED);
		counted = is_counted(relation);
		sweep_queue_unlock();
	}
	if (counted || count_queues(relation, &counts, shared))
		put_slots(result, relation);
	else
		put_counts(result, relation, &counts, shared);
	return (Datum) 0;
}

/* Counts all rows, for the counters or just for this once. Returns whether the counters are valid. */
static bool
count_queues(Oid relation, Counts *counts, bool shared)
{
	Oid			dead = get_relname_relid("queue_dead", get_rel_namespace(relation));
	Snapshot	snapshot;
	LOCKTAG		tag;
	bool		counted;

	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, 0, 0, SWEEP_LOCK_QUEUE);
	if (shared)
	{
		sweep_prepared_note_all(relation);
		/* One at a time; whoever has waited finds it done. */
		(void) LockAcquire(&tag, ExclusiveLock, false, false);
		sweep_queue_lock(LW_EXCLUSIVE);
		counted = is_counted(relation);
		snapshot = RegisterSnapshot(GetLatestSnapshot());
		/* Not what this very transaction has done: that is added when it commits. */
		snapshot->curcid = FirstCommandId;
		if (!counted)
			begin_count(relation, snapshot);
		sweep_queue_unlock();
		if (counted)
		{
			UnregisterSnapshot(snapshot);
			LockRelease(&tag, ExclusiveLock, false);
			return true;
		}
	}
	else
		snapshot = RegisterSnapshot(GetLatestSnapshot());
	count_rows(relation, snapshot, counts, false);
	count_rows(dead, snapshot, counts, true);
	UnregisterSnapshot(snapshot);
	if (!shared)
		return false;
	sweep_queue_lock(LW_EXCLUSIVE);
	for (int i = 0; i < counts->count; i++)
	{
		SweepQueueSlot *slot = sweep_queue_find_slot(relation, counts->of[i].queue_id);

		if (slot == NULL)
			slot = sweep_queue_allot_slot(relation, counts->of[i].queue_id, InvalidOid);
		if (slot == NULL)
		{
			sweep_queue_spoil_counts(MyDatabaseId);
			break;
		}
		slot->used_us = sweep_monotonic_us();
		slot->rows[0] += counts->of[i].rows[0];
		slot->rows[1] += counts->of[i].rows[1];
		slot->dead += counts->of[i].dead;
	}
	counted = end_count(relation);
	sweep_queue_unlock();
	LockRelease(&tag, ExclusiveLock, false);
	return counted;
}

/* The lock of memory.h is held for all three, exclusively for the others. */
static bool
is_counted(Oid relation)
{
	SweepQueueDatabase *entry = sweep_queue_find_database(relation, false);

	return entry != NULL && entry->counted;
}

/*
 * Publishes a snapshot, which must see nothing of the transaction itself: commits visible in it are counted by whoever
 * counts, all others when they are applied (change.c).
 */
static void
begin_count(Oid relation, Snapshot snapshot)
{
	SweepQueueDatabase *entry = sweep_queue_find_database(relation, true);
	FullTransactionId next = ReadNextFullTransactionId();
	TransactionId own = GetTopTransactionIdIfAny();

	/* These are 32 bits of the same counter, a moment before. */
	entry->xmax = FullTransactionIdFromU64(U64FromFullTransactionId(next) - (uint32) (XidFromFullTransactionId(next) - snapshot->xmax));
	entry->xmin = FullTransactionIdFromU64(U64FromFullTransactionId(entry->xmax) - (uint32) (snapshot->xmax - snapshot->xmin));
	entry->running_count = snapshot->xcnt;
	/* Without any there may be no array, and memcpy wants one even to copy nothing. */
	if (snapshot->xcnt > 0)
		memcpy(sweep_queue_running(entry), snapshot->xip, snapshot->xcnt * sizeof(TransactionId));
	/* A snapshot does not list the transaction that took it. */
	if (TransactionIdIsValid(own))
		sweep_queue_running(entry)[entry->running_count++] = own;
	entry->counting = true;
	entry->counted = false;
	for (int i = 0; i < sweep_max_queues; i++)
	{
		SweepQueueSlot *slot = sweep_queue_slot(i);

		if (slot->generation != 0 && slot->database == MyDatabaseId && slot->relation == relation)
			slot->rows[0] = slot->rows[1] = slot->dead = 0;
	}
}

/* False when a slot was lost or the table was written to by others in the meantime. */
static bool
end_count(Oid relation)
{
	SweepQueueDatabase *entry = sweep_queue_find_database(relation, false);

	if (entry == NULL || !entry->counting)
		return false;
	entry->counted = true;
	return true;
}

static void
count_rows(Oid relation_oid, Snapshot snapshot, Counts *counts, bool dead)
{
	Relation	relation = relation_open(relation_oid, AccessShareLock);
	TableScanDesc scan = sweep_table_beginscan(relation, snapshot);
	TupleTableSlot *slot = table_slot_create(relation, NULL);
	Count	   *last = NULL;

	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		bool		is_null;
		int32		queue_id = DatumGetInt32(slot_getattr(slot, dead ? DEAD_QUEUE_ID : MESSAGE_QUEUE_ID, &is_null));

		CHECK_FOR_INTERRUPTS();
		if (last == NULL || last->queue_id != queue_id)
			last = count_of(counts, queue_id);
		if (dead)
			last->dead++;
		else
			last->rows[SWEEP_LANE_IS_DELAYED(DatumGetInt16(slot_getattr(slot, MESSAGE_LANE, &is_null)))]++;
	}
	ExecDropSingleTupleTableSlot(slot);
	table_endscan(scan);
	relation_close(relation, AccessShareLock);
}

static Count *
count_of(Counts *counts, int32 queue_id)
{
	for (int i = 0; i < counts->count; i++)
		if (counts->of[i].queue_id == queue_id)
			return &counts->of[i];
	if (counts->count == counts->room)
	{
		counts->room = 2 * counts->room + 16;
		counts->of = counts->of ? repalloc(counts->of, counts->room * sizeof(Count)) : palloc(counts->room * sizeof(Count));
	}
	counts->of[counts->count] = (Count)
	{
		.queue_id = queue_id
	};
	return &counts->of[counts->count++];
}

static void
put_slots(ReturnSetInfo *result, Oid relation)
{
	sweep_queue_lock(LW_EXCLUSIVE);
	for (int i = 0; i < sweep_max_queues; i++)
	{
		SweepQueueSlot *slot = sweep_queue_slot(i);

		if (slot->generation == 0 || slot->database != MyDatabaseId || slot->relation != relation)
			continue;
		sweep_in_flight_expire(slot, sweep_monotonic_us());
		put_state(result, &(Count) {slot->queue_id, {slot->rows[0], slot->rows[1]}, slot->dead}, slot);
	}
	sweep_queue_unlock();
}

/* Without counters, for lack of shared memory or of room in it; what is in flight is known all the same. */
static void
put_counts(ReturnSetInfo *result, Oid relation, const Counts *counts, bool shared)
{
	SweepQueueSlot *unknown = palloc0(sizeof(SweepQueueSlot));

	/* A queue without a slot is one that is looked at from its start. */
	unknown->lease_first = unknown->returned.first = unknown->blocked.first = -1;
	sweep_queue_reset_slot(unknown);
	if (shared)
		sweep_queue_lock(LW_SHARED);
	for (int i = 0; i < counts->count; i++)
	{
		const SweepQueueSlot *slot = shared ? sweep_queue_find_slot(relation, counts->of[i].queue_id) : NULL;

		put_state(result, &counts->of[i], slot != NULL ? slot : unknown);
	}
	if (shared)
		sweep_queue_unlock();
}

/* Hold the lock, if there is any. */
static void
put_state(ReturnSetInfo *result, const Count *count, const SweepQueueSlot *slot)
{
	int64		now_us = sweep_monotonic_us();
	Datum		values[STATE_COLUMNS];
	bool		nulls[STATE_COLUMNS] = {0};
	Datum		lanes[SWEEP_LANES];
	Datum		positions[SWEEP_LANES];
	int			known;
	int			inside;
	int			lane_count = first_ids(slot, lanes, positions);

	look_at_due(slot, &known, &inside);
	values[0] = Int32GetDatum(count->queue_id);
	values[1] = Int64GetDatum(count->rows[0]);
	values[2] = Int64GetDatum(count->rows[1]);
	values[3] = Int64GetDatum(count->dead);
	values[4] = Int32GetDatum(slot->held[0]);
	values[5] = Int32GetDatum(slot->held[1]);
	values[6] = TimestampTzGetDatum(slot->due_from);
	values[7] = Int32GetDatum(known);
	values[8] = Int32GetDatum(inside);
	values[9] = PointerGetDatum(construct_array(lanes, lane_count, INT2OID, sizeof(int16), true, TYPALIGN_SHORT));
	values[10] = PointerGetDatum(construct_array(positions, lane_count, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
	values[11] = Float8GetDatum(sweep_queue_rate(&slot->sent, now_us));
	values[12] = Float8GetDatum(sweep_queue_rate(&slot->acked, now_us));
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/*
 * Delayed messages that were due and can be claimed: known are those that a search has found or that
 * were given back; inside are those, and claimed ones, which are not before due_from all the same, so that
 * counting from there would count them twice.
 */
static void
look_at_due(const SweepQueueSlot *slot, int *known, int *inside)
{
	*known = *inside = 0;
	for (int i = 0; i < slot->prefetched_count; i++)
		*known += look_at_delayed(slot, &slot->prefetched[slot->prefetched_first + i], inside);
	for (int entry = slot->returned.first; entry >= 0; entry = sweep_in_flight(entry)->next)
		*known += look_at_delayed(slot, &sweep_in_flight(entry)->message, inside);
	for (int entry = slot->blocked.first; entry >= 0; entry = sweep_in_flight(entry)->next)
		*known += look_at_delayed(slot, &sweep_in_flight(entry)->message, inside);
	for (int lease = slot->held[1] > 0 ? slot->lease_first : -1; lease >= 0; lease = sweep_queue_lease(lease)->next)
		for (int entry = sweep_queue_lease(lease)->messages.first; entry >= 0; entry = sweep_in_flight(entry)->next)
			(void) look_at_delayed(slot, &sweep_in_flight(entry)->message, inside);
}

/* Whether it is delayed. */
static bool
look_at_delayed(const SweepQueueSlot *slot, const SweepMessageRef *message, int *inside)
{
	bool		delayed = SWEEP_LANE_IS_DELAYED(message->lane);

	*inside += delayed && message->due_at >= slot->due_from;
	return delayed;
}

/* The lanes that may have something to be claimed, and the lowest ids at which. */
static int
first_ids(const SweepQueueSlot *slot, Datum *lanes, Datum *positions)
{
	int64		first[SWEEP_LANES];
	int			count = 0;

	for (int i = 0; i < SWEEP_LANES; i++)
		first[i] = (slot->pending & (1 << i)) ? slot->position[i] : PG_INT64_MAX;
	for (int i = 0; i < slot->prefetched_count; i++)
		look_at_message(&slot->prefetched[slot->prefetched_first + i], first);
	for (int entry = slot->returned.first; entry >= 0; entry = sweep_in_flight(entry)->next)
		look_at_message(&sweep_in_flight(entry)->message, first);
	for (int i = 0; i < SWEEP_LANES; i++)
	{
		if (first[i] == PG_INT64_MAX)
			continue;
		lanes[count] = Int16GetDatum((int16) (SWEEP_PRIORITY_MAX - i));
		positions[count++] = Int64GetDatum(first[i]);
	}
	return count;
}

static void
look_at_message(const SweepMessageRef *message, int64 *first)
{
	int			lane = SWEEP_LANE_INDEX(message->lane);

	if (!SWEEP_LANE_IS_DELAYED(message->lane))
		first[lane] = Min(first[lane], message->message_id);
}
