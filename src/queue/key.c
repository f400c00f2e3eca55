/*
 * key.c
 *		Inserts messages with keys: at most one per key waits, as the unique index queue_message_waiting_key ensures.
 *
 * Concurrent senders and rollbacks neither duplicate nor lose a message. While an open transaction has inserted a row
 * with the key, or is freeing the key, the key is undecided, and the sender waits for the end of that transaction.
 *
 * A sender inserts its messages in the order of their keys, so that two senders with the same keys do not deadlock. It
 * works in turns: it looks up keys until it has enough rows, or a key is undecided; then it inserts the rows, and their
 * index entries one by one. Only one sender per queue has a turn at a time, and it waits for no transaction during the
 * turn, so that no other sender takes the keys between lookup and insertion.
 *
 * An INSERT by hand takes no turn. Index entries are therefore made without waiting, and report whether the index had another entry with the
 * key. If so, the key is looked up again. By then all later senders see the new row. If there is no other row, the new one stays; else it is
 * withdrawn with the rows after it, and the next turn begins with this key. The row whose entry is made later sees the other one, so two rows
 * with a key never both stay. Until its transaction ends, a withdrawn row looks like one that is being inserted. Senders do not wait for it:
 * they see that it was deleted by the (sub)transaction that inserted it.
 *
 * A message that fails takes back the key that its first claim freed, in such a turn and without waiting. If another
 * message has the key, or may have it, the failed message waits again without the key. The row of a message that was
 * released, or whose lease ran out, is not written; senders find its key in shared memory.
 *
 * The key of a message that was left out is looked up again before the commit (left_out.c): the waiting message may have been claimed
 * by a consumer that does not see the changes of the sender's transaction. If it still waits, the transaction locks its row FOR KEY
 * SHARE. A claim may then free its key, but delivers the message only when the lock is gone (claim.c). One more lookup, after the lock
 * was taken, shows whether a claim came first.
 *
 * INSERT ... ON CONFLICT takes twice as long: it inserts rows one by one, each with a lock and a WAL record.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/stratnum.h"
#include "access/sysattr.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_collation.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "base/clock.h"
#include "base/compat_table.h"
#include "base/lock.h"
#include "queue/in_flight.h"
#include "queue/key.h"
#include "queue/slot_pool.h"
#include "queue/table.h"

typedef enum KeyState
{
	KEY_FREE,
	KEY_TAKEN,
	KEY_UNDECIDED,
} KeyState;

typedef struct KeyedInsert
{
	const SweepSendRequest *request;
	SweepInserter inserter;
	SweepKeyedMessage *messages;
	int			count;
	int			position;		/* the first message that is neither inserted nor left out */
	int			inserted;
	int			rows[SWEEP_INSERT_ROWS];	/* the messages of the inserter's rows */
	Relation	index;
	IndexScanDesc scan;			/* only during a turn, as "turn" */
	LOCKTAG		turn;
	SnapshotData dirty;
	TupleTableSlot *slot;
	Snapshot	begun;			/* snapshot of the start, under REPEATABLE READ and SERIALIZABLE */
	/* The row that has the key, if it is not free; and the transaction whose end decides on an undecided key. */
	ItemPointerData tid;
	int64		message_id;
	bool		is_own;			/* the row was inserted by this transaction */
	TransactionId xid;
	uint32		token;
} KeyedInsert;

PG_FUNCTION_INFO_V1(sweep_key_is_given_back);

uint32
sweep_key_hash(const text *key)
{
	return (uint32) sweep_lock_hash(0, VARDATA_ANY(key), VARSIZE_ANY_EXHDR(key)) | 1;
}

static void
open_insert(KeyedInsert *insert, const SweepSendRequest *request, SweepKeyedMessage *messages, int count)
{
	insert->request = request;
	insert->messages = messages;
	insert->count = count;
	sweep_inserter_open(&insert->inserter, request);
	insert->index = sweep_queue_open_index(request->messages, "queue_message_waiting_key", RowExclusiveLock);
	insert->slot = table_slot_create(request->messages, NULL);
	InitDirtySnapshot(insert->dirty);
}

static void
begin_turn(KeyedInsert *insert)
{
	SET_LOCKTAG_ADVISORY(insert->turn, MyDatabaseId, 0, (uint32) insert->request->queue_id, SWEEP_LOCK_KEYS);
	(void) LockAcquire(&insert->turn, ExclusiveLock, false, false);
	insert->scan = sweep_index_beginscan(insert->request->messages, insert->index, &insert->dirty, 2);
}

static void
end_turn(KeyedInsert *insert)
{
	index_endscan(insert->scan);
	(void) LockRelease(&insert->turn, ExclusiveLock, false);
}

static void
close_insert(KeyedInsert *insert)
{
	if (insert->begun != InvalidSnapshot)
		UnregisterSnapshot(insert->begun);
	ExecDropSingleTupleTableSlot(insert->slot);
	index_close(insert->index, NoLock);
	sweep_inserter_close(&insert->inserter);
}

int
sweep_key_compare(const text *a, const text *b)
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

static int
compare_messages(const void *left, const void *right)
{
	const SweepKeyedMessage *a = left;
	const SweepKeyedMessage *b = right;
	int			result = sweep_key_compare(a->key, b->key);

	return result != 0 ? result : a->number - b->number;
}

/* Sorts the messages by key, and keeps only the first of each key. Returns how many are left. */
static int
sort_messages(SweepKeyedMessage *messages, int count)
{
	int			kept = Min(count, 1);

	qsort(messages, count, sizeof(SweepKeyedMessage), compare_messages);
	for (int i = 1; i < count; i++)
		if (messages[i].key == NULL || sweep_key_compare(messages[i].key, messages[kept - 1].key) != 0)
			messages[kept++] = messages[i];
	return kept;
}

/* Whether claimed messages of the queue wait again: they were returned, or their lease has run out. */
static bool
are_given_back(const SweepSendRequest *request)
{
	Oid			relation = RelationGetRelid(request->messages);
	SweepQueueSlot *slot;
	bool		given_back;

	if (!sweep_queue_memory_exists())
		return false;
	sweep_queue_lock(LW_SHARED);
	slot = sweep_queue_find_slot(relation, request->queue_id);
	if (slot != NULL && slot->next_expiry_us <= sweep_monotonic_us())
	{
		/* This ends the leases: their holders cannot end the messages any more. */
		sweep_queue_unlock();
		sweep_queue_lock(LW_EXCLUSIVE);
		slot = sweep_queue_find_settled(relation, request->queue_id);
	}
	given_back = slot != NULL && slot->returned.first >= 0;
	sweep_queue_unlock();
	return given_back;
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

/* The state of a key, given a row with it in the slot. */
static KeyState
judge(KeyedInsert *insert)
{
	bool		inserting = TransactionIdIsValid(insert->dirty.xmin);
	bool		is_null;

	insert->tid = insert->slot->tts_tid;
	if (inserting || TransactionIdIsValid(insert->dirty.xmax))
	{
		insert->xid = inserting ? insert->dirty.xmin : insert->dirty.xmax;
		insert->token = inserting ? insert->dirty.speculativeToken : 0;
		return KEY_UNDECIDED;
	}
	insert->message_id = DatumGetInt64(slot_getattr(insert->slot, MESSAGE_ID, &is_null));
	insert->is_own = TransactionIdIsCurrentTransactionId(DatumGetTransactionId(slot_getsysattr(insert->slot, MinTransactionIdAttributeNumber, &is_null)));
	if (insert->begun == InvalidSnapshot)
		return KEY_TAKEN;
	/* Like an SQL statement, this fails when a row that the snapshot does not see has the key. */
	if (!insert->is_own &&
		!table_tuple_satisfies_snapshot(insert->request->messages, insert->slot, insert->begun))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not serialize access due to concurrent update")));
	return KEY_TAKEN;
}

void
sweep_key_begin_scan(IndexScanDesc scan, int32 queue_id, text *key)
{
	ScanKeyData keys[2];

	ScanKeyInit(&keys[0], 1, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(queue_id));
	ScanKeyEntryInitialize(&keys[1], 0, 2, BTEqualStrategyNumber, InvalidOid, C_COLLATION_OID, F_TEXTEQ, PointerGetDatum(key));
	index_rescan(scan, keys, 2, NULL, 0);
}

bool
sweep_key_find_returned(Relation messages, int32 queue_id, text *key, Snapshot snapshot, int *nth, SweepMessageRef *message, TupleTableSlot *slot)
{
	SweepQueue	queue = {.queue_id = queue_id};
	BlockNumber blocks = RelationGetNumberOfBlocks(messages);
	uint32		key_hash = sweep_key_hash(key);
	bool		found;
	bool		is_null;

	do
	{
		const SweepQueueSlot *queue_slot;

		sweep_queue_lock(LW_EXCLUSIVE);
		queue_slot = sweep_queue_find_settled(RelationGetRelid(messages), queue_id);
		found = queue_slot != NULL && sweep_in_flight_find_returned(queue_slot, key_hash, (*nth)++, message);
		sweep_queue_unlock();
	} while (found && (!sweep_queue_fetch(messages, blocks, &queue, snapshot, message, slot) || slot_attisnull(slot, MESSAGE_KEY) ||
					   sweep_key_compare(DatumGetTextPP(slot_getattr(slot, MESSAGE_KEY, &is_null)), key) != 0));
	return found;
}

/* Whether a message with this key waits, other than the one at "own". */
static KeyState
look_up(KeyedInsert *insert, text *key, ItemPointer own)
{
	KeyState	state = KEY_FREE;

	sweep_key_begin_scan(insert->scan, insert->request->queue_id, key);
	while (state != KEY_TAKEN && index_getnext_slot(insert->scan, ForwardScanDirection, insert->slot))
	{
		if (own != NULL && ItemPointerEquals(own, &insert->slot->tts_tid))
			continue;
		if (!TransactionIdIsValid(insert->dirty.xmin) || !is_withdrawn(insert->slot))
			state = judge(insert);
	}
	ExecClearTuple(insert->slot);
	return state;
}

/* Whether a returned message has the key. The index does not show it: the row still has claimed = true. */
static KeyState
look_up_given_back(KeyedInsert *insert, text *key)
{
	SweepMessageRef message;
	KeyState	state = KEY_FREE;
	int			nth = 0;

	while (state != KEY_TAKEN &&
		   sweep_key_find_returned(insert->request->messages, insert->request->queue_id, key, &insert->dirty, &nth, &message, insert->slot))
		state = judge(insert);
	ExecClearTuple(insert->slot);
	return state;
}

/* The state of a key for a new message. */
static KeyState
look_up_all(KeyedInsert *insert, text *key, bool given_back)
{
	KeyState	state = look_up(insert, key, NULL);

	return state == KEY_FREE && given_back ? look_up_given_back(insert, key) : state;
}

/* Chooses the rows of a turn. False when the turn ended at an undecided key. */
static bool
choose_rows(KeyedInsert *insert)
{
	SweepInserter *inserter = &insert->inserter;
	KeyState	state = KEY_FREE;
	bool		given_back = are_given_back(insert->request);

	CHECK_FOR_INTERRUPTS();
	inserter->filled = 0;
	while (insert->position < insert->count && inserter->filled < inserter->room)
	{
		SweepKeyedMessage *message = &insert->messages[insert->position];

		state = message->key == NULL ? KEY_FREE : look_up_all(insert, message->key, given_back);
		if (state == KEY_UNDECIDED)
			break;
		if (state == KEY_TAKEN && !insert->is_own)
			message->left_out_for = insert->message_id;
		if (state == KEY_FREE)
		{
			insert->rows[inserter->filled] = insert->position;
			sweep_inserter_add_row(inserter, message->message_id, message->key, message->number, false);
		}
		insert->position++;
	}
	return state != KEY_UNDECIDED;
}

/* Inserts the rows of a turn. False when another sender was faster with a key: the next turn begins there. */
static bool
insert_rows(KeyedInsert *insert)
{
	const SweepSendRequest *request = insert->request;
	SweepInserter *inserter = &insert->inserter;

	if (inserter->filled == 0)
		return true;
	sweep_inserter_write_rows(inserter);
	for (int i = 0; i < inserter->filled; i++)
	{
		const SweepKeyedMessage *message = &insert->messages[insert->rows[i]];

		if (!sweep_inserter_write_entries(inserter, i, RelationGetRelid(insert->index)) &&
			look_up(insert, message->key, &inserter->slots[i]->tts_tid) != KEY_FREE)
		{
			sweep_inserter_withdraw(inserter, i);
			insert->position = insert->rows[i];
			return false;
		}
		sweep_change_add_sent(request->change, request->lane, message->message_id, request->due_at);
		insert->inserted++;
	}
	return true;
}

int
sweep_key_insert(const SweepSendRequest *request, SweepKeyedMessage *messages, int count)
{
	KeyedInsert insert = {0};

	open_insert(&insert, request, messages, sort_messages(messages, count));
	if (IsolationUsesXactSnapshot())
		insert.begun = RegisterSnapshot(GetLatestSnapshot());
	while (insert.position < insert.count)
	{
		bool		decided;

		begin_turn(&insert);
		decided = choose_rows(&insert);
		decided |= !insert_rows(&insert);
		end_turn(&insert);
		/* INSERT ... ON CONFLICT may decide before its transaction ends. */
		if (!decided && insert.token != 0)
			SpeculativeInsertionWait(insert.xid, insert.token);
		else if (!decided)
			XactLockTableWait(insert.xid, request->messages, &insert.tid, XLTW_InsertIndex);
	}
	close_insert(&insert);
	return insert.inserted;
}

/* Writes the added row, which takes the key unless that is NULL. False when another transaction was faster with the key: the row is withdrawn, and is to be added as *claimed. */
static bool
write_row(KeyedInsert *insert, text *key, bool *claimed)
{
	SweepInserter *inserter = &insert->inserter;

	sweep_inserter_write_rows(inserter);
	if (sweep_inserter_write_entries(inserter, 0, key != NULL ? RelationGetRelid(insert->index) : InvalidOid) ||
		look_up(insert, key, &inserter->slots[0]->tts_tid) == KEY_FREE)
		return true;
	sweep_inserter_withdraw(inserter, 0);
	inserter->filled = 0;
	*claimed = true;
	return false;
}

void
sweep_key_put_back(const SweepSendRequest *request, TupleTableSlot *old, bool freed, int attempts, Jsonb *error)
{
	KeyedInsert insert = {0};
	bool		is_null;
	text	   *key = freed ? DatumGetTextPP(slot_getattr(old, MESSAGE_KEY, &is_null)) : NULL;
	bool		claimed = DatumGetBool(slot_getattr(old, MESSAGE_CLAIMED, &is_null));

	open_insert(&insert, request, NULL, 1);
	if (freed)
	{
		begin_turn(&insert);
		claimed = look_up(&insert, key, NULL) != KEY_FREE;
	}
	do
		sweep_inserter_add_again(&insert.inserter, old, claimed, attempts, error);
	while (!write_row(&insert, key, &claimed));
	if (freed)
		end_turn(&insert);
	close_insert(&insert);
}

/* Locks the row that has the key until a second lookup finds the same row. KEY_TAKEN: it waits, and claims see the lock. */
static KeyState
lock_waiting(KeyedInsert *insert, text *key)
{
	KeyState	state;
	int64		locked = 0;

	while ((state = look_up_all(insert, key, are_given_back(insert->request))) == KEY_TAKEN && !insert->is_own && insert->message_id != locked)
	{
		locked = insert->message_id;
		if (!sweep_row_lock(insert->request->messages, &insert->tid, GetActiveSnapshot(), LockTupleKeyShare, insert->slot))
			return KEY_UNDECIDED;
	}
	return state;
}

bool
sweep_key_insert_at_end(const SweepSendRequest *request, const SweepKeyedMessage *message)
{
	KeyedInsert insert = {0};
	KeyState	state;
	bool		claimed;

	open_insert(&insert, request, NULL, 1);
	begin_turn(&insert);
	state = lock_waiting(&insert, message->key);
	claimed = state != KEY_FREE;
	if (state != KEY_TAKEN)
		do
			sweep_inserter_add_row(&insert.inserter, message->message_id, message->key, message->number, claimed);
		while (!write_row(&insert, message->key, &claimed));
	end_turn(&insert);
	close_insert(&insert);
	return state != KEY_TAKEN;
}

/* SQL: sweep._key_is_given_back(queue_id, key), for dead messages that are redriven */
Datum
sweep_key_is_given_back(PG_FUNCTION_ARGS)
{
	SweepSendRequest request = {.messages = sweep_queue_open(),.queue_id = PG_GETARG_INT32(0),.count = 1};
	KeyedInsert insert = {0};
	bool		given_back = are_given_back(&request);

	if (given_back)
	{
		open_insert(&insert, &request, NULL, 1);
		given_back = look_up_given_back(&insert, PG_GETARG_TEXT_PP(1)) != KEY_FREE;
		close_insert(&insert);
	}
	table_close(request.messages, NoLock);
	PG_RETURN_BOOL(given_back);
}
