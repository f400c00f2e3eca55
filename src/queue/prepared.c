/*
 * prepared.c
 *		Transactions that were prepared after they have worked with queues.
 *
 * A prepared transaction ends without a callback. What it has done is kept here until somebody who looks for messages
 * finds that it has ended: claims, acknowledgements, those who wait and those who count. So that they need not ask
 * while there are none, these are counted.
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

static void settle_purged(TransactionId xid, bool committed);
static void settle(SweepPreparedChange *prepared, bool committed);

bool
sweep_prepared_note(TransactionId xid, const SweepQueueChange *change)
{
	const SweepQueueMemory *memory = &sweep_queue_memory;

	for (int i = 0; i < memory->prepared_limit; i++)
		if (memory->prepared[i].xid == xid && memory->prepared[i].change.relation == change->relation &&
			memory->prepared[i].change.queue_id == change->queue_id)
			return true;
	for (int i = 0; i < memory->prepared_limit; i++)
	{
		SweepPreparedChange *prepared = &memory->prepared[i];

		if (TransactionIdIsValid(prepared->xid))
			continue;
		prepared->xid = xid;
		prepared->database = MyDatabaseId;
		prepared->change = *change;
		pg_atomic_fetch_add_u32(&memory->shared->prepared_count, 1);
		return true;
	}
	return false;
}

void
sweep_prepared_forget(TransactionId xid)
{
	const SweepQueueMemory *memory = &sweep_queue_memory;

	for (int i = 0; i < memory->prepared_limit; i++)
	{
		if (memory->prepared[i].xid != xid)
			continue;
		memory->prepared[i].xid = InvalidTransactionId;
		pg_atomic_fetch_sub_u32(&memory->shared->prepared_count, 1);
	}
}

void
sweep_prepared_forget_database(Oid database)
{
	const SweepQueueMemory *memory = &sweep_queue_memory;

	for (int i = 0; i < memory->prepared_limit; i++)
		if (TransactionIdIsValid(memory->prepared[i].xid) && memory->prepared[i].database == database)
			sweep_prepared_forget(memory->prepared[i].xid);
}

void
sweep_prepared_note_all(Oid relation)
{
	SweepQueueChange change = {.relation = relation,.queue_id = 0,.reset = true};
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
	if (!entry->knows_prepared)
	{
		bool		noted = true;

		for (uint64 i = 0; i < count; i++)
		{
			sweep_sql_row(i);
			noted &= sweep_prepared_note((TransactionId) sweep_sql_int64(1), &change);
		}
		/* Else the next search tries again. */
		entry->knows_prepared = noted;
	}
	sweep_queue_unlock();
	sweep_sql_end_call();
}

void
sweep_prepared_settle_ended(void)
{
	const SweepQueueMemory *memory = &sweep_queue_memory;

	for (int i = 0; i < memory->prepared_limit; i++)
	{
		SweepPreparedChange *prepared = &memory->prepared[i];
		TransactionId xid = prepared->xid;
		bool		committed;

		if (!TransactionIdIsValid(xid) || prepared->database != MyDatabaseId || TransactionIdIsInProgress(xid))
			continue;
		committed = TransactionIdDidCommit(xid);
		/* Before the queue is looked at anew; harmless when another process does the same, or has done it. */
		if (prepared->change.purged)
			settle_purged(xid, committed);
		sweep_queue_lock(LW_EXCLUSIVE);
		if (prepared->xid == xid && prepared->database == MyDatabaseId)
		{
			settle(prepared, committed);
			prepared->xid = InvalidTransactionId;
			pg_atomic_fetch_sub_u32(&memory->shared->prepared_count, 1);
		}
		sweep_queue_unlock();
	}
}

static void
settle_purged(TransactionId xid, bool committed)
{
	int			looked_at = 0;

	sweep_queue_lock(LW_EXCLUSIVE);
	for (int i = 0; i < sweep_max_in_flight; i++)
	{
		sweep_in_flight_settle_purged(i, xid, committed);
		(void) sweep_queue_lend_lock(&looked_at);
	}
	sweep_queue_unlock();
}

static void
settle(SweepPreparedChange *prepared, bool committed)
{
	FullTransactionId next = ReadNextFullTransactionId();
	FullTransactionId xid = FullTransactionIdFromU64(U64FromFullTransactionId(next) -
													 (uint32) (XidFromFullTransactionId(next) - prepared->xid));
	SweepQueueSlot *slot;

	if (committed)
		sweep_change_apply(&prepared->change, xid, GetCurrentTimestamp());
	else
		sweep_change_undo(&prepared->change);
	slot = sweep_queue_find_slot(prepared->change.relation, prepared->change.queue_id);
	if (slot != NULL)
		sweep_in_flight_settle_prepared(slot, prepared->xid, committed);
}
