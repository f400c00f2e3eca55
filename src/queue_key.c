/*
 * queue_key.c
 *		Inserts messages with keys: at most one with a key waits, which the unique index
 *		queue_message_waiting_key decides.
 *
 * Called by whoever sends or fails (queue_send.c, queue_end.c). Two senders at once, or one that rolls
 * back, can neither double nor lose a message. A key for which a transaction that is still open has a row, or frees it, is undecided:
 * only the end of that transaction tells, so the sender waits for it.
 *
 * Messages are inserted in the order of their keys, so that of two senders with the same keys one waits
 * for the other, never both. In turns: keys are looked up until there are rows enough, or one is undecided;
 * the rows are inserted, and their index entries one by one. One sender to a queue takes a turn at a time, and
 * within it waits for no transaction, so what was looked up is still so when the row is inserted.
 *
 * But for an INSERT by hand, which knows nothing of turns. So index entries are made without waiting, and
 * say whether the index had another entry with the key. If so, it is looked up again, now that whoever comes
 * later sees ours: with nothing there the row stays; else the row and those behind it are withdrawn, and the
 * next turn begins with this key. Of any two rows one has the later entry and sees the other, so never both
 * stay. Until its transaction ends, a row that was withdrawn looks to others like one that is being inserted.
 * Senders do not wait for that: they know it by being deleted by the very (sub)transaction that has inserted
 * it, whose end makes no difference.
 *
 * A message that fails takes back the key that its first claim gave free, in such a turn and without waiting:
 * where another one has the key, or may have, it waits again without. One that was released, or whose lease ran
 * out, is not written for that; senders find it in shared memory.
 *
 * An INSERT with ON CONFLICT needs none of this, and twice the time: it inserts rows one by one, each with
 * a lock and a record of the WAL for the others to know that it is undecided.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relscan.h"
#include "access/sysattr.h"
#include "access/stratnum.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_collation.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "lease.h"
#include "queue_hold.h"
#include "queue_key.h"
#include "queue_table.h"

typedef enum KeyState
{
	KEY_FREE,
	KEY_TAKEN,
	KEY_UNDECIDED,
} KeyState;

typedef struct Turns
{
	const SweepShipment *shipment;
	SweepInserter inserter;
	SweepKeyed *messages;
	int			count;
	int			position;		/* the first that is neither inserted nor left out */
	int			inserted;
	int			rows[SWEEP_INSERT_ROWS];	/* the messages of the inserter's rows */
	Relation	index;
	IndexScanDesc scan;
	SnapshotData dirty;
	TupleTableSlot *slot;
	Snapshot	begun;			/* in a transaction that must not miss what others commit meanwhile */
	/* whose end decides on an undecided key */
	TransactionId xid;
	uint32		token;
	ItemPointerData tid;
} Turns;

static int	sort_messages(SweepKeyed *messages, int count);
static int	compare_messages(const void *left, const void *right);
static int	compare_keys(const text *a, const text *b);
static void lock_turns(const SweepShipment *shipment, LOCKTAG *tag);
static void open_turns(Turns *turns, const SweepShipment *shipment, SweepKeyed *messages, int count);
static void close_turns(Turns *turns);
static bool take_turn(Turns *turns);
static bool choose_rows(Turns *turns);
static bool insert_rows(Turns *turns);
static KeyState look_up_alone(Turns *turns, text *key, ItemPointer own);
static KeyState look_up(Turns *turns, text *key, ItemPointer own);
static bool are_given_back(const SweepShipment *shipment);
static KeyState look_up_given_back(Turns *turns, text *key);
static bool find_given_back(const SweepShipment *shipment, uint32 key_hash, int nth, SweepFound *message);
static KeyState judge(Turns *turns);
static bool is_withdrawn(TupleTableSlot *slot);
static void wait_for_decision(const Turns *turns);

uint32
sweep_key_hash(const text *key)
{
	return hash_bytes((const unsigned char *) VARDATA_ANY(key), VARSIZE_ANY_EXHDR(key)) | 1;
}

int
sweep_key_insert(const SweepShipment *shipment, SweepKeyed *messages, int count)
{
	Turns		turns = {0};

	open_turns(&turns, shipment, messages, sort_messages(messages, count));
	if (IsolationUsesXactSnapshot())
		turns.begun = RegisterSnapshot(GetLatestSnapshot());
	while (turns.position < turns.count)
		if (!take_turn(&turns))
			wait_for_decision(&turns);
	close_turns(&turns);
	return turns.inserted;
}

void
sweep_key_put_back(const SweepShipment *shipment, TupleTableSlot *old, int attempts, Jsonb *error)
{
	Turns		turns = {0};
	LOCKTAG		tag;
	bool		is_null;
	text	   *key = DatumGetTextPP(slot_getattr(old, MESSAGE_KEY, &is_null));
	KeyState	state;

	open_turns(&turns, shipment, NULL, 1);
	lock_turns(shipment, &tag);
	state = look_up_alone(&turns, key, NULL);
	if (state == KEY_FREE)
	{
		sweep_inserter_add_again(&turns.inserter, old, false, attempts, error);
		sweep_inserter_write_rows(&turns.inserter);
		if (!sweep_inserter_write_entries(&turns.inserter, 0, RelationGetRelid(turns.index)))
			state = look_up_alone(&turns, key, &turns.inserter.slots[0]->tts_tid);
		if (state != KEY_FREE)
			sweep_inserter_withdraw(&turns.inserter, 0);
	}
	if (state != KEY_FREE)
	{
		turns.inserter.filled = 0;
		sweep_inserter_add_again(&turns.inserter, old, true, attempts, error);
		sweep_inserter_write_rows(&turns.inserter);
		(void) sweep_inserter_write_entries(&turns.inserter, 0, InvalidOid);
	}
	(void) LockRelease(&tag, ExclusiveLock, false);
	close_turns(&turns);
}

/* By key; of those with the same only the first stays. Returns how many do. */
static int
sort_messages(SweepKeyed *messages, int count)
{
	int			kept = Min(count, 1);

	qsort(messages, count, sizeof(SweepKeyed), compare_messages);
	for (int i = 1; i < count; i++)
		if (messages[i].key == NULL || compare_keys(messages[i].key, messages[kept - 1].key) != 0)
			messages[kept++] = messages[i];
	return kept;
}

static int
compare_messages(const void *left, const void *right)
{
	const SweepKeyed *a = left;
	const SweepKeyed *b = right;
	int			result = compare_keys(a->key, b->key);

	return result != 0 ? result : a->number - b->number;
}

/* Byte by byte, as the index; NULL comes last. */
static int
compare_keys(const text *a, const text *b)
{
	int			a_length;
	int			b_length;
	int			result;

	if (a == NULL || b == NULL)
		return (a == NULL) - (b == NULL);
	a_length = VARSIZE_ANY_EXHDR(a);
	b_length = VARSIZE_ANY_EXHDR(b);
	result = memcmp(VARDATA_ANY(a), VARDATA_ANY(b), Min(a_length, b_length));
	return result != 0 ? result : a_length - b_length;
}

static void
open_turns(Turns *turns, const SweepShipment *shipment, SweepKeyed *messages, int count)
{
	Oid			index = get_relname_relid("queue_message_waiting_key", RelationGetNamespace(shipment->messages));

	turns->shipment = shipment;
	turns->messages = messages;
	turns->count = count;
	sweep_inserter_open(&turns->inserter, shipment);
	turns->index = index_open(index, RowExclusiveLock);
	turns->slot = table_slot_create(shipment->messages, NULL);
	InitDirtySnapshot(turns->dirty);
}

static void
close_turns(Turns *turns)
{
	if (turns->begun != InvalidSnapshot)
		UnregisterSnapshot(turns->begun);
	ExecDropSingleTupleTableSlot(turns->slot);
	index_close(turns->index, NoLock);
	sweep_inserter_close(&turns->inserter);
}

static void
lock_turns(const SweepShipment *shipment, LOCKTAG *tag)
{
	SET_LOCKTAG_ADVISORY(*tag, MyDatabaseId, 0, (uint32) shipment->queue_id, SWEEP_LOCK_KEYS);
	(void) LockAcquire(tag, ExclusiveLock, false, false);
}

/* False when it ended at a key that is undecided. */
static bool
take_turn(Turns *turns)
{
	LOCKTAG		tag;
	bool		decided;

	lock_turns(turns->shipment, &tag);
	decided = choose_rows(turns);
	if (!insert_rows(turns))
		decided = true;
	(void) LockRelease(&tag, ExclusiveLock, false);
	return decided;
}

/* Chooses the rows of a turn. False when it ended at a key that is undecided. */
static bool
choose_rows(Turns *turns)
{
	SweepInserter *inserter = &turns->inserter;
	KeyState	state = KEY_FREE;
	bool		given_back = are_given_back(turns->shipment);

	CHECK_FOR_INTERRUPTS();
	inserter->filled = 0;
	turns->scan = sweep_index_beginscan(turns->shipment->messages, turns->index, &turns->dirty, 2);
	while (turns->position < turns->count && inserter->filled < inserter->room)
	{
		const SweepKeyed *message = &turns->messages[turns->position];

		state = message->key == NULL ? KEY_FREE : look_up(turns, message->key, NULL);
		if (state == KEY_FREE && message->key != NULL && given_back)
			state = look_up_given_back(turns, message->key);
		if (state == KEY_UNDECIDED)
			break;
		if (state == KEY_FREE)
		{
			turns->rows[inserter->filled] = turns->position;
			sweep_inserter_add_row(inserter, message->message_id, message->key, message->number);
		}
		turns->position++;
	}
	index_endscan(turns->scan);
	return state != KEY_UNDECIDED;
}

/* Inserts the rows of a turn. False when somebody was faster with a key: the next turn begins there. */
static bool
insert_rows(Turns *turns)
{
	const SweepShipment *shipment = turns->shipment;
	SweepInserter *inserter = &turns->inserter;

	if (inserter->filled == 0)
		return true;
	sweep_inserter_write_rows(inserter);
	for (int i = 0; i < inserter->filled; i++)
	{
		const SweepKeyed *message = &turns->messages[turns->rows[i]];

		if (!sweep_inserter_write_entries(inserter, i, RelationGetRelid(turns->index)))
		{
			if (look_up_alone(turns, message->key, &inserter->slots[i]->tts_tid) != KEY_FREE)
			{
				sweep_inserter_withdraw(inserter, i);
				turns->position = turns->rows[i];
				return false;
			}
		}
		sweep_books_add_sent(shipment->change, shipment->lane, message->message_id, shipment->due_at);
		turns->inserted++;
	}
	return true;
}

static KeyState
look_up_alone(Turns *turns, text *key, ItemPointer own)
{
	KeyState	state;

	turns->scan = sweep_index_beginscan(turns->shipment->messages, turns->index, &turns->dirty, 2);
	state = look_up(turns, key, own);
	index_endscan(turns->scan);
	return state;
}

/* Whether a message with this key waits, other than that at `own`. */
static KeyState
look_up(Turns *turns, text *key, ItemPointer own)
{
	ScanKeyData keys[2];
	KeyState	state = KEY_FREE;

	ScanKeyInit(&keys[0], 1, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(turns->shipment->queue_id));
	ScanKeyEntryInitialize(&keys[1], 0, 2, BTEqualStrategyNumber, InvalidOid, C_COLLATION_OID, F_TEXTEQ, PointerGetDatum(key));
	index_rescan(turns->scan, keys, 2, NULL, 0);
	while (state != KEY_TAKEN && index_getnext_slot(turns->scan, ForwardScanDirection, turns->slot))
	{
		if (own != NULL && ItemPointerEquals(own, &turns->slot->tts_tid))
			continue;
		if (!TransactionIdIsValid(turns->dirty.xmin) || !is_withdrawn(turns->slot))
			state = judge(turns);
	}
	ExecClearTuple(turns->slot);
	return state;
}

/* Whether messages of the queue were claimed and wait again, for their consumer gave them back or their lease ran out. */
static bool
are_given_back(const SweepShipment *shipment)
{
	TimestampTz now = GetCurrentTimestamp();
	SweepQueueSlot *slot;
	bool		expired;
	bool		given_back;

	if (!sweep_queue_memory_exists())
		return false;
	sweep_queue_lock(LW_SHARED);
	slot = sweep_queue_find_slot(RelationGetRelid(shipment->messages), shipment->queue_id);
	expired = slot != NULL && slot->next_expiry <= now;
	given_back = slot != NULL && slot->returned_first >= 0;
	sweep_queue_unlock();
	if (!expired)
		return given_back;
	/* So that whoever had them cannot end them any more. */
	sweep_queue_lock(LW_EXCLUSIVE);
	slot = sweep_queue_find_slot(RelationGetRelid(shipment->messages), shipment->queue_id);
	if (slot != NULL)
		sweep_hold_expire(slot, now);
	given_back = slot != NULL && slot->returned_first >= 0;
	sweep_queue_unlock();
	return given_back;
}

/* Whether one of those has the key. Its row does not say so: nobody has written it when it was given back. */
static KeyState
look_up_given_back(Turns *turns, text *key)
{
	const SweepShipment *shipment = turns->shipment;
	SweepQueue	queue = {.queue_id = shipment->queue_id};
	BlockNumber blocks = RelationGetNumberOfBlocks(shipment->messages);
	KeyState	state = KEY_FREE;
	uint32		key_hash = sweep_key_hash(key);
	SweepFound	message;

	for (int nth = 0; state != KEY_TAKEN && find_given_back(shipment, key_hash, nth, &message); nth++)
	{
		bool		is_null;

		if (sweep_queue_fetch(shipment->messages, blocks, &queue, &turns->dirty, &message, turns->slot) &&
			compare_keys(DatumGetTextPP(slot_getattr(turns->slot, MESSAGE_KEY, &is_null)), key) == 0)
			state = judge(turns);
	}
	ExecClearTuple(turns->slot);
	return state;
}

static bool
find_given_back(const SweepShipment *shipment, uint32 key_hash, int nth, SweepFound *message)
{
	SweepQueueSlot *slot;
	bool		found;

	sweep_queue_lock(LW_SHARED);
	slot = sweep_queue_find_slot(RelationGetRelid(shipment->messages), shipment->queue_id);
	found = slot != NULL && sweep_hold_find_returned(slot, key_hash, nth, message);
	sweep_queue_unlock();
	return found;
}

/* What a row that has the key says of it. */
static KeyState
judge(Turns *turns)
{
	bool		inserting = TransactionIdIsValid(turns->dirty.xmin);
	bool		is_null;
	TransactionId xmin;

	if (inserting || TransactionIdIsValid(turns->dirty.xmax))
	{
		turns->xid = inserting ? turns->dirty.xmin : turns->dirty.xmax;
		turns->token = inserting ? turns->dirty.speculativeToken : 0;
		turns->tid = turns->slot->tts_tid;
		return KEY_UNDECIDED;
	}
	if (turns->begun == InvalidSnapshot)
		return KEY_TAKEN;
	/* As with every statement that would skip a row that such a transaction must not know of. */
	xmin = DatumGetTransactionId(slot_getsysattr(turns->slot, MinTransactionIdAttributeNumber, &is_null));
	if (!TransactionIdIsCurrentTransactionId(xmin) &&
		!table_tuple_satisfies_snapshot(turns->shipment->messages, turns->slot, turns->begun))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not serialize access due to concurrent update")));
	return KEY_TAKEN;
}

static bool
is_withdrawn(TupleTableSlot *slot)
{
	BufferHeapTupleTableSlot *row = (BufferHeapTupleTableSlot *) slot;
	HeapTupleHeader header = row->base.tuple->t_data;
	bool		withdrawn;

	LockBuffer(row->buffer, BUFFER_LOCK_SHARE);
	withdrawn = (header->t_infomask & (HEAP_XMAX_INVALID | HEAP_XMAX_IS_MULTI)) == 0 &&
		!HEAP_XMAX_IS_LOCKED_ONLY(header->t_infomask) &&
		TransactionIdEquals(HeapTupleHeaderGetRawXmax(header), HeapTupleHeaderGetRawXmin(header));
	LockBuffer(row->buffer, BUFFER_LOCK_UNLOCK);
	return withdrawn;
}

static void
wait_for_decision(const Turns *turns)
{
	ItemPointerData tid = turns->tid;

	/* An INSERT with ON CONFLICT decides without the end of its transaction. */
	if (turns->token != 0)
		SpeculativeInsertionWait(turns->xid, turns->token);
	else
		XactLockTableWait(turns->xid, turns->shipment->messages, &tid, XLTW_InsertIndex);
}
