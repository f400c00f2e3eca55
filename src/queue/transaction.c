/*
 * transaction.c
 *		What the transaction in progress has done to queues, until it ends.
 *
 * A send or an acknowledgement changes the shared memory when its transaction has become visible to all others, in the
 * callback at its very end: from then on a snapshot sees the rows, and not before. Nothing is allocated there and
 * nothing can fail.
 *
 * Each level of subtransactions has changes of its own. When it ends well they are added to those of the level above;
 * when it is rolled back they are thrown away, and what it has claimed is given back.
 *
 * COMMIT PREPARED calls no callback of an extension. Changes of a transaction therefore go to shared memory before it is
 * prepared, and a process that looks for messages later finds out how it has ended (prepared.c).
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "utils/memutils.h"

#include "queue/change.h"
#include "queue/in_flight.h"
#include "queue/prepared.h"
#include "queue/transaction.h"

typedef struct LevelChange
{
	struct LevelChange *next;	/* of the same or an outer level */
	int			level;
	SweepQueueChange change;
} LevelChange;

typedef enum PendingKind
{
	PENDING_CLAIM,
	PENDING_ENDING,
	PENDING_PURGED,
} PendingKind;

typedef struct Pending
{
	PendingKind kind;
	int			level;
	pg_uuid_t	lease;			/* of a claim */
	int			message;		/* that is ending, or purged */
} Pending;

/* In TopTransactionContext; forgotten at its end. */
static LevelChange *changes = NULL;
static Pending *pending = NULL;
static int	pending_count = 0;
static int	pending_room = 0;
static List *own_statements = NIL;	/* levels of the extension's own statements in progress, the innermost last */
static int	record = -1;		/* of this transaction, while it is being prepared */

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
	/* Before the changes: a search leaves out what is in flight, and would step over it. */
	for (int i = 0; i < pending_count; i++)
		settle(&pending[i], true, &settled);
	for (LevelChange *entry = changes; entry != NULL; entry = entry->next)
	{
		sweep_change_apply(&entry->change, xid, now);
		(void) sweep_queue_lend_lock_after(SWEEP_QUEUE_SLOTS_PIECE, &applied);
	}
	sweep_queue_unlock();
}

/* A subtransaction has ended well: its changes become those of the level above. */
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

/* A transaction, or a subtransaction, is rolled back: its claims are, and the messages that it was ending are LEASED again. */
static void
undo(int level)
{
	int			settled = 0;

	while (changes != NULL && changes->level >= level)
	{
		if ((changes->change.reset || changes->change.reset_if_undone) && sweep_queue_memory_exists())
		{
			sweep_queue_lock(LW_EXCLUSIVE);
			sweep_change_undo(&changes->change);
			sweep_queue_unlock();
		}
		changes = changes->next;
	}
	if (pending_count == 0 || pending[pending_count - 1].level < level)
		return;
	sweep_queue_lock(LW_EXCLUSIVE);
	for (; pending_count > 0 && pending[pending_count - 1].level >= level; pending_count--)
		settle(&pending[pending_count - 1], false, &settled);
	sweep_queue_unlock();
}

/*
 * A claim would not be given back when the prepared transaction is rolled back; and a claim that has given keys free
 * keeps its rows locked for as long as it stays prepared.
 */
static void
refuse_claims(void)
{
	for (int i = 0; i < pending_count; i++)
		if (pending[i].kind == PENDING_CLAIM)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot PREPARE a transaction that has claimed messages"),
					 errhint("Claim in a transaction of its own; the one that is prepared can acknowledge.")));
}

/* From now on a process that finds the transaction ended settles what it did. */
static void
prepare_changes(void)
{
	TransactionId xid = GetTopTransactionId();
	bool		noted = true;

	if (!sweep_queue_memory_exists())
		return;
	/* The records of transactions that have ended make room. */
	sweep_prepared_settle();
	sweep_queue_lock(LW_EXCLUSIVE);
	for (LevelChange *entry = changes; entry != NULL && noted; entry = entry->next)
	{
		int			number = sweep_prepared_note(xid, &entry->change);

		noted = number >= 0;
		record = record < 0 ? number : record;
	}
	if (!noted)
		sweep_prepared_forget(xid);
	sweep_queue_unlock();
	if (!noted)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("too many prepared transactions have worked with queues"),
				 errhint("End those that are listed in pg_prepared_xacts, or increase max_prepared_transactions.")));
}

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
	if (record >= 0)
	{
		sweep_queue_lock(LW_EXCLUSIVE);
		sweep_prepared_forget(GetTopTransactionIdIfAny());
		sweep_queue_unlock();
	}
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
		{
			refuse_claims();
			prepare_changes();
		}
		else if (event == XACT_EVENT_PREPARE)
			leave_prepared();
	}
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE)
		return;
	changes = NULL;
	pending = NULL;
	pending_count = pending_room = 0;
	own_statements = NIL;
	record = -1;
}

static void
at_subtransaction_event(SubXactEvent event, SubTransactionId id, SubTransactionId parent, void *arg)
{
	int			level = GetCurrentTransactionNestLevel();

	if (event == SUBXACT_EVENT_COMMIT_SUB)
		hand_over(level);
	else if (event == SUBXACT_EVENT_ABORT_SUB)
	{
		undo(level);
		/* A statement that has only fired the trigger whose subtransaction this is goes on. */
		while (own_statements != NIL && llast_int(own_statements) >= level)
			own_statements = list_delete_last(own_statements);
	}
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

static void
note(PendingKind kind, const pg_uuid_t *lease, int message)
{
	Pending    *item = &pending[pending_count++];

	item->kind = kind;
	item->level = GetCurrentTransactionNestLevel();
	if (lease != NULL)
		item->lease = *lease;
	item->message = message;
}

void
sweep_transaction_note_claim(const pg_uuid_t *lease)
{
	note(PENDING_CLAIM, lease, -1);
}

void
sweep_transaction_note_ending(int number)
{
	note(PENDING_ENDING, NULL, number);
}

void
sweep_transaction_note_purged(int number)
{
	note(PENDING_PURGED, NULL, number);
}

void
sweep_transaction_begin_statement(void)
{
	MemoryContext old;

	register_callbacks();
	old = MemoryContextSwitchTo(TopTransactionContext);
	own_statements = lappend_int(own_statements, GetCurrentTransactionNestLevel());
	MemoryContextSwitchTo(old);
}

void
sweep_transaction_end_statement(void)
{
	own_statements = list_delete_last(own_statements);
}

bool
sweep_transaction_in_statement(void)
{
	return own_statements != NIL;
}
