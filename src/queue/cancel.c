/*
 * cancel.c
 *		sweep.cancel_message: removes a message that waits.
 *
 * Claims write nothing to the table, so a statement that deletes the row of a message does not see that it is claimed. A cancellation therefore
 * first takes the message in shared memory, as a claim does. It fails if the message is claimed by then, and afterwards no claim gets the
 * message. Then it deletes the row, as sweep.ack does, in the transaction of the caller. When that commits, the message is gone and its key is
 * free; after a rollback the message waits as before: it is searched for again, and not delivered before it is due.
 *
 * The row is found with a snapshot of its own, by its id in each lane or by the index of waiting keys. If a claim has
 * freed the key of a message that was then returned to the queue, the message is found by its key in shared memory, as
 * senders do (key.c).
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "executor/tuptable.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "base/compat_table.h"
#include "base/extension.h"
#include "base/quota.h"
#include "queue/ack.h"
#include "queue/in_flight.h"
#include "queue/key.h"
#include "queue/lease.h"
#include "queue/slot_pool.h"
#include "queue/table.h"
#include "queue/transaction.h"

typedef struct Cancellation
{
	SweepEnding ending;			/* table and queue */
	Snapshot	snapshot;
	TupleTableSlot *slot;		/* the row */
	SweepMessageRef message;
	SweepHeld	lacks;			/* the resource that is refused */
	SweepRefusal refusal;		/* the reason */
} Cancellation;

PG_FUNCTION_INFO_V1(sweep_queue_cancel);

static void
open_cancellation(Cancellation *cancellation, FunctionCallInfo fcinfo)
{
	SweepEnding *ending = &cancellation->ending;

	sweep_require_usable("sweep.cancel_message()");
	PreventCommandIfReadOnly("sweep.cancel_message()");
	PreventCommandIfParallelMode("sweep.cancel_message()");
	sweep_queue_require_memory("sweep.cancel_message()");
	if (PG_ARGISNULL(0))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("name of the queue must not be null")));
	if (PG_ARGISNULL(1) == PG_ARGISNULL(2))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("exactly one of message_id and key must be given"),
				 errhint("sweep.messages() shows the ids of the messages of a queue; a key is passed by name, key => '...'.")));
	ending->messages = sweep_queue_open();
	ending->queue = *sweep_queue_find(PG_GETARG_TEXT_PP(0), RIGHT_CONSUME);
	sweep_queue_settle_prepared();
	ending->blocks = RelationGetNumberOfBlocks(ending->messages);
	cancellation->snapshot = RegisterSnapshot(GetLatestSnapshot());
	cancellation->slot = table_slot_create(ending->messages, NULL);
}

static bool
find_by_id(Cancellation *cancellation, int64 message_id)
{
	cancellation->message.message_id = message_id;
	ItemPointerSet(&cancellation->message.tid, 0, FirstOffsetNumber);
	for (int lane = 0; lane < 2 * SWEEP_LANES; lane++)
	{
		cancellation->message.lane = (int16) (SWEEP_PRIORITY_MIN + lane % SWEEP_LANES + (lane < SWEEP_LANES ? 0 : SWEEP_LANE_DELAYED));
		/* 0 blocks: the row is read by the index, since its place is not known. */
		if (sweep_queue_fetch(cancellation->ending.messages, 0, &cancellation->ending.queue, cancellation->snapshot,
							  &cancellation->message, cancellation->slot))
			return true;
	}
	return false;
}

/* Finds a message that waits with this key, in the index or among those that were returned to the queue. */
static bool
find_by_key(Cancellation *cancellation, text *key)
{
	Relation	messages = cancellation->ending.messages;
	int32		queue_id = cancellation->ending.queue.queue_id;
	Relation	index = sweep_queue_open_index(messages, "queue_message_waiting_key", AccessShareLock);
	IndexScanDesc scan = sweep_index_beginscan(messages, index, cancellation->snapshot, 2);
	int			nth = 0;
	bool		found;

	sweep_key_begin_scan(scan, queue_id, key);
	found = index_getnext_slot(scan, ForwardScanDirection, cancellation->slot);
	index_endscan(scan);
	index_close(index, AccessShareLock);
	return found || sweep_key_find_returned(messages, queue_id, key, cancellation->snapshot, &nth, &cancellation->message, cancellation->slot);
}

/* Fills the reference of the message from its row, as a search does (add_found in search.c). */
static void
describe_message(Cancellation *cancellation)
{
	SweepMessageRef *message = &cancellation->message;
	TupleTableSlot *slot = cancellation->slot;
	bool		is_null;
	Datum		key;

	message->tid = slot->tts_tid;
	message->message_id = DatumGetInt64(slot_getattr(slot, MESSAGE_ID, &is_null));
	message->lane = DatumGetInt16(slot_getattr(slot, MESSAGE_LANE, &is_null));
	key = slot_getattr(slot, MESSAGE_KEY, &is_null);
	message->key_hash = is_null || cancellation->ending.queue.key_policy == KEY_WHILE_QUEUED_OR_RUNNING ? 0 : sweep_key_hash(DatumGetTextPP(key));
	message->attempts = DatumGetInt16(slot_getattr(slot, MESSAGE_ATTEMPTS, &is_null));
	message->due_at = SWEEP_LANE_IS_DELAYED(message->lane) ? DatumGetTimestampTz(slot_getattr(slot, MESSAGE_DUE_AT, &is_null)) : 0;
}

/* Takes the message and returns its entry; -1 when the message is claimed, or the quota is used up. With the lock. */
static int
take_locked(Cancellation *cancellation, const uint8 *random)
{
	Oid			relation = RelationGetRelid(cancellation->ending.messages);
	SweepQueueSlot *slot = sweep_queue_find_settled(relation, cancellation->ending.queue.queue_id);
	SweepUse	use;
	int			lease;
	int			entry;

	cancellation->refusal = REFUSED_NOT;
	cancellation->lacks = HELD_SLOTS;
	if (slot == NULL)
		slot = sweep_queue_allot_slot(relation, cancellation->ending.queue.queue_id, GetUserId(), &cancellation->refusal);
	if (slot == NULL)
		return -1;
	entry = sweep_in_flight_find(slot, cancellation->message.lane, cancellation->message.message_id);
	if (entry >= 0 && !sweep_in_flight_waits(entry))
		return -1;
	cancellation->lacks = HELD_MESSAGES;
	lease = sweep_lease_new(slot, random, GetUserId());
	if (lease < 0)
	{
		cancellation->refusal = REFUSED_ALL;
		return -1;
	}
	use = sweep_holder_use(sweep_queue_lease(lease)->holder, slot->database_holder, HELD_MESSAGES);
	cancellation->refusal = sweep_quota_check(&use, sweep_max_in_flight, sweep_quota_is_known_unlimited(GetUserId()));
	if (cancellation->refusal == REFUSED_NOT)
	{
		entry = sweep_in_flight_begin_cancel(entry, lease, &cancellation->message);
		if (entry < 0)
			cancellation->refusal = REFUSED_ALL;
	}
	/* No client knows this lease; it ends with its message. */
	sweep_lease_set_expiry(lease, SWEEP_LEASE_RAN_OUT);
	sweep_lease_free(lease);
	return cancellation->refusal == REFUSED_NOT ? entry : -1;
}

static bool
take(Cancellation *cancellation)
{
	uint8		random[UUID_LEN];
	int			entry;

	sweep_lease_draw(random);
	sweep_transaction_reserve(1);
	sweep_queue_lock(LW_EXCLUSIVE);
	entry = take_locked(cancellation, random);
	if (entry >= 0)
		sweep_transaction_note(PENDING_ENDING, entry, NULL);
	sweep_queue_unlock();
	return entry >= 0;
}

/* SQL: sweep.cancel_message(queue text, message_id bigint, key text) RETURNS boolean */
Datum
sweep_queue_cancel(PG_FUNCTION_ARGS)
{
	Cancellation cancellation = {0};
	bool		found;
	bool		cancelled = false;

	open_cancellation(&cancellation, fcinfo);
	if (!PG_ARGISNULL(1))
		found = find_by_id(&cancellation, PG_GETARG_INT64(1));
	else
		found = find_by_key(&cancellation, PG_GETARG_TEXT_PP(2));
	if (found)
	{
		/* The result is cached, for use under the lock. */
		(void) sweep_quota_is_unlimited(GetUserId());
		describe_message(&cancellation);
		cancelled = take(&cancellation);
		if (cancellation.refusal != REFUSED_NOT)
		{
			sweep_queue_make_room(cancellation.lacks, cancellation.refusal);
			cancelled = take(&cancellation);
			if (cancellation.refusal != REFUSED_NOT)
				sweep_holder_refuse(cancellation.lacks, cancellation.refusal, cancellation.ending.queue.name);
		}
	}
	if (cancelled)
	{
		SweepQueueChange *change = sweep_transaction_change(RelationGetRelid(cancellation.ending.messages), cancellation.ending.queue.queue_id);

		/* Another transaction may have removed the row meanwhile: a purge, or one that was ending the message. */
		cancelled = sweep_ending_remove_row(&cancellation.ending, &cancellation.message, cancellation.snapshot, cancellation.slot);
		if (cancelled)
			change->rows[SWEEP_LANE_IS_DELAYED(cancellation.message.lane)]--;
	}
	ExecDropSingleTupleTableSlot(cancellation.slot);
	UnregisterSnapshot(cancellation.snapshot);
	table_close(cancellation.ending.messages, NoLock);
	PG_RETURN_BOOL(cancelled);
}
