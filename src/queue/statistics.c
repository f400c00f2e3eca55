/*
 * statistics.c
 *		The columns of sweep.queues.
 *
 * When a transaction ends, it adds what it changed to the counters of its queues (slot.c). The counters begin with a count of the
 * rows, by the first process that reads the view after the start of the server, or after a statement that was not the extension's own.
 * The count is exact while messages come and go: its snapshot is published before, and a commit is added to the counters if and only
 * if that snapshot does not see it.
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
#include "base/extension.h"
#include "base/lock.h"
#include "queue/in_flight.h"
#include "queue/slot_pool.h"
#include "queue/table.h"
#include "queue/transaction.h"

/* Column queue_id of sweep.queue_dead. */
#define DEAD_QUEUE_ID 2

/* The columns of sweep._queue_states(), which put_state() numbers from 0. */
#define STATE_COLUMNS 14

/* The state of a queue for sweep.queues, from its slot or from a count. */
typedef struct State
{
	int32		queue_id;		/* key of the hash table of counts */
	uint32		generation;		/* of the slot */
	int64		rows[2];
	int64		dead;
	int			held[2];
	TimestampTz due_from;
	int			due_known;		/* delayed messages that a search has found or that were returned */
	int			due_inside;		/* of these and the claimed ones, those due from due_from on: the query counts them, too */
	int64		first[SWEEP_LANES]; /* lowest id that may be claimed; PG_INT64_MAX = none */
	double		sent;
	double		acked;
} State;

PG_FUNCTION_INFO_V1(sweep_queue_states);

/*
 * Opens the tables of messages and of dead messages. Called before the snapshot is taken: if the table were rewritten while this waits for
 * the lock, an older snapshot would see it empty.
 */
static void
open_tables(Oid relation, Relation *tables)
{
	tables[0] = relation_open(relation, AccessShareLock);
	tables[1] = relation_open(get_relname_relid("queue_dead", RelationGetNamespace(tables[0])), AccessShareLock);
}

/* The count of a queue. A new one describes a queue without a slot: no search has reached any message. */
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

static void
count_rows(Relation relation, Snapshot snapshot, HTAB *counts, bool dead)
{
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

/* Counts the rows of both tables, closes these, and unregisters the snapshot. */
static void
count_all(const Relation *tables, Snapshot snapshot, HTAB *counts)
{
	count_rows(tables[0], snapshot, counts, false);
	count_rows(tables[1], snapshot, counts, true);
	UnregisterSnapshot(snapshot);
}

/*
 * Publishes a snapshot: commits that it sees are counted by this process, all others are added when they are applied (slot.c). It must not see
 * the changes of the transaction itself. NULL if the counters are valid; else the tables are open.
 */
static Snapshot
begin_count(Oid relation, Relation *tables)
{
	TransactionId own = GetTopTransactionIdIfAny();
	Snapshot	snapshot = NULL;
	SweepQueueDatabase *entry;

	sweep_queue_lock(LW_EXCLUSIVE);
	entry = sweep_queue_find_database(relation, true);
	if (!entry->counted)
	{
		bool		knows_prepared = entry->knows_prepared;

		sweep_queue_unlock();
		open_tables(relation, tables);
		if (!knows_prepared)
			sweep_prepared_note_all(relation);
		sweep_queue_lock(LW_EXCLUSIVE);
		entry = sweep_queue_find_database(relation, true);
	}
	if (!entry->counted)
	{
		snapshot = RegisterSnapshot(GetLatestSnapshot());
		/* Hides the changes of this transaction, which are added when it commits. */
		snapshot->curcid = FirstCommandId;
		entry->xmax = sweep_queue_full_xid(snapshot->xmax);
		entry->xmin = sweep_queue_full_xid(snapshot->xmin);
		entry->running_count = snapshot->xcnt;
		/* The array may be NULL when it is empty, which memcpy must not be given. */
		if (snapshot->xcnt > 0)
			memcpy(sweep_queue_running(entry), snapshot->xip, snapshot->xcnt * sizeof(TransactionId));
		/* A snapshot does not list its own transaction. */
		if (TransactionIdIsValid(own))
			sweep_queue_running(entry)[entry->running_count++] = own;
		entry->counting = true;
		entry->count_number = ++sweep_queue_memory.shared->count_number;
	}
	sweep_queue_unlock();
	return snapshot;
}

/*
 * Adds the counts to the counters of the queues. False when the counters are not valid afterwards: a queue has lost its slot, or a
 * statement that is not the extension's own has written to the table meanwhile. With more queues than slots nothing is added, to take
 * no slot from another queue.
 */
static bool
end_count(Oid relation, HTAB *counts)
{
	SweepQueueDatabase *entry;
	HASH_SEQ_STATUS scan;
	State	   *count;
	int			added = 0;
	bool		fits = hash_get_num_entries(counts) <= sweep_max_queues;

	sweep_queue_lock(LW_EXCLUSIVE);
	hash_seq_init(&scan, counts);
	while ((entry = sweep_queue_find_database(relation, false)) != NULL && entry->counting && fits &&
		   (count = hash_seq_search(&scan)) != NULL)
	{
		SweepQueueSlot *slot = sweep_queue_find_slot(relation, count->queue_id);
		SweepRefusal refusal;

		if (slot == NULL)
			slot = sweep_queue_allot_slot(relation, count->queue_id, InvalidOid, &refusal);
		fits = slot != NULL;
		if (fits)
		{
			slot->used_us = sweep_monotonic_us();
			sweep_queue_add_rows(slot, entry, count->rows, count->dead);
		}
		(void) sweep_queue_lend_lock_after(SWEEP_QUEUE_SLOTS_PIECE, &added);
	}
	fits &= entry != NULL && entry->counting;
	if (!fits)
	{
		hash_seq_term(&scan);
		sweep_queue_spoil_counts(MyDatabaseId);
	}
	else
		entry->counted = true;
	sweep_queue_unlock();
	return fits;
}

/*
 * Makes the counters valid; false if that fails, and the table has the counts instead. One process counts at a time, and a process that
 * has waited for it finds the counters valid.
 */
static bool
make_counters(Oid relation, HTAB *counts)
{
	bool		valid = true;
	Relation	tables[2];
	Snapshot	snapshot;
	LOCKTAG		tag;

	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, 0, 0, SWEEP_LOCK_SEARCH);
	(void) LockAcquire(&tag, ExclusiveLock, false, false);
	snapshot = begin_count(relation, tables);
	if (snapshot != NULL)
	{
		count_all(tables, snapshot, counts);
		valid = end_count(relation, counts);
	}
	LockRelease(&tag, ExclusiveLock, false);
	return valid;
}

/* Adds a waiting message to the state of its queue. */
static void
add_message(State *state, const SweepMessageRef *message)
{
	int64	   *first = &state->first[SWEEP_LANE_INDEX(message->lane)];

	if (!SWEEP_LANE_IS_DELAYED(message->lane))
		*first = Min(*first, message->message_id);
	else
	{
		state->due_known++;
		state->due_inside += message->due_at >= state->due_from;
	}
}

static bool
belongs_to(const SweepQueueSlot *slot, Oid relation)
{
	return slot->generation != 0 && slot->database == MyDatabaseId && slot->relation == relation;
}

/* Copies the state of the queue that has the slot; false unless it is one of this database. */
static bool
copy_slot(SweepQueueSlot *slot, Oid relation, State *state)
{
	int64		now_us = sweep_monotonic_us();
	bool		found;

	sweep_queue_lock(LW_EXCLUSIVE);
	do
		found = belongs_to(slot, relation);
	while (found && !sweep_in_flight_expire(slot));
	if (found)
	{
		const SweepQueueDatabase *entry = sweep_queue_find_database(relation, false);

		*state = (State) {
			.queue_id = slot->queue_id, .generation = slot->generation, .held = {slot->held[0], slot->held[1]},
			.due_from = slot->due_from, .sent = sweep_queue_rate(&slot->sent, now_us), .acked = sweep_queue_rate(&slot->acked, now_us)
		};
		if (entry != NULL && entry->count_number == slot->count_number)
		{
			memcpy(state->rows, slot->rows, sizeof(state->rows));
			state->dead = slot->dead;
		}
		for (int i = 0; i < SWEEP_LANES; i++)
			state->first[i] = (slot->pending & (1 << i)) ? slot->position[i] : PG_INT64_MAX;
		for (int i = 0; i < slot->prefetched_count; i++)
			add_message(state, &slot->prefetched[slot->prefetched_first + i]);
	}
	sweep_queue_unlock();
	return found;
}

/* Adds the messages in flight to the states of their queues; the array is indexed by slot number. */
static void
add_in_flight(State **states)
{
	int			looked_at = 0;

	sweep_queue_lock(LW_EXCLUSIVE);
	for (int i = 0; i < sweep_queue_memory.shared->used_in_flight; i++)
	{
		const SweepInFlight *entry = sweep_in_flight(i);
		State	   *state = entry->state != IN_FLIGHT_FREE ? states[entry->slot] : NULL;

		if (state == NULL || state->generation != sweep_queue_slot(entry->slot)->generation)
			;
		else if (entry->state == IN_FLIGHT_RETURNED || (entry->state == IN_FLIGHT_BLOCKED && SWEEP_LANE_IS_DELAYED(entry->message.lane)))
			add_message(state, &entry->message);
		else if (entry->state != IN_FLIGHT_BLOCKED)
			state->due_inside += SWEEP_LANE_IS_DELAYED(entry->message.lane) && entry->message.due_at >= state->due_from;
		(void) sweep_queue_lend_lock_after(SWEEP_QUEUE_PIECE, &looked_at);
	}
	sweep_queue_unlock();
}

static void
put_state(ReturnSetInfo *result, const State *state)
{
	Datum		values[STATE_COLUMNS];
	bool		nulls[STATE_COLUMNS] = {0};
	Datum		lanes[SWEEP_LANES];
	Datum		positions[SWEEP_LANES];
	int			lane_count = 0;

	/*
	 * The lanes that may have messages to claim, with the lowest id of each; and the first lane that no search has reached. A
	 * search goes from the highest priority down, so no search has reached most of the lanes after that one.
	 */
	nulls[11] = true;
	for (int i = 0; i < SWEEP_LANES && nulls[11]; i++)
	{
		if (state->first[i] == PG_INT64_MAX)
			continue;
		if (state->first[i] == PG_INT64_MIN)
		{
			values[11] = Int16GetDatum((int16) (SWEEP_PRIORITY_MAX - i));
			nulls[11] = false;
			continue;
		}
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
	values[12] = Float8GetDatum(state->sent);
	values[13] = Float8GetDatum(state->acked);
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/*
 * Adds the states of the slots of this database to the table. Without valid counters the counted numbers are kept; a queue
 * that has a slot and no rows was not counted, and has 0.
 */
static void
add_slots(HTAB *table, Oid relation, bool valid)
{
	State	  **states = palloc0(sizeof(State *) * sweep_max_queues);
	State		state;

	for (int i = 0; i < sweep_max_queues; i++)
	{
		if (!copy_slot(sweep_queue_slot(i), relation, &state))
			continue;
		states[i] = count_of(table, state.queue_id);
		if (!valid)
		{
			memcpy(state.rows, states[i]->rows, sizeof(state.rows));
			state.dead = states[i]->dead;
		}
		*states[i] = state;
	}
	add_in_flight(states);
}

/* SQL: sweep._queue_states() RETURNS SETOF record */
Datum
sweep_queue_states(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	Oid			relation = sweep_queue_relation();
	HASHCTL		control = {.keysize = sizeof(int32), .entrysize = sizeof(State), .hcxt = CurrentMemoryContext};
	HTAB	   *table = hash_create("pg_sweep queues", 256, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	HASH_SEQ_STATUS scan;
	State	   *state;

	InitMaterializedSRF(fcinfo, 0);
	/* 0.1.0 and 0.2.0 declare other columns. */
	if (result->setDesc->natts != STATE_COLUMNS)
		sweep_extension_require(sweep_extension_find());
	if (sweep_queue_memory_exists() && !RecoveryInProgress())
	{
		sweep_queue_settle_prepared();
		add_slots(table, relation, make_counters(relation, table));
	}
	else
	{
		Relation	tables[2];

		open_tables(relation, tables);
		count_all(tables, RegisterSnapshot(GetLatestSnapshot()), table);
	}
	hash_seq_init(&scan, table);
	while ((state = hash_seq_search(&scan)) != NULL)
		put_state(result, state);
	return (Datum) 0;
}
