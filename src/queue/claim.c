/*
 * claim.c
 *		sweep.claim: takes messages under a lease.
 *
 * Under the lock of the shared memory a claim takes what was returned to the queue, then what a search has found; then,
 * without the lock, it reads the rows with a snapshot of its own. A message whose row is gone by then (acknowledged
 * after its lease had run out, purged) is forgotten, and another one taken. The claim writes nothing, unless the key of
 * a message must be given free: then it updates the row.
 *
 * A message that was delivered as often as its queue allows, and whose lease ran out once more, is moved to the
 * dead-letter table by the first claim that meets it.
 *
 * A claim never waits for another transaction. When it has to write a row that another transaction has written or locked
 * (one whose lease ran out, and which is still open), it leaves the message alone for a while.
 */
#include "postgres.h"

#include "access/tableam.h"
#include "access/xact.h"
#include "executor/tuptable.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"
#include "utils/uuid.h"

#include "base/clock.h"
#include "base/quota.h"
#include "base/require.h"
#include "queue/ack.h"
#include "queue/fail.h"
#include "queue/free_key.h"
#include "queue/holder.h"
#include "queue/in_flight.h"
#include "queue/prepared.h"
#include "queue/search.h"
#include "queue/slot_pool.h"
#include "queue/table.h"
#include "queue/transaction.h"

/* Messages taken under the lock at a time. */
#define TAKE_AT_ONCE 100

/* Time for which a message is left alone whose row another transaction has written or locked, in us. */
#define PUT_OFF_US USECS_PER_SEC

/* Time after which it is logged again that there are too few slots, in us. */
#define LOG_SHORTAGE_US (60 * USECS_PER_SEC)

typedef struct Claim
{
	Relation	messages;
	SweepQueue	queue;			/* a copy: statements may forget the original */
	int			wanted;
	int			count;			/* delivered */
	int64		visibility_us;
	int			lease;			/* -1 until something was taken */
	pg_uuid_t	id;
	bool		prefetched_low; /* other claims will soon find nothing, or not what has fallen due */
	bool		unlimited;		/* see quota.h */
	int			room;			/* messages that the role may have more; under the lock */
	SweepHeld	lacks;			/* what is refused ... */
	SweepRefusal refusal;		/* ... and why */
	ReturnSetInfo *result;
	/* Taken and not yet delivered. */
	int			taken;
	int			entries[TAKE_AT_ONCE];
	SweepMessageRef refs[TAKE_AT_ONCE];
	int			attempts[TAKE_AT_ONCE];
} Claim;

PG_FUNCTION_INFO_V1(sweep_queue_claim);

static void
open_claim(Claim *claim, FunctionCallInfo fcinfo)
{
	sweep_require_usable("sweep.claim()");
	PreventCommandIfReadOnly("sweep.claim()");
	/* A parallel worker does not learn how the transaction ends. */
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
	sweep_prepared_settle();
}

/* For the id of a lease. Many at a time: a call takes an eighth of the time of a claim, for any number. */
static void
draw_random(uint8 *random)
{
	static uint8 supply[32][UUID_LEN];
	static int	left = 0;

	if (left == 0)
	{
		if (!pg_strong_random(supply, sizeof(supply)))
			ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not generate random values")));
		left = lengthof(supply);
	}
	memcpy(random, supply[--left], UUID_LEN);
}

static void
log_shortage(void)
{
	ereport(LOG,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("more queues are in use than pg_sweep.max_queues"),
			 errdetail("A queue that has given way to another one is looked at from its start."),
			 errhint("Increase pg_sweep.max_queues and restart the server.")));
}

/* Finds the slot of the queue, or gives it one; NULL when that is refused. */
static SweepQueueSlot *
get_slot(Claim *claim)
{
	Oid			relation = RelationGetRelid(claim->messages);
	SweepQueueSlot *slot = sweep_queue_find_settled(relation, claim->queue.queue_id);

	claim->lacks = HELD_SLOTS;
	claim->refusal = REFUSED_NOT;
	if (slot == NULL)
		slot = sweep_queue_allot_slot(relation, claim->queue.queue_id, GetUserId(), &claim->refusal);
	else if (!OidIsValid(sweep_queue_memory.shared->holders[slot->holder].role))
		claim->refusal = sweep_queue_adopt_slot(slot);
	if (claim->refusal != REFUSED_NOT)
		return NULL;
	claim->lacks = HELD_MESSAGES;
	slot->used_us = sweep_monotonic_us();
	return slot;
}

/* Whether the role may have one more message; asks its quota only when the known room is used up. */
static bool
may_take(Claim *claim)
{
	SweepUse	use;

	if (claim->room <= 0)
	{
		use = sweep_holder_use(sweep_queue_lease(claim->lease)->holder, HELD_MESSAGES);
		claim->refusal = sweep_quota_check(&use, sweep_max_in_flight, claim->unlimited);
		claim->room = sweep_quota_room(&use, sweep_max_in_flight, claim->unlimited);
	}
	return claim->refusal == REFUSED_NOT;
}

/* The entry of the next message, or -1. Returned messages come first. */
static int
take_one(Claim *claim, SweepQueueSlot *slot)
{
	while (slot->returned.first >= 0 || slot->prefetched_count > 0)
	{
		const SweepMessageRef *message = &slot->prefetched[slot->prefetched_first];
		int			entry = -1;

		if (!may_take(claim))
			return -1;
		if (slot->returned.first >= 0)
		{
			claim->room--;
			return sweep_in_flight_take_returned(claim->lease);
		}
		/* It may have been found a second time after it was claimed. */
		if (sweep_in_flight_find(slot, message->lane, message->message_id) < 0)
		{
			entry = sweep_in_flight_add(claim->lease, message);
			if (entry < 0)
			{
				claim->refusal = REFUSED_ALL;
				return -1;
			}
			/* A message that is blocked by its key counts as well. */
			claim->room--;
		}
		slot->prefetched_first++;
		slot->prefetched_count--;
		if (entry >= 0 && (message->key_hash == 0 || claim->queue.key_policy != KEY_ONCE_MORE_IF_RUNNING || !sweep_in_flight_block(entry)))
			return entry;
	}
	return -1;
}

/* Takes messages that are known to be there, with the lock; returns whether the lease is new. */
static bool
take_locked(Claim *claim, SweepQueueSlot *slot, const uint8 *random)
{
	bool		new_lease = claim->lease < 0;
	int			entry;

	if (new_lease && slot->returned.first < 0 && slot->prefetched_count == 0)
		return false;
	if (new_lease)
	{
		claim->lease = sweep_lease_new(slot, random, GetUserId());
		if (claim->lease < 0)
		{
			claim->refusal = REFUSED_ALL;
			return false;
		}
		claim->id = sweep_queue_lease(claim->lease)->id;
	}
	while (claim->taken < Min(claim->wanted - claim->count, TAKE_AT_ONCE) && (entry = take_one(claim, slot)) >= 0)
	{
		claim->entries[claim->taken] = entry;
		claim->refs[claim->taken] = sweep_in_flight(entry)->message;
		claim->attempts[claim->taken++] = sweep_in_flight(entry)->attempts;
	}
	return new_lease;
}

/* Takes messages that are known to be there. False when none is. */
static bool
take(Claim *claim)
{
	SweepQueueShared *shared = sweep_queue_memory.shared;
	SweepQueueSlot *slot;
	uint8		random[UUID_LEN];
	bool		new_lease = false;
	bool		log = false;

	claim->taken = claim->room = 0;
	sweep_transaction_reserve(1);
	draw_random(random);
	sweep_queue_lock(LW_EXCLUSIVE);
	slot = get_slot(claim);
	if (slot != NULL)
	{
		new_lease = take_locked(claim, slot, random);
		claim->prefetched_low = sweep_queue_needs_search(slot, SWEEP_QUEUE_LOW(claim->wanted), GetCurrentTimestamp());
		log = shared->short_of_slots && slot->used_us > shared->shortage_logged_us + LOG_SHORTAGE_US;
		if (log)
		{
			shared->short_of_slots = false;
			shared->shortage_logged_us = slot->used_us;
		}
	}
	sweep_queue_unlock();
	if (new_lease)
		sweep_transaction_note_claim(&claim->id);
	if (log)
		log_shortage();
	return claim->taken > 0;
}

/* The time of the lease begins now; it ends if nothing of what was taken was there any more. */
static void
close_claim(Claim *claim)
{
	if (claim->lease < 0)
		return;
	sweep_queue_lock(LW_EXCLUSIVE);
	sweep_lease_set_expiry(claim->lease, sweep_monotonic_us() + claim->visibility_us);
	sweep_lease_free(claim->lease);
	sweep_queue_unlock();
}

static void
put_row(Claim *claim, TupleTableSlot *slot, int number)
{
	Datum		values[8];
	bool		nulls[8] = {0};

	slot_getallattrs(slot);
	values[0] = slot->tts_values[MESSAGE_ID - 1];
	values[1] = CStringGetTextDatum(claim->queue.name);
	values[2] = slot->tts_values[MESSAGE_PAYLOAD - 1];
	values[3] = slot->tts_values[MESSAGE_KEY - 1];
	nulls[3] = slot->tts_isnull[MESSAGE_KEY - 1];
	values[4] = Int32GetDatum(claim->attempts[number]);
	values[5] = slot->tts_values[MESSAGE_HEADERS - 1];
	nulls[5] = slot->tts_isnull[MESSAGE_HEADERS - 1];
	values[6] = slot->tts_values[MESSAGE_SENT_AT - 1];
	values[7] = UUIDPGetDatum(&claim->id);
	tuplestore_putvalues(claim->result->setResult, claim->result->setDesc, values, nulls);
}

/* Whether the claim still has the message, with the lock: a purge may have removed it. */
static bool
has(const Claim *claim, int number)
{
	const SweepInFlight *entry = sweep_in_flight(claim->entries[number]);

	return entry->state == IN_FLIGHT_LEASED && entry->lease == claim->lease && entry->message.message_id == claim->refs[number].message_id;
}

/* The row of the message is gone, or due at another time. */
static void
drop_taken(const Claim *claim, int number, TimestampTz due_at)
{
	sweep_queue_lock(LW_EXCLUSIVE);
	if (has(claim, number))
	{
		sweep_in_flight_remove(claim->entries[number]);
		sweep_queue_note_due(sweep_queue_slot(sweep_queue_lease(claim->lease)->slot), due_at);
	}
	sweep_queue_unlock();
}

/* Locks the row, so that the statement that deletes it does not wait for another transaction; false when it would. */
static bool
lock_row(const Claim *claim, int number, Snapshot snapshot)
{
	ItemPointerData tid = claim->refs[number].tid;
	TupleTableSlot *slot = table_slot_create(claim->messages, NULL);
	bool		locked = sweep_row_lock(claim->messages, &tid, snapshot, LockTupleExclusive, slot);

	ExecDropSingleTupleTableSlot(slot);
	return locked;
}

/*
 * Puts messages under a lease of a second that no client knows: if they were given back, this very claim would take
 * them again. The transaction that has written their rows may have ended by then.
 */
static void
put_off(const Claim *claim, const int *numbers, int count)
{
	uint8		random[UUID_LEN];
	int			lease;

	draw_random(random);
	sweep_queue_lock(LW_EXCLUSIVE);
	lease = sweep_lease_new(sweep_queue_slot(sweep_queue_lease(claim->lease)->slot), random, GetUserId());
	for (int i = 0; i < count && lease >= 0; i++)
		if (has(claim, numbers[i]))
			sweep_in_flight_postpone(claim->entries[numbers[i]], lease);
	if (lease >= 0)
	{
		sweep_lease_set_expiry(lease, sweep_monotonic_us() + PUT_OFF_US);
		sweep_lease_free(lease);
	}
	sweep_queue_unlock();
	if (lease < 0)
		sweep_holder_refuse(HELD_MESSAGES, REFUSED_ALL, NULL);
}

static void
move_to_dead(const Claim *claim, int number)
{
	bool		begun;

	sweep_transaction_reserve(1);
	sweep_queue_lock(LW_EXCLUSIVE);
	begun = has(claim, number);
	if (begun)
	{
		sweep_in_flight_begin_ending(claim->entries[number]);
		sweep_transaction_note_ending(claim->entries[number]);
	}
	sweep_queue_unlock();
	if (begun)
		(void) sweep_queue_move_to_dead(claim->messages, &claim->queue, &claim->refs[number], claim->attempts[number] - 1,
										sweep_queue_error("the lease of its last delivery ran out"));
}

/* Notes the places of the new versions of rows whose keys were given free. */
static void
note_places(const Claim *claim, const int *numbers, const ItemPointerData *places, int count)
{
	sweep_queue_lock(LW_EXCLUSIVE);
	for (int i = 0; i < count; i++)
		if (has(claim, numbers[i]))
			sweep_in_flight(claim->entries[numbers[i]])->message.tid = places[i];
	sweep_queue_unlock();
}

/* Reads the rows of what was taken and returns them to the caller. */
static void
deliver(Claim *claim)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TupleTableSlot *slot = table_slot_create(claim->messages, NULL);
	BlockNumber blocks = RelationGetNumberOfBlocks(claim->messages);
	SweepKeyFreeing freeing = {.messages = claim->messages};
	int			freed[TAKE_AT_ONCE];
	ItemPointerData places[TAKE_AT_ONCE];
	int			freed_count = 0;
	int			busy[TAKE_AT_ONCE];
	int			busy_count = 0;

	for (int i = 0; i < claim->taken; i++)
	{
		bool		is_null;
		bool		frees_key;

		if (!sweep_queue_fetch(claim->messages, blocks, &claim->queue, snapshot, &claim->refs[i], slot))
			drop_taken(claim, i, SWEEP_NOTHING_DUE);
		else if (SWEEP_LANE_IS_DELAYED(claim->refs[i].lane) &&
				 DatumGetTimestampTz(slot_getattr(slot, MESSAGE_DUE_AT, &is_null)) != claim->refs[i].due_at)
			/* Found with an old snapshot, and put off since then. */
			drop_taken(claim, i, DatumGetTimestampTz(slot_getattr(slot, MESSAGE_DUE_AT, &is_null)));
		else if (claim->attempts[i] > claim->queue.max_attempts)
		{
			if (lock_row(claim, i, snapshot))
				move_to_dead(claim, i);
			else
				busy[busy_count++] = i;
		}
		else
		{
			(void) slot_getattr(slot, MESSAGE_KEY, &is_null);
			frees_key = !is_null && claim->queue.key_policy != KEY_WHILE_QUEUED_OR_RUNNING &&
				!DatumGetBool(slot_getattr(slot, MESSAGE_CLAIMED, &is_null));
			places[freed_count] = claim->refs[i].tid;
			if (frees_key && !sweep_key_free(&freeing, slot, snapshot, &places[freed_count]))
			{
				busy[busy_count++] = i;
				continue;
			}
			put_row(claim, slot, i);
			claim->count++;
			if (frees_key)
				freed[freed_count++] = i;
		}
	}
	ExecDropSingleTupleTableSlot(slot);
	UnregisterSnapshot(snapshot);
	if (freeing.row != NULL)
		sweep_key_free_end(&freeing);
	if (freed_count > 0)
		note_places(claim, freed, places, freed_count);
	if (busy_count > 0)
		put_off(claim, busy, busy_count);
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
		else if (claim.taken == 0 && !sweep_queue_search(claim.messages, &claim.queue, claim.wanted, false))
			break;
	}
	close_claim(&claim);
	if (claim.prefetched_low)
		(void) sweep_queue_search(claim.messages, &claim.queue, claim.wanted, true);
	sweep_queue_close(claim.messages);
	return (Datum) 0;
}
