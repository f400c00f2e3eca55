/*
 * prepared.c
 *		Transactions that were prepared after they have worked with queues.
 *
 * A prepared transaction ends without a callback. Its changes are kept here until a process finds that it has ended: one
 * that claims, acknowledges, waits or counts. The records are counted, so that nothing is looked at while there are none.
 */
#include "postgres.h"

#include "access/transam.h"
#include "miscadmin.h"
#include "storage/procarray.h"
#include "utils/timestamp.h"

#include "base/sql.h"
#include "queue/change.h"
#include "queue/in_flight.h"
#include "queue/prepared.h"
#include "queue/slot.h"

static SweepStatement prepared_xids_sql = {
	.text = "SELECT p.transaction::pg_catalog.text::bigint FROM pg_catalog.pg_prepared_xacts p WHERE p.database = pg_catalog.current_database()",
	.reads_latest = true};

int
sweep_prepared_note(TransactionId xid, const SweepQueueChange *change)
{
	SweepQueueShared *shared = sweep_queue_memory.shared;
	SweepPreparedChange *records = sweep_queue_memory.prepared;
	int			number = 0;

	while (number < shared->used_prepared && TransactionIdIsValid(records[number].xid))
		number++;
	if (number == sweep_queue_memory.prepared_limit)
		return -1;
	shared->used_prepared = Max(shared->used_prepared, number + 1);
	records[number] = (SweepPreparedChange) {.xid = xid, .database = MyDatabaseId, .ending = -1, .change = *change};
	pg_atomic_fetch_add_u32(&shared->prepared_count, 1);
	return number;
}

static void
forget(SweepPreparedChange *prepared)
{
	prepared->xid = InvalidTransactionId;
	pg_atomic_fetch_sub_u32(&sweep_queue_memory.shared->prepared_count, 1);
}

void
sweep_prepared_forget(TransactionId xid)
{
	for (int i = 0; i < sweep_queue_memory.shared->used_prepared; i++)
		if (sweep_queue_memory.prepared[i].xid == xid)
			forget(&sweep_queue_memory.prepared[i]);
}

void
sweep_prepared_forget_database(Oid database)
{
	for (int i = 0; i < sweep_queue_memory.shared->used_prepared; i++)
		if (TransactionIdIsValid(sweep_queue_memory.prepared[i].xid) && sweep_queue_memory.prepared[i].database == database)
			forget(&sweep_queue_memory.prepared[i]);
}

/* Whether it is noted that the transaction has done something unknown to all queues. */
static bool
is_noted(TransactionId xid, Oid relation)
{
	for (int i = 0; i < sweep_queue_memory.shared->used_prepared; i++)
		if (sweep_queue_memory.prepared[i].xid == xid && sweep_queue_memory.prepared[i].change.queue_id == 0 &&
			sweep_queue_memory.prepared[i].change.relation == relation)
			return true;
	return false;
}

void
sweep_prepared_note_all(Oid relation)
{
	SweepQueueChange change = {.relation = relation, .queue_id = 0, .reset = true};
	SweepQueueDatabase *entry;
	bool		known;
	uint64		count;

	sweep_queue_lock(LW_SHARED);
	entry = sweep_queue_find_database(relation, false);
	known = entry != NULL && entry->knows_prepared;
	sweep_queue_unlock();
	if (known)
		return;
	sweep_sql_begin_call();
	count = sweep_sql_execute(&prepared_xids_sql, NULL, NULL);
	sweep_queue_lock(LW_EXCLUSIVE);
	entry = sweep_queue_find_database(relation, true);
	/* If there is no room, the next search tries again. */
	for (uint64 i = 0; i < count && !entry->knows_prepared; i++)
	{
		TransactionId xid;

		sweep_sql_row(i);
		xid = (TransactionId) sweep_sql_int64(1);
		if (!is_noted(xid, relation) && sweep_prepared_note(xid, &change) < 0)
			break;
		entry->knows_prepared = i + 1 == count;
	}
	entry->knows_prepared |= count == 0;
	sweep_queue_unlock();
	sweep_sql_end_call();
}

static void
settle_purged(TransactionId xid, bool committed)
{
	int			looked_at = 0;

	sweep_queue_lock(LW_EXCLUSIVE);
	for (int i = 0; i < sweep_queue_memory.shared->used_in_flight; i++)
	{
		sweep_in_flight_settle_purged(i, xid, committed);
		(void) sweep_queue_lend_lock_after(SWEEP_QUEUE_PIECE, &looked_at);
	}
	sweep_queue_unlock();
}

/* Another process may do the same meanwhile. */
static void
settle(SweepPreparedChange *prepared, TransactionId xid, bool committed)
{
	FullTransactionId next = ReadNextFullTransactionId();
	FullTransactionId full_xid = FullTransactionIdFromU64(U64FromFullTransactionId(next) - (uint32) (XidFromFullTransactionId(next) - xid));
	int			settled = 0;

	/* Messages in flight are settled before the queue is searched anew. */
	if (prepared->change.purged)
		settle_purged(xid, committed);
	sweep_queue_lock(LW_EXCLUSIVE);
	while (prepared->xid == xid && prepared->ending >= 0)
	{
		sweep_in_flight_settle_prepared(&prepared->ending, committed);
		(void) sweep_queue_lend_lock_after(SWEEP_QUEUE_PIECE, &settled);
	}
	if (prepared->xid == xid)
	{
		SweepQueueChange change = prepared->change;

		forget(prepared);
		if (committed)
			sweep_change_apply(&change, full_xid, GetCurrentTimestamp());
		else
			sweep_change_undo(&change);
	}
	sweep_queue_unlock();
}

void
sweep_prepared_settle_ended(void)
{
	for (int i = 0; i < sweep_queue_memory.shared->used_prepared; i++)
	{
		SweepPreparedChange *prepared = &sweep_queue_memory.prepared[i];
		TransactionId xid = prepared->xid;

		if (TransactionIdIsValid(xid) && prepared->database == MyDatabaseId && !TransactionIdIsInProgress(xid))
			settle(prepared, xid, TransactionIdDidCommit(xid));
	}
}
