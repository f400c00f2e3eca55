/*
 * count.c
 *		Counters of the queues of a database, and transactions that were prepared.
 *
 * The counters are kept by the commits of those who send and acknowledge (transaction.c). They start with
 * a count of the rows, by whoever wants to see them first (statistics.c), under a snapshot published
 * here; a commit is added if and only if that snapshot does not see it.
 *
 * A prepared transaction ends without a callback. What it has done is kept here until somebody who looks
 * for messages finds that it has ended.
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "storage/procarray.h"
#include "utils/timestamp.h"

#include "base/settings.h"
#include "queue/in_flight.h"
#include "queue/memory.h"

static SweepQueueDatabase *find_database(Oid relation, bool create);
static TransactionId *running_of(const SweepQueueDatabase *entry);
static void settle(SweepPreparedChange *prepared, bool committed);

/* The entry of this database; made anew for another table, in the place of any other if need be. */
static SweepQueueDatabase *
find_database(Oid relation, bool create)
{
	SweepQueueShared *shared = sweep_queue_memory()->shared;
	SweepQueueDatabase *entry = NULL;

	for (int i = 0; i < SWEEP_COUNTED_DATABASES; i++)
	{
		SweepQueueDatabase *candidate = &shared->databases[i];

		if (candidate->database == MyDatabaseId && candidate->relation == relation)
			return candidate;
		if (candidate->database == MyDatabaseId || (candidate->database == InvalidOid && entry == NULL))
			entry = candidate;
	}
	if (!create)
		return NULL;
	if (entry == NULL)
		entry = &shared->databases[shared->victim++ % SWEEP_COUNTED_DATABASES];
	memset(entry, 0, sizeof(*entry));
	entry->database = MyDatabaseId;
	entry->relation = relation;
	return entry;
}

static TransactionId *
running_of(const SweepQueueDatabase *entry)
{
	const SweepQueueMemory *memory = sweep_queue_memory();

	return memory->running + (entry - memory->shared->databases) * memory->running_limit;
}

bool
sweep_queue_count_wants(Oid relation, FullTransactionId xid)
{
	const SweepQueueDatabase *entry = find_database(relation, false);

	if (entry == NULL || !entry->counting)
		return false;
	if (FullTransactionIdFollowsOrEquals(xid, entry->xmax))
		return true;
	if (FullTransactionIdPrecedes(xid, entry->xmin))
		return false;
	for (uint32 i = 0; i < entry->running_count; i++)
		if (running_of(entry)[i] == XidFromFullTransactionId(xid))
			return true;
	return false;
}

void
sweep_queue_count_spoil(Oid database)
{
	for (int i = 0; i < SWEEP_COUNTED_DATABASES; i++)
	{
		SweepQueueDatabase *entry = &sweep_queue_memory()->shared->databases[i];

		if (entry->database == database)
			entry->counted = entry->counting = false;
	}
}

void
sweep_queue_count_forget(Oid database)
{
	const SweepQueueMemory *memory = sweep_queue_memory();

	for (int i = 0; i < SWEEP_COUNTED_DATABASES; i++)
		if (memory->shared->databases[i].database == database)
			memory->shared->databases[i].database = InvalidOid;
	for (int i = 0; i < memory->prepared_limit; i++)
		if (TransactionIdIsValid(memory->prepared[i].xid) && memory->prepared[i].database == database)
			sweep_queue_forget_prepared(memory->prepared[i].xid);
}

bool
sweep_queue_is_counted(Oid relation)
{
	SweepQueueDatabase *entry = find_database(relation, false);

	return entry != NULL && entry->counted;
}

void
sweep_queue_begin_count(Oid relation, Snapshot snapshot)
{
	SweepQueueDatabase *entry = find_database(relation, true);
	FullTransactionId next = ReadNextFullTransactionId();
	TransactionId own = GetTopTransactionIdIfAny();

	/* These are 32 bits of the same counter, a moment before. */
	entry->xmax = FullTransactionIdFromU64(U64FromFullTransactionId(next) - (uint32) (XidFromFullTransactionId(next) - snapshot->xmax));
	entry->xmin = FullTransactionIdFromU64(U64FromFullTransactionId(entry->xmax) - (uint32) (snapshot->xmax - snapshot->xmin));
	entry->running_count = snapshot->xcnt;
	/* Without any there may be no array, and memcpy wants one even to copy nothing. */
	if (snapshot->xcnt > 0)
		memcpy(running_of(entry), snapshot->xip, snapshot->xcnt * sizeof(TransactionId));
	/* A snapshot does not list the transaction that took it. */
	if (TransactionIdIsValid(own))
		running_of(entry)[entry->running_count++] = own;
	entry->counting = true;
	entry->counted = false;
	for (int i = 0; i < sweep_max_queues; i++)
	{
		SweepQueueSlot *slot = sweep_queue_slot(i);

		if (slot->generation != 0 && slot->database == MyDatabaseId && slot->relation == relation)
			slot->rows[0] = slot->rows[1] = slot->dead = 0;
	}
}

void
sweep_queue_end_count(Oid relation)
{
	SweepQueueDatabase *entry = find_database(relation, false);

	/* Not when a slot was lost or the table was written to by others in the meantime. */
	if (entry != NULL && entry->counting)
		entry->counted = true;
}

void
sweep_queue_forget_count(Oid relation)
{
	if (find_database(relation, false) != NULL)
		sweep_queue_count_spoil(MyDatabaseId);
}

bool
sweep_queue_knows_prepared(Oid relation)
{
	SweepQueueDatabase *entry = find_database(relation, false);

	return entry != NULL && entry->knows_prepared;
}

void
sweep_queue_set_knows_prepared(Oid relation)
{
	find_database(relation, true)->knows_prepared = true;
}

bool
sweep_queue_note_prepared(TransactionId xid, const SweepQueueChange *change)
{
	const SweepQueueMemory *memory = sweep_queue_memory();

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
sweep_queue_forget_prepared(TransactionId xid)
{
	const SweepQueueMemory *memory = sweep_queue_memory();

	for (int i = 0; i < memory->prepared_limit; i++)
	{
		if (memory->prepared[i].xid != xid)
			continue;
		memory->prepared[i].xid = InvalidTransactionId;
		pg_atomic_fetch_sub_u32(&memory->shared->prepared_count, 1);
	}
}

bool
sweep_queue_awaits_prepared(void)
{
	return pg_atomic_read_u32(&sweep_queue_memory()->shared->prepared_count) > 0;
}

/* Nobody calls us when a prepared transaction ends, so whoever looks for messages asks. */
void
sweep_queue_settle_prepared(void)
{
	const SweepQueueMemory *memory = sweep_queue_memory();

	for (int i = 0; i < memory->prepared_limit; i++)
	{
		SweepPreparedChange *prepared = &memory->prepared[i];
		TransactionId xid = prepared->xid;
		bool		committed;

		if (!TransactionIdIsValid(xid) || prepared->database != MyDatabaseId || TransactionIdIsInProgress(xid))
			continue;
		committed = TransactionIdDidCommit(xid);
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
settle(SweepPreparedChange *prepared, bool committed)
{
	FullTransactionId next = ReadNextFullTransactionId();
	FullTransactionId xid = FullTransactionIdFromU64(U64FromFullTransactionId(next) -
													 (uint32) (XidFromFullTransactionId(next) - prepared->xid));
	SweepQueueChange again = {
		.relation = prepared->change.relation,.queue_id = prepared->change.queue_id,.first_due = SWEEP_NOTHING_DUE,.reset = true
	};
	SweepQueueSlot *slot;

	if (committed)
		sweep_queue_apply_change(&prepared->change, xid, GetCurrentTimestamp());
	else if (prepared->change.reset || prepared->change.reset_if_undone)
		sweep_queue_apply_change(&again, xid, GetCurrentTimestamp());
	slot = sweep_queue_find_slot(prepared->change.relation, prepared->change.queue_id);
	if (slot != NULL)
		sweep_in_flight_settle_prepared(slot, prepared->xid, committed);
}
