/*
 * claim.c
 *		sweep.claim: takes messages under a lease.
 *
 * Under the lock of the shared memory a claim takes what was returned to the queue, then what a search
 * has found; then, without the lock, it reads the rows with a snapshot of its own. A row that is gone by
 * then (acknowledged by somebody whose lease had run out, purged) is forgotten and another one taken.
 * The claim writes nothing, unless the key of a message must be given free: then its row is updated.
 *
 * A message that was delivered as often as its queue allows, and whose lease ran out once more, is moved
 * to the dead messages here, by the first claim that meets it.
 *
 * A claim never waits for another transaction. A row that it has to write and that another one has
 * written or locked - the one whose lease ran out, and which is still open - is left alone for a while.
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

/* How long a message is left alone whose row another transaction has written or locked. */
#define PUT_OFF_US USECS_PER_SEC

typedef struct Claim
{
	Relation	messages;
	const SweepQueue *queue;
	SweepQueue	copy;			/* what queue points to: statements may forget the original */
	int			wanted;
	int			count;			/* delivered */
	int64		visibility_us;
	int			lease;			/* -1 until something was taken */
	pg_uuid_t	id;
	bool		prefetched_low;		/* others will soon find nothing, or not what has fallen due */
	Oid			role;			/* that claims */
	bool		unlimited;		/* see quota.h */
	int			room;			/* how many more its role may hold; under the lock */
	SweepRefusal refusal;		/* why it gets no more */
	ReturnSetInfo *result;
	/* Taken and not yet delivered. */
	int			taken;
	int			entries[TAKE_AT_ONCE];
	SweepMessageRef refs[TAKE_AT_ONCE];
	int			attempts[TAKE_AT_ONCE];
} Claim;

static void open_claim(Claim *claim, FunctionCallInfo fcinfo);
static void draw_random(uint8 *random);
static bool take(Claim *claim);
static bool may_take(Claim *claim, SweepQueueSlot *slot, int64 now_us);
static int	take_one(Claim *claim, SweepQueueSlot *slot);
static void deliver(Claim *claim);
static void close_claim(Claim *claim);
static void put_row(Claim *claim, TupleTableSlot *slot, int number);
static void drop_taken(const Claim *claim, int number, TimestampTz due_at);
static bool lock_row(const Claim *claim, int number, Snapshot snapshot);
static void put_off(const Claim *claim, const int *numbers, int count);
static void log_shortage(void);
static void move_to_dead(Claim *claim, int number);
static void note_places(const Claim *claim, const int *numbers, const ItemPointerData *places, int count);

PG_FUNCTION_INFO_V1(sweep_queue_claim);

/* SQL: sweep.claim(queue text, max int, visibility interval) RETURNS SETOF sweep.message */
Datum
sweep_queue_claim(PG_FUNCTION_ARGS)
{
	Claim		claim = {.lease = -1};

	open_claim(&claim, fcinfo);
	while (claim.count < claim.wanted)
	{
		CHECK_FOR_INTERRUPTS();
		if (take(&claim))
			deliver(&claim);
		else if (!sweep_queue_search(claim.messages, claim.queue, claim.wanted, false))
			break;
	}
	close_claim(&claim);
	if (claim.prefetched_low)
		(void) sweep_queue_search(claim.messages, claim.queue, claim.wanted, true);
	sweep_queue_close(claim.messages);
	return (Datum) 0;
}

static void
open_claim(Claim *claim, FunctionCallInfo fcinfo)
{
	sweep_require_usable("sweep.claim()");
	PreventCommandIfReadOnly("sweep.claim()");
	/* In a parallel worker nobody would tell us how the transaction ends. */
	PreventCommandIfParallelMode("sweep.claim()");
	sweep_queue_require_memory("sweep.claim()");
	if (PG_ARGISNULL(0))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("name of the queue must not be null")));
	claim->messages = sweep_queue_open();
	claim->copy = *sweep_queue_find(PG_GETARG_TEXT_PP(0), RIGHT_CONSUME);
	claim->queue = &claim->copy;
	if (PG_ARGISNULL(1) || PG_GETARG_INT32(1) <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 PG_ARGISNULL(1) ? errmsg("cannot claim <NULL> messages") : errmsg("cannot claim %d messages", PG_GETARG_INT32(1)),
				 errhint("max must be greater than zero.")));
	claim->wanted = PG_GETARG_INT32(1);
	claim->role = GetUserId();
	claim->unlimited = sweep_quota_is_unlimited(claim->role);
	claim->visibility_us = PG_ARGISNULL(2) ? claim->queue->visibility_us : sweep_interval_us(PG_GETARG_INTERVAL_P(2));
	if (claim->visibility_us <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid visibility \"%s\"", DatumGetCString(DirectFunctionCall1(interval_out, PG_GETARG_DATUM(2)))),
				 errhint("The visibility is the time this claim has for its messages and must be greater than zero.")));
	InitMaterializedSRF(fcinfo, 0);
	claim->result = (ReturnSetInfo *) fcinfo->resultinfo;
	sweep_prepared_settle();
}

/* For the id of a lease. Many at a time: a call takes an eighth of a claim, for however many. */
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

/* Takes messages that are known to be there. False when none is. */
static bool
take(Claim *claim)
{
	SweepQueueSlot *slot;
	uint8		random[UUID_LEN];
	int64		now_us;
	bool		new_lease = false;
	bool		short_of_slots;

	claim->taken = 0;
	claim->refusal = REFUSED_NOT;
	claim->room = 0;
	sweep_transaction_reserve(1);
	draw_random(random);
	sweep_queue_lock(LW_EXCLUSIVE);
	now_us = sweep_monotonic_us();
	slot = sweep_queue_get_slot(RelationGetRelid(claim->messages), claim->queue->queue_id);
	if (slot == NULL || (!OidIsValid(slot->role) && !sweep_queue_adopt_slot(slot)))
	{
		sweep_queue_unlock();
		sweep_queue_refuse_slot(claim->queue->name);
	}
	slot->used_us = now_us;
	sweep_in_flight_expire(slot, now_us);
	/* It ends with what it holds when the queue is purged. */
	if (claim->lease >= 0 && sweep_in_flight_find_lease(&claim->id) == NULL)
		claim->lease = -1;
	if (claim->lease < 0 && (slot->returned.first >= 0 || slot->prefetched_count > 0))
	{
		claim->lease = sweep_in_flight_new_lease(slot, SWEEP_NOTHING_DUE, random, claim->role);
		if (claim->lease < 0 && sweep_queue_reclaim(InvalidOid))
			claim->lease = sweep_in_flight_new_lease(slot, SWEEP_NOTHING_DUE, random, claim->role);
		new_lease = claim->lease >= 0;
		claim->refusal = new_lease ? REFUSED_NOT : REFUSED_ALL;
		if (new_lease)
			claim->id = sweep_queue_lease(claim->lease)->id;
	}
	while (claim->lease >= 0 && claim->taken < Min(claim->wanted - claim->count, TAKE_AT_ONCE))
	{
		int			entry = may_take(claim, slot, now_us) ? take_one(claim, slot) : -1;

		if (entry < 0)
			break;
		claim->entries[claim->taken] = entry;
		claim->refs[claim->taken] = sweep_in_flight(entry)->message;
		claim->attempts[claim->taken++] = sweep_in_flight(entry)->attempts;
	}
	claim->prefetched_low = sweep_queue_needs_search(slot, SWEEP_QUEUE_LOW(claim->wanted), GetCurrentTimestamp());
	short_of_slots = sweep_queue_memory.shared->short_of_slots && sweep_queue_take_shortage(now_us);
	sweep_queue_unlock();
	if (new_lease)
		sweep_transaction_note_claim(&claim->id);
	if (short_of_slots)
		log_shortage();
	if (claim->refusal != REFUSED_NOT && claim->taken == 0 && claim->count == 0)
		sweep_holder_refuse(claim->role, claim->refusal);
	if (claim->refusal != REFUSED_NOT)
		claim->wanted = claim->count + claim->taken;
	return claim->taken > 0;
}

/* Whether the role may have what there is; asked anew only when what it may hold is used up. */
static bool
may_take(Claim *claim, SweepQueueSlot *slot, int64 now_us)
{
	int			holder = sweep_queue_lease(claim->lease)->holder;
	SweepUse	use;

	if (claim->room > 0 || (slot->returned.first < 0 && slot->prefetched_count == 0))
		return true;
	use = sweep_holder_use(holder);
	claim->refusal = sweep_quota_check(&use, sweep_max_in_flight, claim->unlimited);
	if (claim->refusal != REFUSED_NOT)
	{
		sweep_queue_expire_all(holder, now_us);
		use = sweep_holder_use(holder);
		claim->refusal = sweep_quota_check(&use, sweep_max_in_flight, claim->unlimited);
	}
	/* That nothing at all is left sweep_in_flight_add() says. */
	claim->room = Max(sweep_quota_room(&use, sweep_max_in_flight, claim->unlimited), 1);
	return claim->refusal == REFUSED_NOT;
}

/* The entry of the next message, or -1. What was returned comes first. */
static int
take_one(Claim *claim, SweepQueueSlot *slot)
{
	int			entry = sweep_in_flight_take_returned(claim->lease);

	if (entry >= 0)
		claim->room--;
	/* What is blocked by its key counts as well. */
	while (entry < 0 && slot->prefetched_count > 0 && claim->room > 0)
	{
		const SweepMessageRef *message = &slot->prefetched[slot->prefetched_first];

		/* Found a second time while somebody took it. */
		if (sweep_in_flight_find(slot, message->lane, message->message_id) < 0)
		{
			entry = sweep_in_flight_add(claim->lease, message);
			if (entry < 0)
			{
				/* Then there is room, and a search will find again what was forgotten. */
				if (sweep_queue_reclaim(InvalidOid))
					continue;
				claim->refusal = REFUSED_ALL;
				return -1;
			}
			claim->room--;
		}
		slot->prefetched_first++;
		slot->prefetched_count--;
		if (entry >= 0 && message->key_hash != 0 && claim->queue->key_policy == KEY_ONCE_MORE_IF_RUNNING &&
			sweep_in_flight_block(entry))
			entry = -1;
	}
	return entry;
}

/* The time of the lease begins now; it ends if nothing of what was taken was there any more. */
static void
close_claim(Claim *claim)
{
	SweepQueueLease *lease;

	if (claim->lease < 0)
		return;
	sweep_queue_lock(LW_EXCLUSIVE);
	lease = sweep_in_flight_find_lease(&claim->id);
	if (lease != NULL)
	{
		SweepQueueSlot *slot = sweep_queue_slot(lease->slot);

		lease->expires_us = sweep_monotonic_us() + claim->visibility_us;
		sweep_queue_note_expiry(slot, lease->expires_us);
		sweep_in_flight_end_lease(claim->lease);
	}
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

		if (!sweep_queue_fetch(claim->messages, blocks, claim->queue, snapshot, &claim->refs[i], slot))
			drop_taken(claim, i, SWEEP_NOTHING_DUE);
		else if (SWEEP_LANE_IS_DELAYED(claim->refs[i].lane) &&
				 DatumGetTimestampTz(slot_getattr(slot, MESSAGE_DUE_AT, &is_null)) != claim->refs[i].due_at)
			/* Found with an old snapshot, and put off since then. */
			drop_taken(claim, i, DatumGetTimestampTz(slot_getattr(slot, MESSAGE_DUE_AT, &is_null)));
		else if (claim->attempts[i] > claim->queue->max_attempts)
		{
			if (lock_row(claim, i, snapshot))
				move_to_dead(claim, i);
			else
				busy[busy_count++] = i;
		}
		else
		{
			(void) slot_getattr(slot, MESSAGE_KEY, &is_null);
			frees_key = !is_null && claim->queue->key_policy != KEY_WHILE_QUEUED_OR_RUNNING &&
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
	sweep_key_free_end(&freeing);
	if (freed_count > 0)
		note_places(claim, freed, places, freed_count);
	if (busy_count > 0)
		put_off(claim, busy, busy_count);
}

static void
put_row(Claim *claim, TupleTableSlot *slot, int number)
{
	Datum		values[8];
	bool		nulls[8] = {0};

	slot_getallattrs(slot);
	values[0] = slot->tts_values[MESSAGE_ID - 1];
	values[1] = CStringGetTextDatum(claim->queue->name);
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

/* The row of the message is gone, or due at another time. */
static void
drop_taken(const Claim *claim, int number, TimestampTz due_at)
{
	sweep_queue_lock(LW_EXCLUSIVE);
	if (sweep_in_flight_find_lease(&claim->id) != NULL && sweep_in_flight(claim->entries[number])->lease == claim->lease)
	{
		/* The lease stays, for what else is taken. */
		SweepQueueLease *lease = sweep_queue_lease(claim->lease);

		lease->messages.count++;
		sweep_in_flight_remove(claim->entries[number]);
		lease->messages.count--;
		sweep_queue_note_due(sweep_queue_slot(lease->slot), due_at);
	}
	sweep_queue_unlock();
}

/* So that the statement that deletes it waits for nobody; false when it would. */
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
 * Under a lease that nobody knows, of a second: giving them back would have them claimed again at once, by
 * this very claim. Whoever has written the row may have ended by then.
 */
static void
put_off(const Claim *claim, const int *numbers, int count)
{
	uint8		random[UUID_LEN];
	int			lease = 0;

	draw_random(random);
	sweep_queue_lock(LW_EXCLUSIVE);
	if (sweep_in_flight_find_lease(&claim->id) != NULL)
	{
		SweepQueueSlot *slot = sweep_queue_slot(sweep_queue_lease(claim->lease)->slot);
		int64		until_us = sweep_monotonic_us() + PUT_OFF_US;

		lease = sweep_in_flight_new_lease(slot, until_us, random, claim->role);
		if (lease < 0 && sweep_queue_reclaim(InvalidOid))
			lease = sweep_in_flight_new_lease(slot, until_us, random, claim->role);
		for (int i = 0; i < count && lease >= 0; i++)
			if (sweep_in_flight(claim->entries[numbers[i]])->lease == claim->lease)
				sweep_in_flight_postpone(claim->entries[numbers[i]], lease);
		if (lease >= 0)
			sweep_in_flight_end_lease(lease);
	}
	sweep_queue_unlock();
	if (lease < 0)
		sweep_holder_refuse(claim->role, REFUSED_ALL);
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

static void
move_to_dead(Claim *claim, int number)
{
	if (sweep_queue_begin_ending(&claim->id, claim->entries[number]))
		(void) sweep_queue_move_to_dead(claim->messages, claim->queue, &claim->refs[number], claim->attempts[number] - 1,
								sweep_queue_error("the lease of its last delivery ran out"));
}

/* Their keys are free, and their rows at other places. */
static void
note_places(const Claim *claim, const int *numbers, const ItemPointerData *places, int count)
{
	sweep_queue_lock(LW_EXCLUSIVE);
	for (int i = 0; i < count; i++)
	{
		SweepInFlight *entry = sweep_in_flight(claim->entries[numbers[i]]);

		if (entry->message.message_id == claim->refs[numbers[i]].message_id && entry->lease == claim->lease)
			entry->message.tid = places[i];
	}
	sweep_queue_unlock();
}
