/*
 * search.c
 *		Finds the messages that the next claims take.
 *
 * A search reads the primary key of sweep.queue_message from the position of each lane on, and the index by due time.
 * The messages that it finds are prefetched: they are in a list in shared memory, from which claims take them without
 * reading anything. One process searches a queue at a time, under a lock of the lock manager that ends with its
 * transaction at the latest. A claim that leaves few prefetched messages searches ahead, while other claims go on.
 *
 * A process that waits for a search does not wait for that lock: all waiting processes would get it one after the
 * other, only to see that there are messages now. It sleeps on a condition variable, and the search wakes as many
 * processes as it has found messages for. A process that comes meanwhile takes prefetched messages, and searches if
 * there are none. A search that fails wakes no process: the first whose sleep times out takes the lock.
 *
 * Each search takes a new snapshot. Rows that its own transaction has inserted are left out, because no other process
 * could read them; they are found after the commit.
 *
 * A position moves forward over the rows that were read. Dead rows before it are never read again, even if an old
 * snapshot keeps VACUUM from removing them.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/stratnum.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "storage/condition_variable.h"
#include "storage/procarray.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/compat.h"
#include "base/compat_table.h"
#include "base/lock.h"
#include "queue/in_flight.h"
#include "queue/key.h"
#include "queue/search.h"
#include "queue/slot_pool.h"
#include "queue/transaction.h"

/* Longest sleep of a process that waits for a search, in ms: a search takes less, unless it reads from the disk. */
#define LOOK_AGAIN_MS 100

/* If this many or more processes are to be woken, all are. */
#define WAKE_AT_MOST 16

typedef struct Search
{
	Relation	messages;
	const SweepQueue *queue;
	Snapshot	snapshot;
	TimestampTz now;
	uint32		generation;
	/* The start of the searched ranges, and after the search their end. */
	uint32		lanes; /* lanes to search */
	uint32		exhausted;		/* lanes in which nothing is left */
	int64		position[SWEEP_LANES];
	bool		with_due;
	TimestampTz due_from;
	TimestampTz next_due;
	int			wanted;			/* by the claim that searches */
	int			room;			/* messages that the list can take */
	int			count;
	SweepMessageRef found[SWEEP_QUEUE_PREFETCH];
} Search;

/* False when another process searches, or has just done so. Unless "ahead", waits for that search. */
static bool
become_searcher(const LOCKTAG *tag, Relation messages, const SweepQueue *queue, bool ahead)
{
	ConditionVariable *searched = NULL;
	SweepQueueSlot *slot;
	bool		acquired = LockAcquire(tag, ExclusiveLock, false, true) != LOCKACQUIRE_NOT_AVAIL;

	if (acquired || ahead)
		return acquired;
	sweep_queue_lock(LW_SHARED);
	slot = sweep_queue_find_slot(RelationGetRelid(messages), queue->queue_id);
	if (slot != NULL)
		searched = sweep_queue_searched(slot);
	sweep_queue_unlock();
	if (searched == NULL)
		return false;
	ConditionVariablePrepareToSleep(searched);
	/* From here on a process that releases the lock wakes this one. */
	acquired = LockAcquire(tag, ExclusiveLock, false, true) != LOCKACQUIRE_NOT_AVAIL;
	if (!acquired)
		(void) ConditionVariableTimedSleep(searched, LOOK_AGAIN_MS, sweep_wait_event(SWEEP_WAIT_QUEUE));
	ConditionVariableCancelSleep();
	return acquired;
}

/* False when no search is needed. *worth: whether the caller may find messages, with or without a search. */
static bool
begin_search(Search *search, bool ahead, bool *worth)
{
	Oid			relation = RelationGetRelid(search->messages);
	const SweepQueueDatabase *database;
	SweepQueueSlot *slot;
	bool		needed;
	int			few = ahead ? SWEEP_QUEUE_LOW(search->wanted) : 0;

	search->now = GetCurrentTimestamp();
	sweep_queue_lock(LW_EXCLUSIVE);
	database = sweep_queue_find_database(relation, false);
	if (database == NULL || !database->knows_prepared)
	{
		sweep_queue_unlock();
		sweep_prepared_note_all(relation);
		sweep_queue_lock(LW_EXCLUSIVE);
	}
	slot = sweep_queue_get_slot(relation, search->queue->queue_id);
	if (slot == NULL)
	{
		/* The claim will look again, and then make room or be refused. */
		sweep_queue_unlock();
		return false;
	}
	search->generation = slot->generation;
	search->room = Min(SWEEP_QUEUE_PREFETCH - slot->prefetched_count, SWEEP_QUEUE_PREFETCH / 2);
	needed = sweep_queue_needs_search(slot, few, search->now);
	*worth = slot->prefetched_count > 0 || slot->pending != 0 || slot->next_due <= search->now;
	search->lanes = slot->prefetched_count <= few ? slot->pending : 0;
	search->with_due = slot->next_due <= search->now;
	search->due_from = slot->due_from;
	if (needed)
	{
		/* From here on commits record their positions here. */
		slot->due_low = SWEEP_NOTHING_DUE;
		if (search->with_due)
			slot->due_searched_us = sweep_monotonic_us();
		for (int i = 0; i < SWEEP_LANES; i++)
		{
			search->position[i] = slot->position[i];
			slot->low[i] = SWEEP_NOTHING_DUE;
		}
	}
	sweep_queue_unlock();
	return needed;
}

static int64
column_int64(Relation messages, HeapTuple tuple, int column)
{
	bool		is_null;

	return DatumGetInt64(heap_getattr(tuple, column, RelationGetDescr(messages), &is_null));
}

/* Drops the found messages that are in flight already, all at once: a check of each row in the scan would take the lock each time. */
static void
drop_in_flight(Search *search, const SweepQueueSlot *slot)
{
	int			kept = 0;

	for (int i = 0; i < search->count; i++)
		if (sweep_in_flight_find(slot, search->found[i].lane, search->found[i].message_id) < 0)
			search->found[kept++] = search->found[i];
	search->count = kept;
}

/*
 * Half of the room is enough, so that the rest is left for messages of a higher priority. The next search goes on at the
 * due time that this one has reached. If that is the due time at which this one began, all messages found are due at the
 * same moment, and the next search would find them again; then those in flight do not count.
 */
static bool
has_enough_due(Search *search, TimestampTz due_at, TimestampTz first_due)
{
	const SweepQueueSlot *slot;

	if (search->count < search->room / 2)
		return false;
	if (due_at > first_due)
		return true;
	sweep_queue_lock(LW_SHARED);
	slot = sweep_queue_find_slot(RelationGetRelid(search->messages), search->queue->queue_id);
	if (slot != NULL)
		drop_in_flight(search, slot);
	sweep_queue_unlock();
	return search->count > 0;
}

/*
 * False for a row that this transaction has inserted or put off, or that an open transaction is removing or putting off.
 * If that transaction is rolled back, the message is LEASED again, or, after a statement that is not the extension's own, the
 * queue is searched from its start.
 *
 * True for a row that an open transaction has only updated to free its key: for the old version (frees_key) and, in that
 * transaction, for the new one (freed). If the entry of that message was removed to make room, no later search would
 * find it. A claim of the old version cannot lock the row, and puts the message off. A failed message that takes its key
 * back is deleted and inserted instead, so it is not taken for such a row.
 */
static bool
can_be_claimed(HeapTuple tuple, bool frees_key, bool freed)
{
	HeapTupleHeader header = tuple->t_data;

	if (TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(header)) &&
		!(freed && (header->t_infomask & HEAP_UPDATED)))
		return false;
	return (header->t_infomask & HEAP_XMAX_INVALID) || HEAP_XMAX_IS_LOCKED_ONLY(header->t_infomask) ||
		(frees_key && !(header->t_infomask2 & HEAP_KEYS_UPDATED)) ||
		!TransactionIdIsInProgress(HeapTupleHeaderGetUpdateXid(header));
}

static void
add_found(Search *search, HeapTuple tuple)
{
	SweepMessageRef message = {0};
	TupleDesc	description = RelationGetDescr(search->messages);
	Datum		key;
	bool		is_null;
	bool		claimed_is_null;
	bool		claimed;
	bool		frees_key;

	message.message_id = column_int64(search->messages, tuple, MESSAGE_ID);
	message.lane = DatumGetInt16(heap_getattr(tuple, MESSAGE_LANE, description, &is_null));
	message.attempts = DatumGetInt16(heap_getattr(tuple, MESSAGE_ATTEMPTS, description, &is_null));
	key = heap_getattr(tuple, MESSAGE_KEY, description, &is_null);
	claimed = DatumGetBool(heap_getattr(tuple, MESSAGE_CLAIMED, description, &claimed_is_null));
	frees_key = !is_null && search->queue->key_policy != KEY_WHILE_QUEUED_OR_RUNNING;
	if (!can_be_claimed(tuple, frees_key && !claimed, frees_key && claimed))
		return;
	if (SWEEP_LANE_IS_DELAYED(message.lane))
		message.due_at = column_int64(search->messages, tuple, MESSAGE_DUE_AT);
	ItemPointerCopy(&tuple->t_self, &message.tid);
	if (frees_key)
		message.key_hash = sweep_key_hash(DatumGetTextPP(key));
	search->found[search->count++] = message;
}

/* Finds delayed messages that are due, by their due times. */
static void
search_due(Search *search)
{
	Relation	index = sweep_queue_open_index(search->messages, "queue_message_due", AccessShareLock);
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;
	TimestampTz first_due = search->due_from;

	search->next_due = SWEEP_NOTHING_DUE;
	ScanKeyInit(&keys[0], MESSAGE_QUEUE_ID, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(search->queue->queue_id));
	ScanKeyInit(&keys[1], MESSAGE_DUE_AT, BTGreaterEqualStrategyNumber, F_TIMESTAMPTZ_GE, TimestampTzGetDatum(search->due_from));
	scan = systable_beginscan_ordered(search->messages, index, search->snapshot, 2, keys);
	while ((tuple = systable_getnext_ordered(scan, ForwardScanDirection)) != NULL)
	{
		TimestampTz due_at = column_int64(search->messages, tuple, MESSAGE_DUE_AT);

		CHECK_FOR_INTERRUPTS();
		if (due_at > search->now || has_enough_due(search, due_at, first_due))
		{
			search->next_due = search->due_from = due_at;
			break;
		}
		add_found(search, tuple);
		search->due_from = due_at;
	}
	systable_endscan_ordered(scan);
	index_close(index, AccessShareLock);
}

static void
search_lane(Search *search, int lane)
{
	int16		priority = (int16) (SWEEP_PRIORITY_MAX - lane);
	Relation	index = index_open(sweep_primary_key_index(search->messages), AccessShareLock);
	ScanKeyData keys[3];
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&keys[0], MESSAGE_QUEUE_ID, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(search->queue->queue_id));
	ScanKeyInit(&keys[1], MESSAGE_LANE, BTEqualStrategyNumber, F_INT2EQ, Int16GetDatum(priority));
	ScanKeyInit(&keys[2], MESSAGE_ID, BTGreaterEqualStrategyNumber, F_INT8GE, Int64GetDatum(search->position[lane]));
	scan = systable_beginscan_ordered(search->messages, index, search->snapshot, 3, keys);
	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		if (search->count >= search->room)
			break;
		tuple = systable_getnext_ordered(scan, ForwardScanDirection);
		if (tuple == NULL)
		{
			search->exhausted |= 1 << lane;
			break;
		}
		add_found(search, tuple);
		search->position[lane] = column_int64(search->messages, tuple, MESSAGE_ID) + 1;
	}
	systable_endscan_ordered(scan);
	index_close(index, AccessShareLock);
}

/* Order by priority; then messages that have fallen due before those that were sent without a delay. */
static int
compare_found(const void *left, const void *right)
{
	const SweepMessageRef *a = left;
	const SweepMessageRef *b = right;

	if (SWEEP_LANE_PRIORITY(a->lane) != SWEEP_LANE_PRIORITY(b->lane))
		return SWEEP_LANE_PRIORITY(a->lane) > SWEEP_LANE_PRIORITY(b->lane) ? -1 : 1;
	if (a->lane != b->lane)
		return SWEEP_LANE_IS_DELAYED(a->lane) ? -1 : 1;
	if (a->due_at != b->due_at)
		return a->due_at < b->due_at ? -1 : 1;
	if (a->message_id != b->message_id)
		return a->message_id < b->message_id ? -1 : 1;
	return 0;
}

/*
 * Adds the found messages to the prefetched ones, in order. A message may be there twice if a position was lowered
 * meanwhile.
 */
static void
append_prefetched(SweepQueueSlot *slot, const Search *search)
{
	int			old = slot->prefetched_count;
	int			kept = 0;

	memmove(slot->prefetched, &slot->prefetched[slot->prefetched_first], old * sizeof(SweepMessageRef));
	memcpy(&slot->prefetched[old], search->found, search->count * sizeof(SweepMessageRef));
	slot->prefetched_first = 0;
	slot->prefetched_count += search->count;
	if (old == 0 || search->count == 0 || compare_found(&slot->prefetched[old - 1], &slot->prefetched[old]) < 0)
		return;
	qsort(slot->prefetched, slot->prefetched_count, sizeof(SweepMessageRef), compare_found);
	for (int i = 0; i < slot->prefetched_count; i++)
		if (kept == 0 || compare_found(&slot->prefetched[kept - 1], &slot->prefetched[i]) != 0)
			slot->prefetched[kept++] = slot->prefetched[i];
	slot->prefetched_count = kept;
}

static void
end_search(Search *search)
{
	SweepQueueSlot *slot;

	sweep_queue_lock(LW_EXCLUSIVE);
	slot = sweep_queue_find_slot(RelationGetRelid(search->messages), search->queue->queue_id);
	if (slot != NULL && slot->generation == search->generation)
	{
		for (int i = 0; i < SWEEP_LANES; i++)
		{
			if ((search->lanes & (1 << i)) == 0)
				continue;
			slot->position[i] = Min(search->position[i], slot->low[i]);
			if ((search->exhausted & (1 << i)) && slot->low[i] == SWEEP_NOTHING_DUE)
				slot->pending &= ~(1 << i);
		}
		if (search->with_due)
		{
			slot->due_from = Min(search->due_from, slot->due_low);
			slot->next_due = Min(search->next_due, slot->due_low);
		}
		drop_in_flight(search, slot);
		append_prefetched(slot, search);
		/* No commit wakes processes for messages that have fallen due, so the search does. */
		if (search->with_due && slot->prefetched_count > search->wanted)
			sweep_queue_wake(slot, (slot->prefetched_count - 1) / search->wanted);
	}
	sweep_queue_unlock();
}

/* Wakes as many waiting processes as there are messages for, if each wants "wanted", and one more to search; all if nothing is left to search. */
static void
wake_waiting(Relation messages, const SweepQueue *queue, int wanted)
{
	ConditionVariable *searched = NULL;
	SweepQueueSlot *slot;
	int			count = WAKE_AT_MOST;

	sweep_queue_lock(LW_SHARED);
	slot = sweep_queue_find_slot(RelationGetRelid(messages), queue->queue_id);
	if (slot != NULL)
	{
		searched = sweep_queue_searched(slot);
		if (slot->pending != 0)
			count = slot->prefetched_count / wanted + 1;
	}
	sweep_queue_unlock();
	if (searched == NULL)
		return;
	if (count >= WAKE_AT_MOST)
		ConditionVariableBroadcast(searched);
	else
		while (count-- > 0)
			ConditionVariableSignal(searched);
}

bool
sweep_queue_search(Relation messages, const SweepQueue *queue, int wanted, bool ahead)
{
	Search		search = {.messages = messages,.queue = queue,.wanted = wanted};
	LOCKTAG		tag;
	bool		worth = true;

	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, 0, (uint32) queue->queue_id, SWEEP_LOCK_SEARCH);
	if (!become_searcher(&tag, messages, queue, ahead))
		return true;
	if (begin_search(&search, ahead, &worth))
	{
		search.snapshot = RegisterSnapshot(GetLatestSnapshot());
		if (search.with_due)
			search_due(&search);
		for (int lane = 0; lane < SWEEP_LANES && search.count < search.room; lane++)
			if (search.lanes & (1 << lane))
				search_lane(&search, lane);
		UnregisterSnapshot(search.snapshot);
		if (search.with_due)
			qsort(search.found, search.count, sizeof(SweepMessageRef), compare_found);
		end_search(&search);
	}
	LockRelease(&tag, ExclusiveLock, false);
	wake_waiting(messages, queue, wanted);
	return worth;
}
