/*
 * claim.c
 *		sweep.claim: takes messages under a lease.
 *
 * Under the lock of the shared memory a claim takes returned messages, then prefetched ones. Then, without the lock, it reads the rows
 * with a snapshot of its own. If the row of a message is gone by then (acknowledged after its lease had run out, or purged), the entry is
 * removed, and another message taken. The claim writes nothing, unless it must free the key of a message.
 *
 * When the lease of a message runs out at its last attempt, the next claim that takes it moves it to the dead-letter table.
 *
 * A claim never waits for another transaction. If it has to write a row that another transaction has written or locked (one whose lease
 * ran out, and which is still open), it puts the message off for a while. It also puts it off when a sender that is about to commit has
 * locked the row, because it has left out a message with that key (key.c). The key is freed nevertheless, so that no more senders lock
 * the row.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "executor/tuptable.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "base/clock.h"
#include "base/compat_table.h"
#include "base/extension.h"
#include "base/indexes.h"
#include "base/quota.h"
#include "queue/fail.h"
#include "queue/in_flight.h"
#include "queue/search.h"
#include "queue/slot_pool.h"
#include "queue/table.h"
#include "queue/transaction.h"

/* Maximal number of messages taken under the lock at a time. */
#define TAKE_AT_ONCE 100

/* Interval between log messages about too few slots, in us. */
#define LOG_SHORTAGE_US (60 * USECS_PER_SEC)

/* Time for which a claim puts off a message whose row another transaction has written or locked, or a sender has locked, in us. */
#define PUT_OFF_US USECS_PER_SEC
#define PUT_OFF_FOR_SENDER_US (100 * 1000)

/* A message that was taken and is not yet delivered. */
typedef struct Taken
{
	int			number;			/* of its entry */
	int			attempts;		/* this delivery included */
	SweepMessageRef message;
	bool		moved;			/* the row has a new place, because its key was freed */
	int64		put_off_us;		/* time to put the message off, because another transaction has written or locked the row; 0 = not put off */
} Taken;

typedef struct Claim
{
	Relation	messages;
	SweepQueue	queue;			/* a copy, because statements may free the original */
	int			wanted;
	int			count;			/* delivered */
	int64		visibility_us;
	int			lease;			/* -1 until something was taken */
	pg_uuid_t	id;
	bool		prefetched_low; /* search ahead for the next claims: few messages are prefetched, or some have fallen due */
	bool		log_shortage;
	bool		unlimited;		/* see quota.h */
	int			room;			/* number of messages that the role may still take; valid under the lock */
	SweepHeld	lacks;			/* the resource that is refused */
	SweepRefusal refusal;		/* the reason */
	ReturnSetInfo *result;
	int			taken_count;
	Taken		taken[TAKE_AT_ONCE];
	SweepIndexes indexes;		/* open while new_row is not NULL */
	TupleTableSlot *new_row;	/* the new version of a row whose key is freed; NULL until the first one */
} Claim;

/* The columns of sweep.message. */
static const Oid row_types[] = {INT8OID, TEXTOID, JSONBOID, TEXTOID, INT4OID, JSONBOID, TIMESTAMPTZOID, UUIDOID};

PG_FUNCTION_INFO_V1(sweep_queue_claim);

static void
open_claim(Claim *claim, FunctionCallInfo fcinfo)
{
	sweep_require_usable("sweep.claim()");
	PreventCommandIfReadOnly("sweep.claim()");
	/* A parallel worker gets no callback at the end of the transaction. */
	PreventCommandIfParallelMode("sweep.claim()");
	sweep_queue_require_memory("sweep.claim()");
	if (PG_ARGISNULL(0))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("name of the queue must not be null")));
	claim->messages = sweep_queue_open();
	claim->queue = *sweep_queue_find(PG_GETARG_TEXT_PP(0), RIGHT_CONSUME);
	if (PG_ARGISNULL(1) || PG_GETARG_INT32(1) <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 PG_ARGISNULL(1) ? errmsg("cannot claim <NULL> messages") : errmsg("cannot claim %d messages", PG_GETARG_INT32(1)),
				 errhint("max must be greater than zero.")));
	claim->wanted = PG_GETARG_INT32(1);
	claim->unlimited = sweep_quota_is_unlimited(GetUserId());
	claim->visibility_us = PG_ARGISNULL(2) ? claim->queue.visibility_us : sweep_interval_us(PG_GETARG_INTERVAL_P(2));
	if (claim->visibility_us <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid visibility \"%s\"", DatumGetCString(DirectFunctionCall1(interval_out, PG_GETARG_DATUM(2)))),
				 errhint("The visibility is the time this claim has for its messages and must be greater than zero.")));
	InitMaterializedSRF(fcinfo, 0);
	claim->result = (ReturnSetInfo *) fcinfo->resultinfo;
	sweep_row_check(claim->result->setDesc, row_types, lengthof(row_types));
	sweep_queue_settle_prepared();
}

/* Returns the slot of the queue, if need be a new one; NULL when that is refused. */
static SweepQueueSlot *
get_slot(Claim *claim)
{
	SweepQueueShared *shared = sweep_queue_memory.shared;
	Oid			relation = RelationGetRelid(claim->messages);
	SweepQueueSlot *slot = sweep_queue_find_settled(relation, claim->queue.queue_id);

	claim->lacks = HELD_SLOTS;
	claim->refusal = REFUSED_NOT;
	if (slot == NULL)
		slot = sweep_queue_allot_slot(relation, claim->queue.queue_id, GetUserId(), &claim->refusal);
	else if (slot->holder < 0)
		claim->refusal = sweep_queue_adopt_slot(slot);
	if (claim->refusal != REFUSED_NOT)
		return NULL;
	claim->lacks = HELD_MESSAGES;
	slot->used_us = sweep_monotonic_us();
	if (shared->short_of_slots && slot->used_us > shared->shortage_logged_us + LOG_SHORTAGE_US)
	{
		claim->log_shortage = true;
		shared->short_of_slots = false;
		shared->shortage_logged_us = slot->used_us;
	}
	return slot;
}

static bool
begin_lease(Claim *claim, SweepQueueSlot *slot, const uint8 *random)
{
	claim->lease = sweep_lease_new(slot, random, GetUserId());
	if (claim->lease < 0)
	{
		claim->refusal = REFUSED_ALL;
		return false;
	}
	claim->id = sweep_queue_lease(claim->lease)->id;
	sweep_transaction_note(PENDING_CLAIM, -1, &claim->id);
	return true;
}

/* Whether the role may take one more message. The quota is checked again only when "room" is used up. */
static bool
may_take(Claim *claim, const SweepQueueSlot *slot)
{
	SweepUse	use;

	if (claim->room <= 0)
	{
		use = sweep_holder_use(sweep_queue_lease(claim->lease)->holder, slot->database_holder, HELD_MESSAGES);
		claim->refusal = sweep_quota_check(&use, sweep_max_in_flight, claim->unlimited);
		claim->room = sweep_quota_room(&use, sweep_max_in_flight, claim->unlimited);
	}
	return claim->refusal == REFUSED_NOT;
}

/* Takes the next message and returns the number of its entry, or -1. Returned messages come first. */
static int
take_one(Claim *claim, SweepQueueSlot *slot)
{
	while (slot->returned.first >= 0 || slot->prefetched_count > 0)
	{
		const SweepMessageRef *message = &slot->prefetched[slot->prefetched_first];
		int			number = -1;

		if (!may_take(claim, slot))
			return -1;
		if (slot->returned.first >= 0)
		{
			claim->room--;
			return sweep_in_flight_take_returned(claim->lease);
		}
		/* A search may have found the message a second time after it was claimed. */
		if (sweep_in_flight_find(slot, message->lane, message->message_id) < 0)
		{
			number = sweep_in_flight_add(claim->lease, message);
			if (number < 0)
			{
				claim->refusal = REFUSED_ALL;
				return -1;
			}
			/* A message that is blocked by its key counts as well. */
			claim->room--;
		}
		slot->prefetched_first++;
		slot->prefetched_count--;
		if (number >= 0 && (message->key_hash == 0 || claim->queue.key_policy != KEY_ONCE_MORE_IF_RUNNING || !sweep_in_flight_block(number)))
			return number;
	}
	return -1;
}

/* Takes returned and prefetched messages. False when there are none. */
static bool
take(Claim *claim)
{
	SweepQueueSlot *slot;
	uint8		random[UUID_LEN];

	claim->taken_count = claim->room = 0;
	sweep_transaction_reserve(1);
	sweep_lease_draw(random);
	sweep_queue_lock(LW_EXCLUSIVE);
	slot = get_slot(claim);
	if (slot != NULL && (slot->returned.first >= 0 || slot->prefetched_count > 0) &&
		(claim->lease >= 0 || begin_lease(claim, slot, random)))
	{
		int			number;

		while (claim->taken_count < Min(claim->wanted - claim->count, TAKE_AT_ONCE) && (number = take_one(claim, slot)) >= 0)
			claim->taken[claim->taken_count++] = (Taken) {
				.number = number, .attempts = sweep_in_flight(number)->attempts, .message = sweep_in_flight(number)->message
			};
	}
	if (slot != NULL)
		claim->prefetched_low = sweep_queue_needs_search(slot, SWEEP_QUEUE_LOW(claim->wanted), GetCurrentTimestamp());
	sweep_queue_unlock();
	return claim->taken_count > 0;
}

static void
put_row(const Claim *claim, TupleTableSlot *row, int attempts)
{
	Datum		values[lengthof(row_types)];
	bool		nulls[lengthof(row_types)] = {0};

	slot_getallattrs(row);
	values[0] = row->tts_values[MESSAGE_ID - 1];
	values[1] = CStringGetTextDatum(claim->queue.name);
	values[2] = row->tts_values[MESSAGE_PAYLOAD - 1];
	values[3] = row->tts_values[MESSAGE_KEY - 1];
	nulls[3] = row->tts_isnull[MESSAGE_KEY - 1];
	values[4] = Int32GetDatum(attempts);
	values[5] = row->tts_values[MESSAGE_HEADERS - 1];
	nulls[5] = row->tts_isnull[MESSAGE_HEADERS - 1];
	values[6] = row->tts_values[MESSAGE_SENT_AT - 1];
	values[7] = UUIDPGetDatum(&claim->id);
	sweep_row_put(claim->result, values, nulls, lengthof(values));
}

/* Whether the claim still has the message, which a purge may have removed. With the lock. */
static bool
still_has(const Claim *claim, const Taken *taken)
{
	const SweepInFlight *entry = sweep_in_flight(taken->number);

	return entry->state == IN_FLIGHT_LEASED && entry->lease == claim->lease && entry->message.message_id == taken->message.message_id;
}

/* Removes the entry of a message whose row is gone (SWEEP_NOTHING_DUE), or is due at another time. */
static void
drop_taken(const Claim *claim, const Taken *taken, TimestampTz due_at)
{
	sweep_queue_lock(LW_EXCLUSIVE);
	if (still_has(claim, taken))
	{
		sweep_in_flight_remove(taken->number);
		sweep_queue_note_due(sweep_queue_slot(sweep_queue_lease(claim->lease)->slot), due_at);
	}
	sweep_queue_unlock();
}

/* Moves a message that has used up its attempts to the dead-letter table. False if the row is locked: the DELETE must not wait. */
static bool
move_to_dead(const Claim *claim, const Taken *taken, Snapshot snapshot)
{
	ItemPointerData tid = taken->message.tid;
	TupleTableSlot *row = table_slot_create(claim->messages, NULL);
	bool		locked = sweep_row_lock(claim->messages, &tid, snapshot, LockTupleExclusive, row);
	bool		begun;

	ExecDropSingleTupleTableSlot(row);
	if (!locked)
		return false;
	sweep_transaction_reserve(1);
	sweep_queue_lock(LW_EXCLUSIVE);
	begun = still_has(claim, taken);
	if (begun)
	{
		sweep_in_flight_begin_ending(taken->number);
		sweep_transaction_note(PENDING_ENDING, taken->number, NULL);
	}
	sweep_queue_unlock();
	if (begun)
		(void) sweep_queue_move_to_dead(claim->messages, &claim->queue, &taken->message, taken->attempts - 1,
										sweep_queue_error("the lease of its last delivery ran out"));
	return true;
}

/*
 * Notes the new places of rows, and moves messages that are put off to a short lease whose id no client knows. When it runs out, the
 * transaction that has written or locked their rows may have ended. If the messages were returned to the queue instead, this claim would take
 * them again at once.
 */
static void
settle_taken(const Claim *claim)
{
	uint8		random[UUID_LEN];
	int			lease = -1;
	int64		put_off_us = PUT_OFF_US;
	bool		refused = false;

	sweep_lease_draw(random);
	sweep_queue_lock(LW_EXCLUSIVE);
	for (int i = 0; i < claim->taken_count && !refused; i++)
	{
		const Taken *taken = &claim->taken[i];

		if (!still_has(claim, taken))
			continue;
		if (taken->moved)
			sweep_in_flight(taken->number)->message.tid = taken->message.tid;
		if (taken->put_off_us > 0 && lease < 0)
			lease = sweep_lease_new(sweep_queue_slot(sweep_queue_lease(claim->lease)->slot), random, GetUserId());
		if (taken->put_off_us > 0 && lease >= 0)
		{
			sweep_in_flight_postpone(taken->number, lease);
			put_off_us = Min(put_off_us, taken->put_off_us);
		}
		refused = taken->put_off_us > 0 && lease < 0;
	}
	if (lease >= 0)
		sweep_lease_set_expiry(lease, sweep_monotonic_us() + put_off_us);
	sweep_queue_unlock();
	if (refused)
		sweep_holder_refuse(HELD_MESSAGES, REFUSED_ALL, NULL);
}

/*
 * Frees the key of a message, for others to be sent after the commit: the row is updated with claimed = true, which takes it out of the index
 * of waiting keys. Returns for how long the message is to be put off, if another transaction has written the row or has it locked (a sender's
 * lock puts it off although the update is done); else 0. The update is done without SQL, at the place where the claim has read the row. A
 * statement that was planned while the table was small would read the whole queue for each claim once the table is large.
 */
static int64
free_key(Claim *claim, Taken *taken, TupleTableSlot *row, Snapshot snapshot)
{
	TU_UpdateIndexes update_indexes;
	TM_FailureData failure;
	LockTupleMode lock_mode;
	ItemPointer place = &taken->message.tid;
	TupleTableSlot *new_row = claim->new_row;
	bool		locked = sweep_row_is_locked(row);

	if (new_row == NULL)
	{
		sweep_indexes_open(&claim->indexes, claim->messages);
		claim->new_row = new_row = MakeSingleTupleTableSlot(RelationGetDescr(claim->messages), &TTSOpsVirtual);
	}
	if (locked && !sweep_row_lock(claim->messages, place, snapshot, LockTupleNoKeyExclusive, row))
		return PUT_OFF_US;
	slot_getallattrs(row);
	ExecClearTuple(new_row);
	memcpy(new_row->tts_values, row->tts_values, row->tts_tupleDescriptor->natts * sizeof(Datum));
	memcpy(new_row->tts_isnull, row->tts_isnull, row->tts_tupleDescriptor->natts * sizeof(bool));
	new_row->tts_values[MESSAGE_CLAIMED - 1] = BoolGetDatum(true);
	ExecStoreVirtualTuple(new_row);
	if (sweep_table_tuple_update(claim->messages, place, new_row, GetCurrentCommandId(true), snapshot, locked, &failure, &lock_mode, &update_indexes) != TM_Ok)
		return PUT_OFF_FOR_SENDER_US;
	*place = new_row->tts_tid;
	sweep_indexes_update(&claim->indexes, new_row, update_indexes);
	taken->moved = true;
	return sweep_row_was_shared(row) ? PUT_OFF_FOR_SENDER_US : 0;
}

/* Delivers the row of a message; otherwise returns the time to put the message off. */
static int64
deliver_row(Claim *claim, Taken *taken, TupleTableSlot *row, Snapshot snapshot)
{
	bool		is_null;
	int64		put_off_us = 0;

	if (taken->attempts > claim->queue.max_attempts)
		return move_to_dead(claim, taken, snapshot) ? 0 : PUT_OFF_US;
	(void) slot_getattr(row, MESSAGE_KEY, &is_null);
	if (is_null || claim->queue.key_policy == KEY_WHILE_QUEUED_OR_RUNNING)
		put_off_us = 0;
	else if (!DatumGetBool(slot_getattr(row, MESSAGE_CLAIMED, &is_null)))
		put_off_us = free_key(claim, taken, row, snapshot);
	else if (sweep_row_is_locked(row) && !sweep_row_lock(claim->messages, &taken->message.tid, snapshot, LockTupleExclusive, row))
		put_off_us = PUT_OFF_FOR_SENDER_US;
	if (put_off_us == 0)
	{
		put_row(claim, row, taken->attempts);
		claim->count++;
	}
	return put_off_us;
}

/* Reads the rows of the messages that were taken, and delivers them. */
static void
deliver(Claim *claim)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TupleTableSlot *row = table_slot_create(claim->messages, NULL);
	BlockNumber blocks = RelationGetNumberOfBlocks(claim->messages);
	bool		unsettled = false;

	for (int i = 0; i < claim->taken_count; i++)
	{
		Taken	   *taken = &claim->taken[i];
		bool		is_null;

		if (!sweep_queue_fetch(claim->messages, blocks, &claim->queue, snapshot, &taken->message, row))
			drop_taken(claim, taken, SWEEP_NOTHING_DUE);
		else if (SWEEP_LANE_IS_DELAYED(taken->message.lane) &&
				 DatumGetTimestampTz(slot_getattr(row, MESSAGE_DUE_AT, &is_null)) != taken->message.due_at)
			/* The search had an older snapshot, and the message was put off since then. */
			drop_taken(claim, taken, DatumGetTimestampTz(slot_getattr(row, MESSAGE_DUE_AT, &is_null)));
		else
			taken->put_off_us = deliver_row(claim, taken, row, snapshot);
		unsettled |= taken->put_off_us > 0 || taken->moved;
	}
	ExecDropSingleTupleTableSlot(row);
	UnregisterSnapshot(snapshot);
	if (claim->new_row != NULL)
	{
		ExecDropSingleTupleTableSlot(claim->new_row);
		claim->new_row = NULL;
		sweep_indexes_close(&claim->indexes);
		CommandCounterIncrement();
	}
	if (unsettled)
		settle_taken(claim);
}

/* The lease ends when the visibility has passed from now on; it is freed if all its messages are gone. */
static void
close_claim(Claim *claim)
{
	if (claim->lease >= 0)
	{
		sweep_queue_lock(LW_EXCLUSIVE);
		sweep_lease_set_expiry(claim->lease, sweep_monotonic_us() + claim->visibility_us);
		sweep_lease_free(claim->lease);
		sweep_queue_unlock();
	}
	if (claim->log_shortage)
		ereport(LOG,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("more queues are in use than pg_sweep.max_queues"),
				 errdetail("A queue that has given way to another one is looked at from its start."),
				 errhint("Increase pg_sweep.max_queues and restart the server.")));
}

/* SQL: sweep.claim(queue text, max int, visibility interval) RETURNS SETOF sweep.message */
Datum
sweep_queue_claim(PG_FUNCTION_ARGS)
{
	Claim		claim = {.lease = -1};
	bool		made_room = false;

	open_claim(&claim, fcinfo);
	while (claim.count < claim.wanted)
	{
		CHECK_FOR_INTERRUPTS();
		if (take(&claim))
			deliver(&claim);
		if (claim.refusal != REFUSED_NOT && made_room)
		{
			if (claim.count == 0)
				sweep_holder_refuse(claim.lacks, claim.refusal, claim.queue.name);
			break;
		}
		if (claim.refusal != REFUSED_NOT)
		{
			sweep_queue_make_room(claim.lacks, claim.refusal);
			made_room = true;
		}
		else if (claim.taken_count == 0 && !sweep_queue_search(claim.messages, &claim.queue, claim.wanted, false))
			break;
	}
	close_claim(&claim);
	if (claim.prefetched_low)
		(void) sweep_queue_search(claim.messages, &claim.queue, claim.wanted, true);
	table_close(claim.messages, NoLock);
	return (Datum) 0;
}
