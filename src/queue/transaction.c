/*
 * transaction.c
 *		Changes of queues by transactions: collected while a transaction runs, applied when it has ended.
 *
 * A send or an acknowledgement changes shared memory in the commit callback, when its transaction is visible to all
 * others: from then on snapshots see the rows. Nothing is allocated there and nothing can fail.
 *
 * Each subtransaction has changes of its own. When it commits they are added to those of the level above; when it is
 * rolled back they are discarded, and the messages that it has claimed are returned to the queue.
 *
 * COMMIT PREPARED calls no callback of an extension, only the utility hook (api/utility.c). At PREPARE the changes therefore
 * go to shared memory. They are applied by the session that ends the prepared transaction, or by a process that claims,
 * acknowledges, waits or counts and finds that it has ended. The number of these records is kept, so that nothing is looked up
 * while there are none.
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "storage/procarray.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/sql.h"
#include "queue/in_flight.h"
#include "queue/slot_pool.h"
#include "queue/transaction.h"

static SweepStatement prepared_xids_sql = {
	.text = "SELECT p.transaction::pg_catalog.text::bigint FROM pg_catalog.pg_prepared_xacts p WHERE p.database = pg_catalog.current_database()",
	.reads_latest = true};

typedef struct LevelChange
{
	struct LevelChange *next;	/* of the same or an outer level */
	int			level;
	SweepQueueChange change;
} LevelChange;

typedef struct Pending
{
	SweepPendingKind kind;
	int			level;
	pg_uuid_t	lease;			/* of PENDING_CLAIM */
	int			message;		/* of the others: number of the entry */
} Pending;

/* In TopTransactionContext; forgotten at its end. */
static LevelChange *changes = NULL;
static Pending *pending = NULL;
static int	pending_count = 0;
static int	pending_room = 0;
static int	record = -1;		/* number of the first record of this transaction, while it is being prepared */

/* Applies the changes of a transaction of this database to a queue. Its xid must not be recycled yet. With the lock, which it may lend. */
static void
apply(const SweepQueueChange *change, FullTransactionId xid, TimestampTz now)
{
	SweepQueueSlot *slot;

	if (change->queue_id == 0)
		sweep_queue_apply_to_all(MyDatabaseId, change);
	else if (change->dropped)
	{
		slot = sweep_queue_find_slot(change->relation, change->queue_id);
		if (slot != NULL)
			sweep_queue_drop(slot);
	}
	else if ((slot = sweep_queue_get_slot(change->relation, change->queue_id)) != NULL)
		sweep_queue_apply(slot, change, xid, now);
	else
		/* Without a slot there are no counters: the rows are counted when sweep.queues is read. */
		sweep_queue_spoil_counts(MyDatabaseId);
}

/* After a rollback, a queue whose rows were being deleted is searched from its start: searches may have left out those rows. */
static void
apply_rollback(const SweepQueueChange *change)
{
	SweepQueueChange again = {
		.relation = change->relation, .queue_id = change->queue_id, .first_due = SWEEP_NOTHING_DUE, .reset = true
	};

	if (change->reset || change->reset_if_undone)
		apply(&again, InvalidFullTransactionId, GetCurrentTimestamp());
}

/* Records the changes of a prepared transaction to a queue. Returns the number of the record, or -1 if there is no room. With the lock. */
static int
note_prepared(TransactionId xid, const SweepQueueChange *change)
{
	SweepPreparedChange *records = sweep_queue_memory.prepared;
	int			number = 0;

	while (number < sweep_queue_memory.prepared_limit && TransactionIdIsValid(records[number].xid))
		number++;
	if (number == sweep_queue_memory.prepared_limit)
		return -1;
	records[number] = (SweepPreparedChange) {.xid = xid, .database = MyDatabaseId, .ending = -1, .change = *change};
	pg_atomic_fetch_add_u32(&sweep_queue_memory.shared->prepared_count, 1);
	return number;
}

static void
forget_record(SweepPreparedChange *prepared)
{
	prepared->xid = InvalidTransactionId;
	pg_atomic_fetch_sub_u32(&sweep_queue_memory.shared->prepared_count, 1);
}

/* Frees the records of a transaction or of a database; the other argument is invalid. With the lock. */
static void
forget_prepared(TransactionId xid, Oid database)
{
	for (int i = 0; i < sweep_queue_memory.prepared_limit; i++)
	{
		SweepPreparedChange *prepared = &sweep_queue_memory.prepared[i];

		if (TransactionIdIsValid(prepared->xid) && (prepared->xid == xid || prepared->database == database))
			forget_record(prepared);
	}
}

/* Whether the transaction has a record of unknown changes to all queues. */
static bool
is_noted(TransactionId xid, Oid relation)
{
	for (int i = 0; i < sweep_queue_memory.prepared_limit; i++)
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
	uint64		count;

	sweep_sql_begin_call();
	count = sweep_sql_execute(&prepared_xids_sql, NULL, NULL);
	sweep_queue_lock(LW_EXCLUSIVE);
	entry = sweep_queue_find_database(relation, true);
	entry->knows_prepared = true;
	for (uint64 i = 0; i < count && entry->knows_prepared; i++)
	{
		TransactionId xid;

		sweep_sql_row(i);
		xid = (TransactionId) sweep_sql_int64(1);
		/* If there is no room, the next search tries again. */
		entry->knows_prepared = is_noted(xid, relation) || note_prepared(xid, &change) >= 0;
	}
	sweep_queue_unlock();
	sweep_sql_end_call();
}

/* Settles a record, unless another process has done it meanwhile. */
static void
settle_prepared(SweepPreparedChange *prepared, TransactionId xid, bool committed)
{
	int			settled = 0;

	sweep_queue_lock(LW_EXCLUSIVE);
	/* Messages in flight are settled before the changes are applied, see apply_changes(). */
	for (int i = 0; prepared->xid == xid && prepared->change.purged && i < sweep_queue_memory.shared->used_in_flight; i++)
	{
		sweep_in_flight_settle_purged(i, xid, committed);
		(void) sweep_queue_lend_lock_after(SWEEP_QUEUE_PIECE, &settled);
	}
	while (prepared->xid == xid && prepared->ending >= 0)
	{
		sweep_in_flight_settle_prepared(&prepared->ending, committed);
		(void) sweep_queue_lend_lock_after(SWEEP_QUEUE_PIECE, &settled);
	}
	if (prepared->xid == xid)
	{
		SweepQueueChange change = prepared->change;

		forget_record(prepared);
		if (committed)
			apply(&change, sweep_queue_full_xid(xid), GetCurrentTimestamp());
		else
			apply_rollback(&change);
	}
	sweep_queue_unlock();
}

void
sweep_queue_settle_prepared(void)
{
	if (!sweep_queue_memory_exists() || pg_atomic_read_u32(&sweep_queue_memory.shared->prepared_count) == 0)
		return;
	for (int i = 0; i < sweep_queue_memory.prepared_limit; i++)
	{
		SweepPreparedChange *prepared = &sweep_queue_memory.prepared[i];
		TransactionId xid = prepared->xid;

		if (TransactionIdIsValid(xid) && prepared->database == MyDatabaseId && !TransactionIdIsInProgress(xid))
			settle_prepared(prepared, xid, TransactionIdDidCommit(xid));
	}
}

void
sweep_transaction_forget_database(Oid database)
{
	sweep_queue_lock(LW_EXCLUSIVE);
	sweep_queue_apply_to_all(database, &(SweepQueueChange) {.dropped = true});
	forget_prepared(InvalidTransactionId, database);
	for (int i = 0; i < SWEEP_COUNTED_DATABASES; i++)
		if (sweep_queue_memory.shared->databases[i].database == database)
			sweep_queue_memory.shared->databases[i].database = InvalidOid;
	sweep_queue_unlock();
}

static void
settle(const Pending *item, bool committed, int *settled)
{
	if (item->kind == PENDING_ENDING)
		sweep_in_flight_settle_ending(item->message, committed);
	else if (item->kind == PENDING_PURGED)
		sweep_in_flight_settle_purged(item->message, GetTopTransactionIdIfAny(), committed);
	else if (!committed)
		sweep_in_flight_return_lease(&item->lease, true, NULL, 0);
	(void) sweep_queue_lend_lock_after(SWEEP_QUEUE_PIECE, settled);
}

/* The transaction has committed, and is visible. */
static void
apply_changes(void)
{
	FullTransactionId xid = GetTopFullTransactionIdIfAny();
	TimestampTz now;
	int			settled = 0;
	int			applied = 0;

	if (!sweep_queue_memory_exists())
		return;
	now = GetCurrentTransactionStopTimestamp();
	sweep_queue_lock(LW_EXCLUSIVE);
	/* Settled before the changes are applied: otherwise a search could leave out a message that is still in flight, and move the position past it. */
	for (int i = 0; i < pending_count; i++)
		settle(&pending[i], true, &settled);
	for (LevelChange *entry = changes; entry != NULL; entry = entry->next)
	{
		apply(&entry->change, xid, now);
		(void) sweep_queue_lend_lock_after(SWEEP_QUEUE_SLOTS_PIECE, &applied);
	}
	sweep_queue_unlock();
}

/* A subtransaction has committed: its changes are added to those of the level above. */
static void
hand_over(int level)
{
	LevelChange **link = &changes;

	while (*link != NULL && (*link)->level == level)
	{
		LevelChange *entry = *link;
		LevelChange *outer = entry->next;

		while (outer != NULL && (outer->level != level - 1 || outer->change.queue_id != entry->change.queue_id ||
								 outer->change.relation != entry->change.relation))
			outer = outer->level >= level - 1 ? outer->next : NULL;
		if (outer == NULL)
		{
			entry->level = level - 1;
			link = &entry->next;
			continue;
		}
		sweep_change_add(&outer->change, &entry->change);
		*link = entry->next;
		pfree(entry);
	}
	for (int i = pending_count - 1; i >= 0 && pending[i].level == level; i--)
		pending[i].level = level - 1;
}

/* A (sub)transaction is rolled back: its claims are undone, and the messages that it was ending are LEASED again. */
static void
undo(int level)
{
	int			settled = 0;

	while (changes != NULL && changes->level >= level)
	{
		LevelChange *undone = changes;

		if ((changes->change.reset || changes->change.reset_if_undone) && sweep_queue_memory_exists())
		{
			sweep_queue_lock(LW_EXCLUSIVE);
			apply_rollback(&changes->change);
			sweep_queue_unlock();
		}
		changes = changes->next;
		pfree(undone);
	}
	if (pending_count == 0 || pending[pending_count - 1].level < level)
		return;
	sweep_queue_lock(LW_EXCLUSIVE);
	for (; pending_count > 0 && pending[pending_count - 1].level >= level; pending_count--)
		settle(&pending[pending_count - 1], false, &settled);
	sweep_queue_unlock();
}

/*
 * Hands the changes over to shared memory. Claims are refused: ROLLBACK PREPARED would not return the messages, and a
 * claim that has freed keys would keep its rows locked while the transaction stays prepared.
 */
static void
prepare_changes(void)
{
	TransactionId xid = GetTopTransactionId();
	bool		noted = true;

	for (int i = 0; i < pending_count; i++)
		if (pending[i].kind == PENDING_CLAIM)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot PREPARE a transaction that has claimed messages"),
					 errhint("Claim in a transaction of its own; the one that is prepared can acknowledge.")));
	if (!sweep_queue_memory_exists())
		return;
	/* This frees the records of transactions that have ended. */
	sweep_queue_settle_prepared();
	sweep_queue_lock(LW_EXCLUSIVE);
	for (LevelChange *entry = changes; entry != NULL && noted; entry = entry->next)
	{
		int			number = note_prepared(xid, &entry->change);

		noted = number >= 0;
		record = record < 0 ? number : record;
	}
	if (!noted)
		forget_prepared(xid, InvalidOid);
	sweep_queue_unlock();
	if (!noted)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("too many prepared transactions have worked with queues"),
				 errhint("End those that are listed in pg_prepared_xacts, or increase max_prepared_transactions.")));
}

/* The messages that the transaction ends are attached to its first record. */
static void
leave_prepared(void)
{
	int			left = 0;

	if (record < 0)
		return;
	sweep_queue_lock(LW_EXCLUSIVE);
	for (int i = 0; i < pending_count; i++)
	{
		if (pending[i].kind == PENDING_ENDING)
			sweep_in_flight_prepare(pending[i].message, &sweep_queue_memory.prepared[record].ending);
		(void) sweep_queue_lend_lock_after(SWEEP_QUEUE_PIECE, &left);
	}
	sweep_queue_unlock();
}

static void
roll_back(void)
{
	undo(0);
	if (record < 0)
		return;
	sweep_queue_lock(LW_EXCLUSIVE);
	forget_prepared(GetTopTransactionIdIfAny(), InvalidOid);
	sweep_queue_unlock();
}

static void
at_transaction_event(XactEvent event, void *arg)
{
	if (changes != NULL || pending_count > 0)
	{
		if (event == XACT_EVENT_COMMIT)
			apply_changes();
		else if (event == XACT_EVENT_ABORT)
			roll_back();
		else if (event == XACT_EVENT_PRE_PREPARE)
			prepare_changes();
		else if (event == XACT_EVENT_PREPARE)
			leave_prepared();
	}
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE)
		return;
	changes = NULL;
	pending = NULL;
	pending_count = pending_room = 0;
	record = -1;
}

static void
at_subtransaction_event(SubXactEvent event, SubTransactionId id, SubTransactionId parent, void *arg)
{
	int			level = GetCurrentTransactionNestLevel();

	if (event == SUBXACT_EVENT_COMMIT_SUB)
		hand_over(level);
	else if (event == SUBXACT_EVENT_ABORT_SUB)
		undo(level);
}

static void
register_callbacks(void)
{
	static bool registered = false;

	if (!registered)
	{
		RegisterXactCallback(at_transaction_event, NULL);
		RegisterSubXactCallback(at_subtransaction_event, NULL);
	}
	registered = true;
}

SweepQueueChange *
sweep_transaction_change(Oid relation, int32 queue_id)
{
	int			level = GetCurrentTransactionNestLevel();
	LevelChange *entry;

	for (entry = changes; entry != NULL && entry->level == level; entry = entry->next)
		if (entry->change.queue_id == queue_id && entry->change.relation == relation)
			return &entry->change;
	register_callbacks();
	entry = MemoryContextAllocZero(TopTransactionContext, sizeof(LevelChange));
	entry->level = level;
	entry->change.relation = relation;
	entry->change.queue_id = queue_id;
	entry->change.first_due = SWEEP_NOTHING_DUE;
	entry->next = changes;
	changes = entry;
	return &entry->change;
}

bool
sweep_transaction_has_emptied(Oid relation, int32 queue_id)
{
	for (const LevelChange *entry = changes; entry != NULL; entry = entry->next)
		if (entry->change.relation == relation &&
			(entry->change.queue_id == queue_id ? entry->change.reset : entry->change.queue_id == 0 && entry->change.emptied))
			return true;
	return false;
}

bool
sweep_transaction_in_own_statement(void)
{
	int			own_statements = 0;

	for (const LevelChange *entry = changes; entry != NULL; entry = entry->next)
		own_statements += entry->change.own_statements;
	return own_statements > 0;
}

void
sweep_transaction_reserve(int count)
{
	register_callbacks();
	if (pending_count + count <= pending_room)
		return;
	pending_room = Max(2 * pending_room, pending_count + count + 16);
	if (pending == NULL)
		pending = MemoryContextAlloc(TopTransactionContext, pending_room * sizeof(Pending));
	else
		pending = repalloc_huge(pending, pending_room * sizeof(Pending));
}

void
sweep_transaction_note(SweepPendingKind kind, int message, const pg_uuid_t *lease)
{
	Pending    *item = &pending[pending_count++];

	item->kind = kind;
	item->level = GetCurrentTransactionNestLevel();
	item->message = message;
	if (lease != NULL)
		item->lease = *lease;
}
