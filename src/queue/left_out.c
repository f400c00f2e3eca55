/*
 * left_out.c
 *		Messages that were left out because another one with their key waits, until the end of their transaction.
 *
 * A waiting message stands for all messages that were left out for it: its handler sees the changes of their transactions,
 * unless it is claimed before they commit. A transaction that has left out messages therefore looks up their keys again
 * when it is about to commit or to be prepared. If no message with the key waits any more, the message is inserted then;
 * else the waiting one is not delivered before the transaction has ended (key.c).
 *
 * A transaction that has written nothing has no changes, and skips this. Messages that were left out before the transaction purged
 * or dropped their queue are not inserted. With key_policy while_queued_or_running a message that is being handled stands for the
 * others, too.
 *
 * If several messages were left out for the same one, only the first is remembered.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "queue/left_out.h"
#include "queue/slot.h"
#include "queue/transaction.h"

/* Key of a hash table: no padding between the fields. */
typedef struct LeftOutId
{
	int64		left_out_for;	/* the message that waits */
	Oid			relation;
	int32		queue_id;
} LeftOutId;

typedef struct LeftOut
{
	LeftOutId	id;
	struct LeftOut *next;		/* of the same or an outer level */
	int			level;			/* of subtransactions */
	bool		was_emptied;	/* the transaction had purged the queue before */
	int64		message_id;		/* drawn when it was sent */
	SweepSendRequest request;	/* of this message alone; without the relation and the change */
	Datum		payload;
	text	   *key;
} LeftOut;

/* In TopTransactionContext; forgotten at its end. */
static HTAB *left_out = NULL;
static LeftOut *last_left_out = NULL;
static MemoryContext left_out_context = NULL;

/* Order by queue and key, in which senders take the keys. */
static int
compare_left_out(const void *left, const void *right)
{
	const LeftOut *a = *(LeftOut *const *) left;
	const LeftOut *b = *(LeftOut *const *) right;
	int			result = a->id.relation != b->id.relation ? (a->id.relation < b->id.relation ? -1 : 1) :
		a->id.queue_id != b->id.queue_id ? (a->id.queue_id < b->id.queue_id ? -1 : 1) : sweep_key_compare(a->key, b->key);

	return result != 0 ? result : a->message_id < b->message_id ? -1 : 1;
}

static void
insert_one(const LeftOut *entry)
{
	SweepSendRequest request = entry->request;
	SweepKeyedMessage message = {.message_id = entry->message_id,.key = entry->key};
	Datum		payload = entry->payload;

	request.change = sweep_transaction_change(entry->id.relation, entry->id.queue_id);
	if (request.change->dropped || (!entry->was_emptied && sweep_transaction_has_emptied(entry->id.relation, entry->id.queue_id)))
		return;
	request.messages = sweep_queue_open();
	request.payloads = &payload;
	if (sweep_key_insert_at_end(&request, &message))
		sweep_change_add_sent(request.change, request.lane, message.message_id, request.due_at);
	table_close(request.messages, NoLock);
}

static void
look_again(void)
{
	int			count = 0;
	LeftOut   **entries = MemoryContextAllocHuge(left_out_context, (hash_get_num_entries(left_out) + 1) * sizeof(LeftOut *));
	MemoryContext context = AllocSetContextCreate(left_out_context, "pg_sweep message left out", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);

	for (LeftOut *entry = last_left_out; entry != NULL; entry = entry->next)
		entries[count++] = entry;
	qsort(entries, count, sizeof(LeftOut *), compare_left_out);
	PushActiveSnapshot(GetTransactionSnapshot());
	for (int i = 0; i < count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		/* The transaction may have dropped the extension. */
		if (SearchSysCacheExists1(RELOID, ObjectIdGetDatum(entries[i]->id.relation)))
			insert_one(entries[i]);
		/* There may be many messages, and after a COMMIT in a procedure the caller's context lives on. */
		MemoryContextReset(context);
	}
	PopActiveSnapshot();
	MemoryContextSwitchTo(old);
}

static void
at_transaction_event(XactEvent event, void *arg)
{
	if (left_out == NULL)
		return;
	if (event == XACT_EVENT_PRE_COMMIT || event == XACT_EVENT_PRE_PREPARE)
	{
		if (TransactionIdIsValid(GetTopTransactionIdIfAny()))
			look_again();
	}
	else if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
	{
		left_out = NULL;
		last_left_out = NULL;
	}
}

static void
at_subtransaction_event(SubXactEvent event, SubTransactionId id, SubTransactionId parent, void *arg)
{
	int			level = GetCurrentTransactionNestLevel();

	if (event == SUBXACT_EVENT_COMMIT_SUB)
		for (LeftOut *entry = last_left_out; entry != NULL && entry->level >= level; entry = entry->next)
			entry->level = level - 1;
	while (event == SUBXACT_EVENT_ABORT_SUB && last_left_out != NULL && last_left_out->level >= level)
	{
		LeftOut    *entry = last_left_out;

		last_left_out = entry->next;
		pfree(DatumGetPointer(entry->payload));
		if (entry->request.has_headers)
			pfree(DatumGetPointer(entry->request.headers));
		pfree(entry->key);
		(void) hash_search(left_out, &entry->id, HASH_REMOVE, NULL);
	}
}

static void
begin(void)
{
	static bool registered = false;
	HASHCTL		control = {.keysize = sizeof(LeftOutId),.entrysize = sizeof(LeftOut)};

	/* Registered after the callback of transaction.c, hence called before it: the inserted messages are among its changes at PREPARE. */
	if (!registered)
	{
		RegisterXactCallback(at_transaction_event, NULL);
		RegisterSubXactCallback(at_subtransaction_event, NULL);
	}
	registered = true;
	last_left_out = NULL;
	left_out_context = AllocSetContextCreate(TopTransactionContext, "pg_sweep messages left out", ALLOCSET_DEFAULT_SIZES);
	control.hcxt = left_out_context;
	left_out = hash_create("pg_sweep messages left out", 16, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

void
sweep_left_out_note(const SweepSendRequest *request, const SweepKeyedMessage *message)
{
	LeftOutId	id = {.left_out_for = message->left_out_for,.relation = RelationGetRelid(request->messages),.queue_id = request->queue_id};
	LeftOut		copy = {.id = id,.level = GetCurrentTransactionNestLevel(),.message_id = message->message_id,.request = *request};
	LeftOut    *entry;
	MemoryContext old;

	if (message->left_out_for == 0 || request->key_policy == KEY_WHILE_QUEUED_OR_RUNNING)
		return;
	if (left_out == NULL)
		begin();
	if (hash_search(left_out, &id, HASH_FIND, NULL) != NULL)
		return;
	/* Detoasted, since the rows with the values may be gone at the commit. That may raise an error, so the entry is made afterwards. */
	old = MemoryContextSwitchTo(left_out_context);
	copy.payload = PointerGetDatum(PG_DETOAST_DATUM_COPY(request->payloads[message->number]));
	copy.request.headers = request->has_headers ? PointerGetDatum(PG_DETOAST_DATUM_COPY(request->headers)) : (Datum) 0;
	copy.key = DatumGetTextPCopy(PointerGetDatum(message->key));
	MemoryContextSwitchTo(old);
	copy.request.count = 1;
	copy.was_emptied = sweep_transaction_has_emptied(id.relation, id.queue_id);
	copy.next = last_left_out;
	entry = hash_search(left_out, &id, HASH_ENTER, NULL);
	*entry = copy;
	last_left_out = entry;
}
