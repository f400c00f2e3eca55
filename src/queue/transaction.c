/*
 * transaction.c
 *		What the transaction in progress has done to queues, until it ends.
 *
 * Shared memory learns of a send or an acknowledgement when the transaction has become visible to
 * everybody, in the callback at its very end: from then on a snapshot sees the rows, and not before.
 * Nothing is allocated there and nothing can fail.
 *
 * Each level of subtransactions has books of its own. They go to the level above when it ends well and
 * are thrown away, and what was claimed given back, when it does not.
 *
 * A prepared transaction ends without us: COMMIT PREPARED calls no callback of an extension. So its
 * books go to shared memory before it is prepared, and whoever looks for messages later finds out how
 * it has ended (sweep_queue_settle_prepared).
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/namespace.h"
#include "commands/trigger.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "base/compat.h"
#include "base/lease.h"
#include "queue/transaction.h"
#include "queue/in_flight.h"

typedef struct LevelChange
{
	struct LevelChange *next;			/* of the same or an outer level */
	int			level;
	SweepQueueChange change;
} LevelChange;

typedef enum PendingKind
{
	PENDING_CLAIM,
	PENDING_ENDING,
} PendingKind;

typedef struct Pending
{
	PendingKind	kind;
	int			level;
	pg_uuid_t	lease;			/* of a claim */
	int			entry;			/* of what is ending */
} Pending;

/* In TopTransactionContext; forgotten at its end. */
static LevelChange *changes = NULL;
static Pending *pending = NULL;
static int	pending_count = 0;
static int	pending_room = 0;
static int	own_statements = 0;
static bool prepared = false;	/* shared memory has them, too */

static void settle_prepared(void);
static void register_callbacks(void);
static void at_transaction_event(XactEvent event, void *arg);
static void at_subtransaction_event(SubXactEvent event, SubTransactionId id, SubTransactionId parent, void *arg);
static void apply_changes(void);
static void hand_over(int level);
static void add_change(SweepQueueChange *to, const SweepQueueChange *from);
static void undo(int level);
static void undo_purge(const SweepQueueChange *change);
static void refuse_claims(void);
static void prepare_changes(void);
static void leave_prepared(void);
static void forget_transaction(void);

PG_FUNCTION_INFO_V1(sweep_statement_begin);
PG_FUNCTION_INFO_V1(sweep_statement_end);
PG_FUNCTION_INFO_V1(sweep_statement_note_foreign);
PG_FUNCTION_INFO_V1(sweep_statement_note_purged);

SweepQueueChange *
sweep_transaction_change(Oid relation, int32 queue_id)
{
	int			level = GetCurrentTransactionNestLevel();
	LevelChange	   *level_change;

	for (level_change = changes; level_change != NULL && level_change->level == level; level_change = level_change->next)
		if (level_change->change.queue_id == queue_id && level_change->change.relation == relation)
			return &level_change->change;
	register_callbacks();
	level_change = MemoryContextAllocZero(TopTransactionContext, sizeof(LevelChange));
	level_change->level = level;
	level_change->change.relation = relation;
	level_change->change.queue_id = queue_id;
	level_change->change.first_due = SWEEP_NOTHING_DUE;
	level_change->next = changes;
	changes = level_change;
	return &level_change->change;
}

void
sweep_change_add_sent(SweepQueueChange *change, int16 lane, int64 message_id, TimestampTz due_at)
{
	uint32		number = SWEEP_LANE_INDEX(lane);
	uint32		bit = (uint32) 1 << number;

	change->sent++;
	change->rows[SWEEP_LANE_IS_DELAYED(lane)]++;
	if (SWEEP_LANE_IS_DELAYED(lane))
		change->first_due = Min(change->first_due, due_at);
	else if ((change->lanes & bit) == 0 || message_id < change->low[number])
	{
		change->lanes |= bit;
		change->low[number] = message_id;
	}
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
sweep_transaction_note_ending(int entry)
{
	pending[pending_count].kind = PENDING_ENDING;
	pending[pending_count].level = GetCurrentTransactionNestLevel();
	pending[pending_count++].entry = entry;
}

void
sweep_transaction_begin_statement(void)
{
	register_callbacks();
	own_statements++;
}

void
sweep_transaction_end_statement(void)
{
	own_statements--;
}

/* SQL: a trigger before every statement that writes to sweep.queue_message */
Datum
sweep_statement_note_foreign(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("sweep._note_foreign_statement must be called as a trigger")));
	/* A prepared transaction that has worked with the table has ended: it was locked until then. */
	if (TRIGGER_FIRED_BY_TRUNCATE(trigger->tg_event))
		settle_prepared();
	if (own_statements == 0)
	{
		SweepQueueChange *change = sweep_transaction_change(get_relname_relid("queue_message", RelationGetNamespace(trigger->tg_relation)), 0);

		change->reset = true;
		if (TRIGGER_FIRED_BY_TRUNCATE(trigger->tg_event) && change->relation == RelationGetRelid(trigger->tg_relation))
			change->emptied = true;
	}
	PG_RETURN_POINTER(NULL);
}

/* SQL: sweep._begin_queue_statement(queue_id) */
Datum
sweep_statement_begin(PG_FUNCTION_ARGS)
{
	/* What is written to a queue that is being dropped meanwhile would stay for ever. */
	(void) sweep_lease_acquire_queue(PG_GETARG_INT32(0), LEASE_SHARED);
	sweep_transaction_change(get_relname_relid("queue_message", get_namespace_oid("sweep", false)), PG_GETARG_INT32(0))->reset_if_undone = true;
	sweep_transaction_begin_statement();
	PG_RETURN_VOID();
}

/* SQL: sweep._note_purged(queue_id, lane, message_id), for each row that a purge deletes */
Datum
sweep_statement_note_purged(PG_FUNCTION_ARGS)
{
	Oid			relation = get_relname_relid("queue_message", get_namespace_oid("sweep", false));
	TransactionId xid = GetTopTransactionId();
	SweepQueueSlot *slot;

	if (!sweep_queue_memory_exists())
		PG_RETURN_VOID();
	sweep_queue_lock(LW_EXCLUSIVE);
	slot = sweep_queue_find_slot(relation, PG_GETARG_INT32(0));
	if (slot != NULL)
		sweep_in_flight_note_purged(slot, PG_GETARG_INT16(1), PG_GETARG_INT64(2), xid);
	sweep_queue_unlock();
	PG_RETURN_VOID();
}

/* SQL: sweep._end_queue_statement(queue_id, ready, delayed, dead, first_due, emptied, dropped) */
Datum
sweep_statement_end(PG_FUNCTION_ARGS)
{
	SweepQueueChange *change = sweep_transaction_change(get_relname_relid("queue_message", get_namespace_oid("sweep", false)), PG_GETARG_INT32(0));

	sweep_transaction_end_statement();
	/* Nobody else works with a queue that is dropped, see sweep._lock_queue. */
	settle_prepared();
	change->rows[0] += PG_GETARG_INT64(1);
	change->rows[1] += PG_GETARG_INT64(2);
	change->dead += PG_GETARG_INT64(3);
	if (!PG_ARGISNULL(4))
		change->first_due = Min(change->first_due, PG_GETARG_TIMESTAMPTZ(4));
	change->purged |= PG_GETARG_BOOL(5);
	change->reset |= PG_GETARG_BOOL(5);
	change->dropped |= PG_GETARG_BOOL(6);
	PG_RETURN_VOID();
}

static void
settle_prepared(void)
{
	if (sweep_queue_memory_exists() && sweep_queue_awaits_prepared())
		sweep_queue_settle_prepared();
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
				sweep_queue_forget_prepared(GetTopTransactionIdIfAny());
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
		own_statements = 0;
	}
}

/* The transaction has committed, and is visible. */
static void
apply_changes(void)
{
	FullTransactionId xid = GetTopFullTransactionIdIfAny();
	TimestampTz now;

	if (!sweep_queue_memory_exists())
		return;
	now = GetCurrentTransactionStopTimestamp();
	sweep_queue_lock(LW_EXCLUSIVE);
	for (int i = 0; i < pending_count; i++)
		if (pending[i].kind == PENDING_ENDING)
			sweep_in_flight_settle_ending(pending[i].entry, true);
	for (LevelChange *level_change = changes; level_change != NULL; level_change = level_change->next)
		sweep_queue_apply_change(&level_change->change, xid, now);
	sweep_queue_unlock();
}

/* A subtransaction has ended well: its books are those of the level above. */
static void
hand_over(int level)
{
	LevelChange	  **link = &changes;

	while (*link != NULL && (*link)->level == level)
	{
		LevelChange	   *level_change = *link;
		LevelChange	   *outer = level_change->next;

		while (outer != NULL && (outer->level != level - 1 || outer->change.queue_id != level_change->change.queue_id ||
								 outer->change.relation != level_change->change.relation))
			outer = outer->level >= level - 1 ? outer->next : NULL;
		if (outer == NULL)
		{
			level_change->level = level - 1;
			link = &level_change->next;
			continue;
		}
		add_change(&outer->change, &level_change->change);
		*link = level_change->next;
		pfree(level_change);
	}
	for (int i = pending_count - 1; i >= 0 && pending[i].level == level; i--)
		pending[i].level = level - 1;
}

static void
add_change(SweepQueueChange *to, const SweepQueueChange *from)
{
	for (int i = 0; i < SWEEP_LANES; i++)
	{
		if ((from->lanes & (1 << i)) == 0)
			continue;
		to->low[i] = (to->lanes & (1 << i)) ? Min(to->low[i], from->low[i]) : from->low[i];
		to->lanes |= 1 << i;
	}
	to->first_due = Min(to->first_due, from->first_due);
	for (int i = 0; i < 2; i++)
		to->rows[i] += from->rows[i];
	to->dead += from->dead;
	to->sent += from->sent;
	to->acked += from->acked;
	to->reset |= from->reset;
	to->reset_if_undone |= from->reset_if_undone;
	to->purged |= from->purged;
	to->emptied |= from->emptied;
	to->dropped |= from->dropped;
}

/* A transaction, or a subtransaction, is rolled back: its claims are, and what it was ending is held. */
static void
undo(int level)
{
	while (changes != NULL && changes->level >= level)
	{
		/* Searches have stepped over the rows that it was deleting. */
		if ((changes->change.reset || changes->change.reset_if_undone) && sweep_queue_memory_exists())
		{
			SweepQueueChange again = {.relation = changes->change.relation, .queue_id = changes->change.queue_id,.reset = true};

			again.first_due = SWEEP_NOTHING_DUE;
			sweep_queue_lock(LW_EXCLUSIVE);
			sweep_queue_apply_change(&again, InvalidFullTransactionId, GetCurrentTimestamp());
			undo_purge(&changes->change);
			sweep_queue_unlock();
		}
		changes = changes->next;
	}
	if (pending_count == 0 || pending[pending_count - 1].level < level)
		return;
	sweep_queue_lock(LW_EXCLUSIVE);
	for (; pending_count > 0 && pending[pending_count - 1].level >= level; pending_count--)
	{
		const Pending *item = &pending[pending_count - 1];
		SweepQueueLease *lease;

		if (item->kind == PENDING_ENDING)
			sweep_in_flight_settle_ending(item->entry, false);
		else if ((lease = sweep_in_flight_find_lease(&item->lease)) != NULL)
		{
			/* A claim that was rolled back was none. */
			for (int entry = lease->first; entry >= 0; entry = sweep_in_flight_entries()[entry].next)
				sweep_in_flight_entries()[entry].attempts--;
			(void) sweep_in_flight_return_lease((int) (lease - sweep_in_flight_leases()));
		}
	}
	sweep_queue_unlock();
}

/* What is held is there, after all. */
static void
undo_purge(const SweepQueueChange *change)
{
	SweepQueueSlot *slot = change->queue_id != 0 ? sweep_queue_find_slot(change->relation, change->queue_id) : NULL;

	if (slot != NULL && TransactionIdIsValid(GetTopTransactionIdIfAny()))
		sweep_in_flight_settle_purged(slot, GetTopTransactionIdIfAny(), false);
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
	settle_prepared();
	sweep_queue_lock(LW_EXCLUSIVE);
	for (LevelChange *level_change = changes; level_change != NULL && noted; level_change = level_change->next)
		noted = sweep_queue_note_prepared(xid, &level_change->change);
	if (!noted)
		sweep_queue_forget_prepared(xid);
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

	if (!sweep_queue_memory_exists())
		return;
	sweep_queue_lock(LW_EXCLUSIVE);
	for (int i = 0; i < pending_count; i++)
	{
		if (pending[i].kind != PENDING_ENDING)
			continue;
		sweep_in_flight_entries()[pending[i].entry].state = IN_FLIGHT_PREPARED;
		sweep_in_flight_entries()[pending[i].entry].xid = xid;
	}
	sweep_queue_unlock();
}

static void
forget_transaction(void)
{
	changes = NULL;
	pending = NULL;
	pending_count = pending_room = 0;
	own_statements = 0;
	prepared = false;
}
