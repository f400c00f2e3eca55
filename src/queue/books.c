/*
 * books.c
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
#include "queue/books.h"
#include "queue/hold.h"

typedef struct Book
{
	struct Book *next;			/* of the same or an outer level */
	int			level;
	SweepQueueChange change;
} Book;

typedef enum MarkKind
{
	MARK_CLAIM,
	MARK_ENDING,
} MarkKind;

typedef struct Mark
{
	MarkKind	kind;
	int			level;
	pg_uuid_t	lease;			/* of a claim */
	int			hold;			/* of what is ending */
} Mark;

/* In TopTransactionContext; forgotten at its end. */
static Book *books = NULL;
static Mark *marks = NULL;
static int	mark_count = 0;
static int	mark_room = 0;
static int	own_statements = 0;
static bool prepared = false;	/* shared memory has them, too */

static void settle_prepared(void);
static void register_callbacks(void);
static void at_transaction_event(XactEvent event, void *arg);
static void at_subtransaction_event(SubXactEvent event, SubTransactionId id, SubTransactionId parent, void *arg);
static void apply_books(void);
static void hand_over(int level);
static void add_change(SweepQueueChange *to, const SweepQueueChange *from);
static void undo(int level);
static void undo_purge(const SweepQueueChange *change);
static void refuse_claims(void);
static void prepare_books(void);
static void leave_prepared(void);
static void forget_books(void);

PG_FUNCTION_INFO_V1(sweep_books_begin_sql);
PG_FUNCTION_INFO_V1(sweep_books_end_sql);
PG_FUNCTION_INFO_V1(sweep_books_note_foreign_statement);
PG_FUNCTION_INFO_V1(sweep_books_note_purged);

SweepQueueChange *
sweep_books_open(Oid relation, int32 queue_id)
{
	int			level = GetCurrentTransactionNestLevel();
	Book	   *book;

	for (book = books; book != NULL && book->level == level; book = book->next)
		if (book->change.queue_id == queue_id && book->change.relation == relation)
			return &book->change;
	register_callbacks();
	book = MemoryContextAllocZero(TopTransactionContext, sizeof(Book));
	book->level = level;
	book->change.relation = relation;
	book->change.queue_id = queue_id;
	book->change.first_due = SWEEP_NOTHING_DUE;
	book->next = books;
	books = book;
	return &book->change;
}

void
sweep_books_add_sent(SweepQueueChange *change, int16 lane, int64 message_id, TimestampTz due_at)
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
sweep_books_make_room(int count)
{
	register_callbacks();
	if (mark_count + count <= mark_room)
		return;
	mark_room = Max(2 * mark_room, mark_count + count + 16);
	if (marks == NULL)
		marks = MemoryContextAlloc(TopTransactionContext, mark_room * sizeof(Mark));
	else
		marks = repalloc_huge(marks, mark_room * sizeof(Mark));
}

void
sweep_books_note_claim(const pg_uuid_t *lease)
{
	marks[mark_count].kind = MARK_CLAIM;
	marks[mark_count].level = GetCurrentTransactionNestLevel();
	marks[mark_count++].lease = *lease;
}

void
sweep_books_note_ending(int hold)
{
	marks[mark_count].kind = MARK_ENDING;
	marks[mark_count].level = GetCurrentTransactionNestLevel();
	marks[mark_count++].hold = hold;
}

void
sweep_books_begin_statement(void)
{
	register_callbacks();
	own_statements++;
}

void
sweep_books_end_statement(void)
{
	own_statements--;
}

/* SQL: a trigger before every statement that writes to sweep.queue_message */
Datum
sweep_books_note_foreign_statement(PG_FUNCTION_ARGS)
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
		SweepQueueChange *change = sweep_books_open(get_relname_relid("queue_message", RelationGetNamespace(trigger->tg_relation)), 0);

		change->reset = true;
		if (TRIGGER_FIRED_BY_TRUNCATE(trigger->tg_event) && change->relation == RelationGetRelid(trigger->tg_relation))
			change->emptied = true;
	}
	PG_RETURN_POINTER(NULL);
}

/* SQL: sweep._begin_queue_statement(queue_id) */
Datum
sweep_books_begin_sql(PG_FUNCTION_ARGS)
{
	/* What is written to a queue that is being dropped meanwhile would stay for ever. */
	(void) sweep_lease_acquire_queue(PG_GETARG_INT32(0), LEASE_SHARED);
	sweep_books_open(get_relname_relid("queue_message", get_namespace_oid("sweep", false)), PG_GETARG_INT32(0))->reset_if_undone = true;
	sweep_books_begin_statement();
	PG_RETURN_VOID();
}

/* SQL: sweep._note_purged(queue_id, lane, message_id), for each row that a purge deletes */
Datum
sweep_books_note_purged(PG_FUNCTION_ARGS)
{
	Oid			relation = get_relname_relid("queue_message", get_namespace_oid("sweep", false));
	TransactionId xid = GetTopTransactionId();
	SweepQueueSlot *slot;

	if (!sweep_queue_memory_exists())
		PG_RETURN_VOID();
	sweep_queue_lock(LW_EXCLUSIVE);
	slot = sweep_queue_find_slot(relation, PG_GETARG_INT32(0));
	if (slot != NULL)
		sweep_hold_note_purged(slot, PG_GETARG_INT16(1), PG_GETARG_INT64(2), xid);
	sweep_queue_unlock();
	PG_RETURN_VOID();
}

/* SQL: sweep._end_queue_statement(queue_id, ready, delayed, dead, first_due, emptied, dropped) */
Datum
sweep_books_end_sql(PG_FUNCTION_ARGS)
{
	SweepQueueChange *change = sweep_books_open(get_relname_relid("queue_message", get_namespace_oid("sweep", false)), PG_GETARG_INT32(0));

	sweep_books_end_statement();
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
	if (books == NULL && mark_count == 0)
	{
		if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
			forget_books();
		return;
	}
	switch (event)
	{
		case XACT_EVENT_COMMIT:
			apply_books();
			forget_books();
			break;
		case XACT_EVENT_ABORT:
			undo(0);
			if (prepared)
			{
				sweep_queue_lock(LW_EXCLUSIVE);
				sweep_queue_forget_prepared(GetTopTransactionIdIfAny());
				sweep_queue_unlock();
			}
			forget_books();
			break;
		case XACT_EVENT_PRE_PREPARE:
			refuse_claims();
			prepare_books();
			break;
		case XACT_EVENT_PREPARE:
			leave_prepared();
			forget_books();
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
apply_books(void)
{
	FullTransactionId xid = GetTopFullTransactionIdIfAny();
	TimestampTz now;

	if (!sweep_queue_memory_exists())
		return;
	now = GetCurrentTransactionStopTimestamp();
	sweep_queue_lock(LW_EXCLUSIVE);
	for (int i = 0; i < mark_count; i++)
		if (marks[i].kind == MARK_ENDING)
			sweep_hold_settle_ending(marks[i].hold, true);
	for (Book *book = books; book != NULL; book = book->next)
		sweep_queue_apply_change(&book->change, xid, now);
	sweep_queue_unlock();
}

/* A subtransaction has ended well: its books are those of the level above. */
static void
hand_over(int level)
{
	Book	  **link = &books;

	while (*link != NULL && (*link)->level == level)
	{
		Book	   *book = *link;
		Book	   *outer = book->next;

		while (outer != NULL && (outer->level != level - 1 || outer->change.queue_id != book->change.queue_id ||
								 outer->change.relation != book->change.relation))
			outer = outer->level >= level - 1 ? outer->next : NULL;
		if (outer == NULL)
		{
			book->level = level - 1;
			link = &book->next;
			continue;
		}
		add_change(&outer->change, &book->change);
		*link = book->next;
		pfree(book);
	}
	for (int i = mark_count - 1; i >= 0 && marks[i].level == level; i--)
		marks[i].level = level - 1;
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
	while (books != NULL && books->level >= level)
	{
		/* Searches have stepped over the rows that it was deleting. */
		if ((books->change.reset || books->change.reset_if_undone) && sweep_queue_memory_exists())
		{
			SweepQueueChange again = {.relation = books->change.relation, .queue_id = books->change.queue_id,.reset = true};

			again.first_due = SWEEP_NOTHING_DUE;
			sweep_queue_lock(LW_EXCLUSIVE);
			sweep_queue_apply_change(&again, InvalidFullTransactionId, GetCurrentTimestamp());
			undo_purge(&books->change);
			sweep_queue_unlock();
		}
		books = books->next;
	}
	if (mark_count == 0 || marks[mark_count - 1].level < level)
		return;
	sweep_queue_lock(LW_EXCLUSIVE);
	for (; mark_count > 0 && marks[mark_count - 1].level >= level; mark_count--)
	{
		const Mark *mark = &marks[mark_count - 1];
		SweepQueueLease *lease;

		if (mark->kind == MARK_ENDING)
			sweep_hold_settle_ending(mark->hold, false);
		else if ((lease = sweep_hold_find_lease(&mark->lease)) != NULL)
		{
			/* A claim that was rolled back was none. */
			for (int hold = lease->hold_first; hold >= 0; hold = sweep_queue_holds()[hold].next)
				sweep_queue_holds()[hold].attempts--;
			(void) sweep_hold_give_back_lease((int) (lease - sweep_queue_leases()));
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
		sweep_hold_drop_purged(slot, GetTopTransactionIdIfAny(), false);
}

/*
 * Nobody could give a claim back when the prepared transaction is rolled back, and a claim that has given
 * keys free keeps its rows locked, for as long as it stays prepared.
 */
static void
refuse_claims(void)
{
	for (int i = 0; i < mark_count; i++)
		if (marks[i].kind == MARK_CLAIM)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot PREPARE a transaction that has claimed messages"),
					 errhint("Claim in a transaction of its own; the one that is prepared can acknowledge.")));
}

/* From now on whoever finds the transaction ended settles what it did. */
static void
prepare_books(void)
{
	TransactionId xid = GetTopTransactionId();
	bool		noted = true;

	if (!sweep_queue_memory_exists())
		return;
	/* Those that have ended make room: nobody may have looked for messages since. */
	settle_prepared();
	sweep_queue_lock(LW_EXCLUSIVE);
	for (Book *book = books; book != NULL && noted; book = book->next)
		noted = sweep_queue_note_prepared(xid, &book->change);
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
	for (int i = 0; i < mark_count; i++)
	{
		if (marks[i].kind != MARK_ENDING)
			continue;
		sweep_queue_holds()[marks[i].hold].state = HOLD_PREPARED;
		sweep_queue_holds()[marks[i].hold].xid = xid;
	}
	sweep_queue_unlock();
}

static void
forget_books(void)
{
	books = NULL;
	marks = NULL;
	mark_count = mark_room = 0;
	own_statements = 0;
	prepared = false;
}
