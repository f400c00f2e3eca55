/*
 * table.c
 *		The queues that this process has looked up, with the roles that may use them; and the rows of their messages.
 *
 * Sending and claiming are too frequent to look up the queue with SQL each time. A row of sweep.queue is cached until a
 * statement changes that table: its trigger sends a relcache invalidation. A transaction that works with a queue holds a
 * shared lock of the queue until it ends; dropping the queue needs the exclusive lock. Taking the lock processes the
 * invalidation, so that no message is sent to a dropped queue. It is no table lock: while a transaction that drops a queue
 * stays open, others can work with other queues.
 *
 * The table of messages is read and written without SQL (search.c, ack.c, and below): executing a plan costs several
 * times as much, and uses the snapshot of the transaction. Only the rights that are checked here count. Rows are
 * inserted many at a time, with one WAL record per page. Triggers are not fired, and defaults not used: all columns are
 * filled here. Indexes that a user has added are maintained.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "commands/trigger.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "base/compat_table.h"
#include "base/extension.h"
#include "base/lock.h"
#include "base/quota.h"
#include "base/role.h"
#include "base/sql.h"
#include "base/txn.h"
#include "queue/queue.h"
#include "queue/table.h"

static SweepStatement read_queue_sql = {
	.text = "SELECT q.queue_id, sweep._role_oid(q.owner), q.visibility, q.max_attempts, "
		"CASE q.backoff WHEN 'sidekiq' THEN NULL WHEN 'none' THEN interval '0' ELSE q.backoff::interval END, q.keep_done, "
		"CASE q.key_policy WHEN 'while_queued' THEN 0 WHEN 'while_queued_or_running' THEN 1 ELSE 2 END, "
		"ARRAY(SELECT r.oid FROM pg_catalog.pg_roles r WHERE r.rolname = ANY (q.senders)), "
		"ARRAY(SELECT r.oid FROM pg_catalog.pg_roles r WHERE r.rolname = ANY (q.consumers)) FROM sweep.queue q WHERE q.name = $1",
	.types = {TEXTOID},
	.reads_latest = true};
static SweepStatement queue_name_sql = {
	.text = "SELECT q.name FROM sweep.queue q WHERE q.queue_id = $1",
	.types = {INT4OID},
	.reads_latest = true};
static SweepStatement find_queue_sql = {
	.text = "SELECT sweep._find_queue($1, $2, $3)",
	.types = {OIDOID, TEXTOID, TEXTOID},
	.reads_latest = true};

/* Number of attempts to read a queue that changes again and again. */
#define MAX_REFUSALS 10

/* The types of the columns of sweep.queue_message. */
static const Oid message_types[MESSAGE_COLUMNS] = {
	[MESSAGE_ID - 1] = INT8OID,
	[MESSAGE_SENT_AT - 1] = TIMESTAMPTZOID,
	[MESSAGE_DUE_AT - 1] = TIMESTAMPTZOID,
	[MESSAGE_QUEUE_ID - 1] = INT4OID,
	[MESSAGE_LANE - 1] = INT2OID,
	[MESSAGE_ATTEMPTS - 1] = INT2OID,
	[MESSAGE_CLAIMED - 1] = BOOLOID,
	[MESSAGE_KEY - 1] = TEXTOID,
	[MESSAGE_HEADERS - 1] = JSONBOID,
	[MESSAGE_ERROR - 1] = JSONBOID,
	[MESSAGE_PAYLOAD - 1] = JSONBOID,
};

static HTAB *queues = NULL;
static MemoryContext queues_context = NULL;
static bool queues_valid = false;
static Oid	queues_relation = InvalidOid;	/* sweep.queue */
static Oid	messages_relation = InvalidOid; /* sweep.queue_message */
static Oid	messages_sequence = InvalidOid;

PG_FUNCTION_INFO_V1(sweep_queue_note_change);

static void
forget_queues(Datum arg, Oid relation)
{
	if (relation == queues_relation || !OidIsValid(relation))
		queues_valid = false;
}

static void
forget_roles(Datum arg, int cache, uint32 hash)
{
	queues_valid = false;
}

static void
prepare_cache(void)
{
	HASHCTL		control = {0};
	Oid			schema;

	if (queues_context == NULL)
	{
		CacheRegisterRelcacheCallback(forget_queues, (Datum) 0);
		/* The cached queues have OIDs of roles, looked up by name. */
		CacheRegisterSyscacheCallback(AUTHOID, forget_roles, (Datum) 0);
		queues_context = AllocSetContextCreate(TopMemoryContext, "pg_sweep queues", ALLOCSET_SMALL_SIZES);
	}
	if (queues_valid)
		return;
	MemoryContextReset(queues_context);
	control.keysize = NAMEDATALEN;
	control.entrysize = sizeof(SweepQueue);
	control.hcxt = queues_context;
	queues = hash_create("pg_sweep queues", 16, &control, HASH_ELEM | HASH_STRINGS | HASH_CONTEXT);
	schema = get_namespace_oid("sweep", true);
	queues_relation = get_relname_relid("queue", schema);
	messages_relation = get_relname_relid("queue_message", schema);
	messages_sequence = get_relname_relid("queue_message_message_id_seq", schema);
	queues_valid = true;
}

Oid
sweep_queue_relation(void)
{
	prepare_cache();
	if (!OidIsValid(messages_relation))
		sweep_extension_require(false);
	return messages_relation;
}

Oid
sweep_queue_sequence(void)
{
	prepare_cache();
	return messages_sequence;
}

/*
 * Rows are read and written by column number, and a value of another type might be taken for a pointer. An added column is NULL in
 * each message that is sent, and must allow that.
 */
static void
check_columns(TupleDesc columns)
{
	for (int i = 0; i < Max(columns->natts, MESSAGE_COLUMNS); i++)
	{
		const FormData_pg_attribute *column = i < columns->natts ? TupleDescAttr(columns, i) : NULL;

		if (column != NULL &&
			(i < MESSAGE_COLUMNS ? column->atttypid == message_types[i] : column->attisdropped || (!column->attnotnull && column->attgenerated == '\0')))
			continue;
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table sweep.queue_message was altered"),
				 errdetail("Its column %d is not what the extension writes.", i + 1),
				 errhint("Only columns without NOT NULL that are not generated can be added to it.")));
	}
}

Relation
sweep_queue_open(void)
{
	Relation	messages = try_table_open(sweep_queue_relation(), RowExclusiveLock);

	if (messages == NULL)
		sweep_extension_require(false);
	else
		check_columns(RelationGetDescr(messages));
	return messages;
}

/* Tries again while the name passes to another index, as at the end of REINDEX CONCURRENTLY: the old index is not valid any more. */
Relation
sweep_queue_open_index(Relation messages, const char *name, LOCKMODE mode)
{
	Oid			last = InvalidOid;
	Oid			oid;

	while (OidIsValid(oid = get_relname_relid(name, RelationGetNamespace(messages))) && oid != last)
	{
		Relation	index = index_open(oid, mode);

		if (index->rd_index->indisvalid && index->rd_index->indrelid == RelationGetRelid(messages))
			return index;
		index_close(index, mode);
		last = oid;
	}
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg(OidIsValid(oid) ? "index sweep.%s is not valid" : "index sweep.%s is missing", name),
			 errhint("Create it anew, as the script of the extension does.")));
}

static bool
may(const SweepQueue *queue, SweepQueueRight right)
{
	Oid			user = GetUserId();
	int			count = right == RIGHT_SEND ? queue->sender_count : queue->consumer_count;
	const Oid  *roles = right == RIGHT_SEND ? queue->senders : queue->consumers;

	if (user == queue->owner || sweep_role_acts_for(user, queue->owner))
		return true;
	for (int i = 0; i < count; i++)
		if (sweep_role_acts_for(user, roles[i]))
			return true;
	return sweep_role_is(user, "sweep_admin");
}

/* Reads the queue; NULL when there is none of that name. */
static SweepQueue *
load_queue(text *name)
{
	Datum		value = PointerGetDatum(name);
	SweepQueue	read = {0};
	SweepQueue *queue = NULL;
	char	   *key = text_to_cstring(name);

	uint64		count;

	sweep_sql_begin_call();
	/* Again if the statement has processed invalidations after it had read the row. */
	do
	{
		prepare_cache();
		count = sweep_sql_execute(&read_queue_sql, &value, NULL);
	} while (!queues_valid);
	if (count > 0)
	{
		read.queue_id = sweep_sql_int32(1);
		read.owner = sweep_sql_oid(2);
		read.visibility_us = sweep_sql_interval_us(3, 0);
		read.max_attempts = sweep_sql_int32(4);
		read.backoff_us = sweep_sql_interval_us(5, SWEEP_BACKOFF_SIDEKIQ);
		read.keep_done_us = sweep_sql_interval_us(6, 0);
		read.key_policy = sweep_sql_int32(7);
		read.senders = sweep_sql_oids(8, queues_context, &read.sender_count);
		read.consumers = sweep_sql_oids(9, queues_context, &read.consumer_count);
		queue = hash_search(queues, key, HASH_ENTER, NULL);
		memcpy((char *) queue + NAMEDATALEN, (char *) &read + NAMEDATALEN, sizeof(read) - NAMEDATALEN);
	}
	sweep_sql_end_call();
	return queue;
}

/*
 * Calls the SQL function that also checks the right for all other functions, and raises the error. If it finds nothing
 * wrong, the queue, the grant or the role is new, and the queue is read again.
 */
static void
ask_again(text *name, SweepQueueRight right, int refusals)
{
	Datum		values[] = {
		ObjectIdGetDatum(GetUserId()), PointerGetDatum(name),
		CStringGetTextDatum(right == RIGHT_SEND ? "send" : "consume")
	};

	sweep_sql_begin_call();
	sweep_txn_hide_context(sweep_sql_execute_work, &(SweepExecution) {&find_queue_sql, values, NULL});
	sweep_sql_end_call();
	if (refusals >= MAX_REFUSALS)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("queue \"%s\" is being changed", text_to_cstring(name)),
				 errhint("Try it again.")));
	queues_valid = false;
}

/* Keeps the queue from being dropped until the transaction ends. False when it has changed since it was read. */
static bool
keep_queue(int32 queue_id)
{
	if (sweep_lock_acquire_queue(queue_id, ShareLock, true) == LOCKACQUIRE_OK)
		AcceptInvalidationMessages();
	return queues_valid;
}

const SweepQueue *
sweep_queue_find(text *name, SweepQueueRight right)
{
	SweepQueue *queue;
	int			refusals = 0;

	/* The result is cached for the commit, which cannot look it up. */
	(void) sweep_quota_is_unlimited(GetUserId());
	do
	{
		queue = NULL;
		prepare_cache();
		if (VARSIZE_ANY_EXHDR(name) < NAMEDATALEN)
		{
			char		key[NAMEDATALEN] = {0};

			memcpy(key, VARDATA_ANY(name), VARSIZE_ANY_EXHDR(name));
			queue = hash_search(queues, key, HASH_FIND, NULL);
			if (queue == NULL)
				queue = load_queue(name);
		}
		if (queue == NULL || !may(queue, right))
		{
			ask_again(name, right, ++refusals);
			queue = NULL;
		}
	} while (queue == NULL || !keep_queue(queue->queue_id));
	return queue;
}

int32
sweep_queue_lock_to_consume(const char *name)
{
	Relation	messages = sweep_queue_open();
	int32		queue_id = sweep_queue_find(cstring_to_text(name), RIGHT_CONSUME)->queue_id;

	table_close(messages, NoLock);
	return queue_id;
}

/* Walks over the queues that the process knows: there are few. */
const SweepQueue *
sweep_queue_find_by_id(int32 queue_id, SweepQueueRight right)
{
	HASH_SEQ_STATUS status;
	SweepQueue *queue;
	Datum		id = Int32GetDatum(queue_id);
	char	   *name = NULL;
	MemoryContext context = CurrentMemoryContext;

	prepare_cache();
	hash_seq_init(&status, queues);
	while ((queue = hash_seq_search(&status)) != NULL && queue->queue_id != queue_id)
		;
	if (queue != NULL)
		hash_seq_term(&status);
	if (queue != NULL && may(queue, right) && keep_queue(queue_id))
		return queue;
	sweep_sql_begin_call();
	if (sweep_sql_execute(&queue_name_sql, &id, NULL) > 0)
		name = sweep_sql_text(1, context);
	sweep_sql_end_call();
	return name != NULL ? sweep_queue_find(cstring_to_text(name), right) : NULL;
}

/* SQL: a trigger after every statement that changes sweep.queue, and after each row that logical replication applies to it */
Datum
sweep_queue_note_change(PG_FUNCTION_ARGS)
{
	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("sweep._note_queue_change must be called as a trigger")));
	CacheInvalidateRelcacheByRelid(RelationGetRelid(((TriggerData *) fcinfo->context)->tg_relation));
	PG_RETURN_POINTER(NULL);
}

bool
sweep_queue_fetch(Relation messages, BlockNumber blocks, const SweepQueue *queue, Snapshot snapshot, SweepMessageRef *message,
				  TupleTableSlot *slot)
{
	bool		is_null;
	ScanKeyData keys[3];
	SysScanDesc scan;
	Relation	index;
	HeapTuple	tuple;
	bool		found = false;

	/* The place may be beyond the end of a table that was truncated. */
	if (ItemPointerGetBlockNumber(&message->tid) < blocks &&
		table_tuple_fetch_row_version(messages, &message->tid, snapshot, slot) &&
		DatumGetInt64(slot_getattr(slot, MESSAGE_ID, &is_null)) == message->message_id &&
		DatumGetInt32(slot_getattr(slot, MESSAGE_QUEUE_ID, &is_null)) == queue->queue_id &&
		DatumGetInt16(slot_getattr(slot, MESSAGE_LANE, &is_null)) == message->lane)
		return true;
	/* The row was moved, as by VACUUM FULL or by the update that freed its key, or it is gone. */
	ScanKeyInit(&keys[0], MESSAGE_QUEUE_ID, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(queue->queue_id));
	ScanKeyInit(&keys[1], MESSAGE_LANE, BTEqualStrategyNumber, F_INT2EQ, Int16GetDatum(message->lane));
	ScanKeyInit(&keys[2], MESSAGE_ID, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(message->message_id));
	index = index_open(sweep_primary_key_index(messages), AccessShareLock);
	scan = systable_beginscan_ordered(messages, index, snapshot, 3, keys);
	tuple = systable_getnext_ordered(scan, ForwardScanDirection);
	if (tuple != NULL)
	{
		ItemPointerCopy(&tuple->t_self, &message->tid);
		found = table_tuple_fetch_row_version(messages, &message->tid, snapshot, slot);
	}
	systable_endscan_ordered(scan);
	index_close(index, AccessShareLock);
	return found;
}

void
sweep_inserter_open(SweepInserter *inserter, const SweepSendRequest *request)
{
	inserter->request = request;
	inserter->sent_at = GetCurrentTransactionStartTimestamp();
	inserter->room = Min(request->count, SWEEP_INSERT_ROWS);
	inserter->filled = 0;
	inserter->indexes = (SweepIndexes) {0};
	inserter->slots = palloc(inserter->room * sizeof(TupleTableSlot *));
	for (int i = 0; i < inserter->room; i++)
		inserter->slots[i] = table_slot_create(request->messages, NULL);
}

void
sweep_inserter_close(SweepInserter *inserter)
{
	for (int i = 0; i < inserter->room; i++)
		ExecDropSingleTupleTableSlot(inserter->slots[i]);
	if (inserter->indexes.estate != NULL)
		sweep_indexes_close(&inserter->indexes);
	pfree(inserter->slots);
}

void
sweep_inserter_add_row(SweepInserter *inserter, int64 message_id, text *key, int number, bool claimed)
{
	const SweepSendRequest *request = inserter->request;
	TupleTableSlot *slot = inserter->slots[inserter->filled++];

	ExecClearTuple(slot);
	memset(slot->tts_isnull, false, MESSAGE_COLUMNS * sizeof(bool));
	/* columns that a user has added */
	memset(slot->tts_isnull + MESSAGE_COLUMNS, true, (slot->tts_tupleDescriptor->natts - MESSAGE_COLUMNS) * sizeof(bool));
	slot->tts_values[MESSAGE_ID - 1] = Int64GetDatum(message_id);
	slot->tts_values[MESSAGE_SENT_AT - 1] = TimestampTzGetDatum(inserter->sent_at);
	/* Due times a microsecond apart, since a search goes on at the due time where the last one stopped. */
	slot->tts_values[MESSAGE_DUE_AT - 1] = TimestampTzGetDatum(request->due_at + number);
	slot->tts_isnull[MESSAGE_DUE_AT - 1] = !SWEEP_LANE_IS_DELAYED(request->lane);
	slot->tts_values[MESSAGE_QUEUE_ID - 1] = Int32GetDatum(request->queue_id);
	slot->tts_values[MESSAGE_LANE - 1] = Int16GetDatum(request->lane);
	slot->tts_values[MESSAGE_ATTEMPTS - 1] = Int16GetDatum(0);
	slot->tts_values[MESSAGE_CLAIMED - 1] = BoolGetDatum(claimed);
	slot->tts_values[MESSAGE_KEY - 1] = PointerGetDatum(key);
	slot->tts_isnull[MESSAGE_KEY - 1] = key == NULL;
	slot->tts_values[MESSAGE_HEADERS - 1] = request->headers;
	slot->tts_isnull[MESSAGE_HEADERS - 1] = !request->has_headers;
	slot->tts_isnull[MESSAGE_ERROR - 1] = true;
	slot->tts_values[MESSAGE_PAYLOAD - 1] = request->payloads[number];
	ExecStoreVirtualTuple(slot);
}

void
sweep_inserter_add_again(SweepInserter *inserter, TupleTableSlot *old, bool claimed, int attempts, Jsonb *error)
{
	TupleTableSlot *slot = inserter->slots[inserter->filled++];

	slot_getallattrs(old);
	ExecClearTuple(slot);
	memcpy(slot->tts_values, old->tts_values, slot->tts_tupleDescriptor->natts * sizeof(Datum));
	memcpy(slot->tts_isnull, old->tts_isnull, slot->tts_tupleDescriptor->natts * sizeof(bool));
	slot->tts_values[MESSAGE_LANE - 1] = Int16GetDatum(inserter->request->lane);
	slot->tts_values[MESSAGE_DUE_AT - 1] = TimestampTzGetDatum(inserter->request->due_at);
	slot->tts_isnull[MESSAGE_DUE_AT - 1] = false;
	slot->tts_values[MESSAGE_CLAIMED - 1] = BoolGetDatum(claimed);
	slot->tts_values[MESSAGE_ATTEMPTS - 1] = Int16GetDatum((int16) Min(attempts, PG_INT16_MAX));
	slot->tts_values[MESSAGE_ERROR - 1] = PointerGetDatum(error);
	slot->tts_isnull[MESSAGE_ERROR - 1] = error == NULL;
	ExecStoreVirtualTuple(slot);
}

void
sweep_inserter_write_rows(SweepInserter *inserter)
{
	table_multi_insert(inserter->request->messages, inserter->slots, inserter->filled, GetCurrentCommandId(true), 0, NULL);
}

bool
sweep_inserter_write_entries(SweepInserter *inserter, int row, Oid index)
{
	/* Opened only when there is something to insert: some senders send mostly keys that wait already. */
	if (inserter->indexes.estate == NULL)
		sweep_indexes_open(&inserter->indexes, inserter->request->messages);
	return sweep_indexes_insert(&inserter->indexes, inserter->slots[row], index);
}

void
sweep_inserter_withdraw(SweepInserter *inserter, int row)
{
	/* A command cannot delete rows that it has inserted itself. */
	CommandCounterIncrement();
	for (int i = row; i < inserter->filled; i++)
		simple_table_tuple_delete(inserter->request->messages, &inserter->slots[i]->tts_tid, SnapshotAny);
}
