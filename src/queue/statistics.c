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
#include "utils/hsearch.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "base/clock.h"
#include "base/compat_table.h"
#include "base/lock.h"
#include "queue/in_flight.h"
#include "queue/prepared.h"
#include "queue/slot_pool.h"
#include "queue/table.h"

/* Column queue_id of sweep.queue_dead. */
#define DEAD_QUEUE_ID 2

/* The numbers that are shown of a queue, copied from its slot, or counted. */
typedef struct State
{
	int32		queue_id;		/* key of the table of what was counted */
	int64		rows[2];
	int64		dead;
	int			held[2];
	TimestampTz due_from;
	int			due_known;
	int			due_inside;
	int64		first[SWEEP_LANES]; /* lowest id that may be claimed; PG_INT64_MAX = none */
	double		sent;
	double		acked;
} State;

/* The columns of sweep._queue_states(). */
#define STATE_COLUMNS 13

static bool count_queues(Oid relation, HTAB *counts, bool shared);
static bool is_counted(Oid relation);
static void begin_count(Oid relation, Snapshot snapshot);
static bool end_count(Oid relation);
static void count_rows(Oid relation, Snapshot snapshot, HTAB *counts, bool dead);
static State *count_of(HTAB *counts, int32 queue_id);
static void put_states(ReturnSetInfo *result, Oid relation, HTAB *counts, bool shared);
static bool copy_slot(SweepQueueSlot *slot, Oid relation, State *state);
static void put_state(ReturnSetInfo *result, const State *state);
static void look_at_due(const SweepQueueSlot *slot, State *state);
static int	look_at_delayed(const SweepQueueSlot *slot, const SweepMessageRef *message, int *inside);
static void look_at_first(const SweepQueueSlot *slot, int64 *first);
static void look_at_message(const SweepMessageRef *message, int64 *first);

PG_FUNCTION_INFO_V1(sweep_queue_states);

/* SQL: sweep._queue_states() RETURNS SETOF record */
Datum
sweep_queue_states(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	Oid			relation = sweep_queue_relation();
	bool		shared = sweep_queue_memory_exists() && !RecoveryInProgress();
	HASHCTL		control = {.keysize = sizeof(int32), .entrysize = sizeof(State), .hcxt = CurrentMemoryContext};
	HTAB	   *counts = NULL;
	bool		counted = false;

	InitMaterializedSRF(fcinfo, 0);
	if (shared)
	{
		sweep_prepared_settle();
		sweep_queue_lock(LW_SHARED);
		counted = is_counted(relation);
		sweep_queue_unlock();
	}
	if (!counted)
	{
		counts = hash_create("pg_sweep counted queues", 256, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
		if (count_queues(relation, counts, shared))
			counts = NULL;
	}
	put_states(result, relation, counts, shared);
	return (Datum) 0;
}

/* Counts all rows, for the counters or just for this once. Returns whether the counters are valid. */
static bool
count_queues(Oid relation, HTAB *counts, bool shared)
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
	/* With more queues than slots there are no counters; nor is a slot taken from any queue to find that out. */
	if (hash_get_num_entries(counts) > sweep_max_queues)
		sweep_queue_spoil_counts(MyDatabaseId);
	else
	{
		HASH_SEQ_STATUS scan;
		State	   *count;

		hash_seq_init(&scan, counts);
		while ((count = hash_seq_search(&scan)) != NULL)
		{
			SweepQueueSlot *slot = sweep_queue_find_slot(relation, count->queue_id);

			if (slot == NULL)
				slot = sweep_queue_allot_slot(relation, count->queue_id, InvalidOid);
			if (slot == NULL)
			{
				sweep_queue_spoil_counts(MyDatabaseId);
				hash_seq_term(&scan);
				break;
			}
			slot->used_us = sweep_monotonic_us();
			slot->rows[0] += count->rows[0];
			slot->rows[1] += count->rows[1];
			slot->dead += count->dead;
		}
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
count_rows(Oid relation_oid, Snapshot snapshot, HTAB *counts, bool dead)
{
	Relation	relation = relation_open(relation_oid, AccessShareLock);
	TableScanDesc scan = sweep_table_beginscan(relation, snapshot);
	TupleTableSlot *slot = table_slot_create(relation, NULL);
	State	   *last = NULL;

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

/* Begins as that of a queue without a slot, which is looked at from its start. */
static State *
count_of(HTAB *counts, int32 queue_id)
{
	bool		found;
	State	   *state = hash_search(counts, &queue_id, HASH_ENTER, &found);

	if (!found)
	{
		*state = (State) {.queue_id = queue_id, .due_from = PG_INT64_MIN};
		for (int i = 0; i < SWEEP_LANES; i++)
			state->first[i] = PG_INT64_MIN;
	}
	return state;
}

/*
 * With counts those are shown, for lack of shared memory or of room in it, and of the slots only what is in flight. Of
 * each slot what is shown is copied under the lock, and made into a row without it.
 */
static void
put_states(ReturnSetInfo *result, Oid relation, HTAB *counts, bool shared)
{
	HASH_SEQ_STATUS scan;
	State	   *count;

	for (int i = 0; shared && i < sweep_max_queues; i++)
	{
		State		state;

		if (!copy_slot(sweep_queue_slot(i), relation, &state))
			continue;
		if (counts == NULL)
			put_state(result, &state);
		else if ((count = hash_search(counts, &state.queue_id, HASH_FIND, NULL)) != NULL)
		{
			memcpy(state.rows, count->rows, sizeof(state.rows));
			state.dead = count->dead;
			*count = state;
		}
	}
	if (counts == NULL)
		return;
	hash_seq_init(&scan, counts);
	while ((count = hash_seq_search(&scan)) != NULL)
		put_state(result, count);
}

/* False unless it is that of a queue of this database. */
static bool
copy_slot(SweepQueueSlot *slot, Oid relation, State *state)
{
	int64		now_us = sweep_monotonic_us();
	bool		ours;

	sweep_queue_lock(LW_EXCLUSIVE);
	ours = slot->generation != 0 && slot->database == MyDatabaseId && slot->relation == relation;
	if (ours)
	{
		sweep_in_flight_expire(slot, now_us);
		*state = (State) {
			.queue_id = slot->queue_id, .rows = {slot->rows[0], slot->rows[1]}, .dead = slot->dead, .held = {slot->held[0], slot->held[1]},
			.due_from = slot->due_from, .sent = sweep_queue_rate(&slot->sent, now_us), .acked = sweep_queue_rate(&slot->acked, now_us)
		};
		look_at_due(slot, state);
		look_at_first(slot, state->first);
	}
	sweep_queue_unlock();
	return ours;
}

static void
put_state(ReturnSetInfo *result, const State *state)
{
	Datum		values[STATE_COLUMNS];
	bool		nulls[STATE_COLUMNS] = {0};
	Datum		lanes[SWEEP_LANES];
	Datum		positions[SWEEP_LANES];
	int			lane_count = 0;

	/* The lanes that may have something to be claimed, and the lowest ids at which. */
	for (int i = 0; i < SWEEP_LANES; i++)
	{
		if (state->first[i] == PG_INT64_MAX)
			continue;
		lanes[lane_count] = Int16GetDatum((int16) (SWEEP_PRIORITY_MAX - i));
		positions[lane_count++] = Int64GetDatum(state->first[i]);
	}
	values[0] = Int32GetDatum(state->queue_id);
	values[1] = Int64GetDatum(state->rows[0]);
	values[2] = Int64GetDatum(state->rows[1]);
	values[3] = Int64GetDatum(state->dead);
	values[4] = Int32GetDatum(state->held[0]);
	values[5] = Int32GetDatum(state->held[1]);
	values[6] = TimestampTzGetDatum(state->due_from);
	values[7] = Int32GetDatum(state->due_known);
	values[8] = Int32GetDatum(state->due_inside);
	values[9] = PointerGetDatum(construct_array(lanes, lane_count, INT2OID, sizeof(int16), true, TYPALIGN_SHORT));
	values[10] = PointerGetDatum(construct_array(positions, lane_count, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
	values[11] = Float8GetDatum(state->sent);
	values[12] = Float8GetDatum(state->acked);
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/*
 * Delayed messages that were due and can be claimed: known are those that a search has found or that
 * were given back; inside are those, and claimed ones, which are not before due_from all the same, so that
 * counting from there would count them twice.
 */
static void
look_at_due(const SweepQueueSlot *slot, State *state)
{
	int			claimed = slot->held[1];

	for (int i = 0; i < slot->prefetched_count; i++)
		state->due_known += look_at_delayed(slot, &slot->prefetched[slot->prefetched_first + i], &state->due_inside);
	for (int entry = slot->returned.first; entry >= 0; entry = sweep_in_flight(entry)->next)
		state->due_known += look_at_delayed(slot, &sweep_in_flight(entry)->message, &state->due_inside);
	for (int entry = slot->blocked.first; entry >= 0; entry = sweep_in_flight(entry)->next)
		state->due_known += look_at_delayed(slot, &sweep_in_flight(entry)->message, &state->due_inside);
	for (int lease = slot->lease_first; lease >= 0 && claimed > 0; lease = sweep_queue_lease(lease)->next)
		for (int entry = sweep_queue_lease(lease)->messages.first; entry >= 0 && claimed > 0; entry = sweep_in_flight(entry)->next)
			claimed -= look_at_delayed(slot, &sweep_in_flight(entry)->message, &state->due_inside);
}

/* 1 when it is delayed, else 0. */
static int
look_at_delayed(const SweepQueueSlot *slot, const SweepMessageRef *message, int *inside)
{
	bool		delayed = SWEEP_LANE_IS_DELAYED(message->lane);

	*inside += delayed && message->due_at >= slot->due_from;
	return delayed;
}

static void
look_at_first(const SweepQueueSlot *slot, int64 *first)
{
	for (int i = 0; i < SWEEP_LANES; i++)
		first[i] = (slot->pending & (1 << i)) ? slot->position[i] : PG_INT64_MAX;
	for (int i = 0; i < slot->prefetched_count; i++)
		look_at_message(&slot->prefetched[slot->prefetched_first + i], first);
	for (int entry = slot->returned.first; entry >= 0; entry = sweep_in_flight(entry)->next)
		look_at_message(&sweep_in_flight(entry)->message, first);
}

static void
look_at_message(const SweepMessageRef *message, int64 *first)
{
	int			lane = SWEEP_LANE_INDEX(message->lane);

	if (!SWEEP_LANE_IS_DELAYED(message->lane))
		first[lane] = Min(first[lane], message->message_id);
}
