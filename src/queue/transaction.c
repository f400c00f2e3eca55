/*
 * transaction.c
 *		What the transaction in progress has done to queues, until it ends.
 *
 * Shared memory learns of a send or an acknowledgement when the transaction has become visible to
 * everybody, in the callback at its very end: from then on a snapshot sees the rows, and not before.
 * Nothing is allocated there and nothing can fail.
 *
 * Each level of subtransactions has changes of its own. They go to the level above when it ends well and
 * are thrown away, and what was claimed given back, when it does not.
 *
 * A prepared transaction ends without us: COMMIT PREPARED calls no callback of an extension. So its
 * changes go to shared memory before it is prepared, and whoever looks for messages later finds out how
 * it has ended (prepared.c).
 */
#include "postgres.h"

#include "access/xact.h"
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
static List *own_statements = NIL;	/* the levels at which statements of ours are under way, the innermost last */
static bool prepared = false;	/* shared memory has them, too */

static void register_callbacks(void);
static void at_transaction_event(XactEvent event, void *arg);
static void at_subtransaction_event(SubXactEvent event, SubTransactionId id, SubTransactionId parent, void *arg);
static void apply_changes(void);
static void hand_over(int level);
static void undo(int level);
static void settle(const Pending *item, bool committed, int *settled);
static void undo_claim(const pg_uuid_t *id, int *settled);
static void refuse_claims(void);
static void prepare_changes(void);
static void leave_prepared(void);
static void forget_transaction(void);

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

void
sweep_transaction_note_claim(const pg_uuid_t *lease)
{
	pending[pending_count].kind = PENDING_CLAIM;
	pending[pending_count].level = GetCurrentTransactionNestLevel();
	pending[pending_count++].lease = *lease;
}

void
sweep_transaction_note_ending(int number)
{
	pending[pending_count].kind = PENDING_ENDING;
	pending[pending_count].level = GetCurrentTransactionNestLevel();
	pending[pending_count++].message = number;
}

void
sweep_transaction_note_purged(int number)
{
	sweep_transaction_note_ending(number);
	pending[pending_count - 1].kind = PENDING_PURGED;
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

static void
at_transaction_event(XactEvent event, void *arg)
{
	if (changes == NULL && pending_count == 0)
	{
		if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
			forget_transaction();
		return;
	}
	switch (event)
	{
		case XACT_EVENT_COMMIT:
			apply_changes();
			forget_transaction();
			break;
		case XACT_EVENT_ABORT:
			undo(0);
			if (prepared)
			{
				sweep_queue_lock(LW_EXCLUSIVE);
				sweep_prepared_forget(GetTopTransactionIdIfAny());
				sweep_queue_unlock();
			}
			forget_transaction();
			break;
		case XACT_EVENT_PRE_PREPARE:
			refuse_claims();
			prepare_changes();
			break;
		case XACT_EVENT_PREPARE:
			leave_prepared();
			forget_transaction();
			break;
		default:
			break;
	}
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
		/* One that has only fired the trigger whose subtransaction this is goes on. */
		while (own_statements != NIL && llast_int(own_statements) >= level)
			own_statements = list_delete_last(own_statements);
	}
}

/* The transaction has committed, and is visible. */
static void
apply_changes(void)
{
	FullTransactionId xid = GetTopFullTransactionIdIfAny();
	TimestampTz now;
	int			settled = 0;

	if (!sweep_queue_memory_exists())
		return;
	now = GetCurrentTransactionStopTimestamp();
	sweep_queue_lock(LW_EXCLUSIVE);
	/* Before the queues are looked at anew: a search leaves out what is in flight. */
	for (int i = 0; i < pending_count; i++)
		settle(&pending[i], true, &settled);
	for (LevelChange *entry = changes; entry != NULL; entry = entry->next)
		sweep_change_apply(&entry->change, xid, now);
	sweep_queue_unlock();
}

/* A subtransaction has ended well: its changes are those of the level above. */
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

/* A transaction, or a subtransaction, is rolled back: its claims are, and what it was ending is of its lease again. */
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

static void
settle(const Pending *item, bool committed, int *settled)
{
	if (item->kind == PENDING_ENDING)
		sweep_in_flight_settle_ending(item->message, committed);
	else if (item->kind == PENDING_PURGED)
		sweep_in_flight_settle_purged(item->message, GetTopTransactionIdIfAny(), committed);
	else if (!committed)
		undo_claim(&item->lease, settled);
	(void) sweep_queue_lend_lock(settled);
}

/* A claim that was rolled back was none: what it holds is given back, and was not tried. */
static void
undo_claim(const pg_uuid_t *id, int *settled)
{
	SweepQueueLease *lease = sweep_in_flight_find_lease(id);
	int			next;

	for (int number = lease != NULL ? lease->messages.first : -1; number >= 0; number = next)
	{
		next = sweep_in_flight(number)->next;
		if (sweep_in_flight(number)->state != IN_FLIGHT_LEASED)
			continue;
		sweep_in_flight(number)->attempts--;
		sweep_in_flight_return(number);
		if (sweep_queue_lend_lock(settled))
		{
			lease = sweep_in_flight_find_lease(id);
			next = lease != NULL ? lease->messages.first : -1;
		}
	}
	/* One that has never held anything. */
	lease = sweep_in_flight_find_lease(id);
	if (lease != NULL)
		sweep_in_flight_end_lease(sweep_queue_lease_number(lease));
}

/*
 * Nobody could give a claim back when the prepared transaction is rolled back, and a claim that has given
 * keys free keeps its rows locked, for as long as it stays prepared.
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

/* From now on whoever finds the transaction ended settles what it did. */
static void
prepare_changes(void)
{
	TransactionId xid = GetTopTransactionId();
	bool		noted = true;

	if (!sweep_queue_memory_exists())
		return;
	/* Those that have ended make room: nobody may have looked for messages since. */
	sweep_prepared_settle();
	sweep_queue_lock(LW_EXCLUSIVE);
	for (LevelChange *entry = changes; entry != NULL && noted; entry = entry->next)
		noted = sweep_prepared_note(xid, &entry->change);
	if (!noted)
		sweep_prepared_forget(xid);
	sweep_queue_unlock();
	if (!noted)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("too many prepared transactions have worked with queues"),
				 errhint("End those that are listed in pg_prepared_xacts, or increase max_prepared_transactions.")));
	prepared = true;
}

static void
leave_prepared(void)
{
	TransactionId xid = GetTopTransactionIdIfAny();
	int			left = 0;

	if (!sweep_queue_memory_exists())
		return;
	sweep_queue_lock(LW_EXCLUSIVE);
	for (int i = 0; i < pending_count; i++)
	{
		if (pending[i].kind != PENDING_ENDING)
			continue;
		sweep_in_flight(pending[i].message)->state = IN_FLIGHT_PREPARED;
		sweep_in_flight(pending[i].message)->xid = xid;
		(void) sweep_queue_lend_lock(&left);
	}
	sweep_queue_unlock();
}

static void
forget_transaction(void)
{
	changes = NULL;
	pending = NULL;
	pending_count = pending_room = 0;
	own_statements = NIL;
	prepared = false;
}
