/*
 * slot_pool.c
 *		Gives slots to queues, and makes room for slots and messages by freeing unused ones.
 *
 * A queue gets a slot when it is first used: by a claim, a commit, a process that waits or counts. A queue that loses
 * its slot is searched from its start when it is used again. A commit must not search for long, nor look up a role: it
 * looks at a few slots only, and sweep_queue_find() has looked up the role before.
 */
#include "postgres.h"

#include "queue/slot_pool.h"

/* A queue counts as in use if it was used within this time, in us. */
#define IN_USE_US (60 * USECS_PER_SEC)

/* Number of slots among which the least recently used idle one is chosen for another queue. */
#define VICTIM_CANDIDATES 64

static bool
is_idle(const SweepQueueSlot *slot)
{
	return slot->generation != 0 && slot->lease_count == 0 && slot->returned.count == 0 && slot->blocked.count == 0 && slot->waiters == 0;
}

/* Whether the slot may be taken. If the quota of the role, or of the database, is used up, only a slot of one of its own queues may be. */
static bool
fits(const SweepQueueSlot *slot, Oid role, SweepRefusal refusal)
{
	return refusal == REFUSED_ROLE ? slot->holder == sweep_holder_find(role, InvalidOid) :
		refusal == REFUSED_DATABASE ? slot->database == MyDatabaseId : true;
}

static SweepQueueSlot *
find_victim(Oid role, SweepRefusal refusal)
{
	SweepQueueShared *shared = sweep_queue_memory.shared;
	SweepQueueSlot *victim = NULL;

	for (int i = 0; i < Min(VICTIM_CANDIDATES, sweep_max_queues); i++)
	{
		SweepQueueSlot *candidate = sweep_queue_slot(shared->victim_slot);

		shared->victim_slot = (shared->victim_slot + 1) % sweep_max_queues;
		if (is_idle(candidate) && fits(candidate, role, refusal) && (victim == NULL || candidate->used_us < victim->used_us))
			victim = candidate;
	}
	return victim;
}

static SweepRefusal
check_share(Oid role)
{
	SweepUse	use = sweep_holder_use(sweep_holder_find(role, InvalidOid), sweep_holder_find(InvalidOid, MyDatabaseId), HELD_SLOTS);

	return sweep_quota_check(&use, sweep_max_queues, !OidIsValid(role) || sweep_quota_is_known_unlimited(role));
}

/* Frees the slot of a queue that has no messages in flight any more. */
static void
free_slot(SweepQueueSlot *slot)
{
	int			number = sweep_queue_slot_number(slot);
	int		   *link = sweep_queue_slot_chain(slot->database, slot->queue_id);

	while (*link != number)
		link = &sweep_queue_slot(*link)->next;
	*link = slot->next;
	sweep_holder_count(slot->holder, slot->database_holder, HELD_SLOTS, -1);
	slot->generation = 0;
	slot->next = sweep_queue_memory.shared->free_slot;
	sweep_queue_memory.shared->free_slot = number;
}

/* Takes the slot from an idle queue, whose counters are lost. */
static void
evict(SweepQueueSlot *slot)
{
	sweep_queue_spoil_counts(slot->database);
	sweep_queue_memory.shared->short_of_slots |= slot->used_us > sweep_monotonic_us() - IN_USE_US;
	free_slot(slot);
}

SweepQueueSlot *
sweep_queue_allot_slot(Oid relation, int32 queue_id, Oid role, SweepRefusal *refusal)
{
	SweepQueueShared *shared = sweep_queue_memory.shared;
	int		   *chain = sweep_queue_slot_chain(MyDatabaseId, queue_id);
	SweepQueueSlot *slot;

	*refusal = check_share(role);
	if (*refusal != REFUSED_NOT)
	{
		slot = find_victim(role, *refusal);
		if (slot == NULL)
			return NULL;
		evict(slot);
		*refusal = REFUSED_NOT;
	}
	slot = sweep_queue_slot(shared->free_slot);
	shared->free_slot = slot->next;
	memset(slot, 0, sizeof(*slot));
	slot->generation = ++shared->generation;
	slot->database = MyDatabaseId;
	slot->relation = relation;
	slot->queue_id = queue_id;
	slot->holder = sweep_holder_find(role, InvalidOid);
	slot->database_holder = sweep_holder_find(InvalidOid, slot->database);
	sweep_holder_count(slot->holder, slot->database_holder, HELD_SLOTS, 1);
	slot->used_us = slot->sent.since_us = slot->acked.since_us = sweep_monotonic_us();
	slot->lease_root = slot->returned.first = slot->returned.last = slot->blocked.first = slot->blocked.last = -1;
	slot->next_expiry_us = SWEEP_NOTHING_DUE;
	slot->next = *chain;
	*chain = sweep_queue_slot_number(slot);
	sweep_queue_reset_slot(slot);
	return slot;
}

SweepRefusal
sweep_queue_adopt_slot(SweepQueueSlot *slot)
{
	if (check_share(GetUserId()) == REFUSED_ROLE)
	{
		SweepQueueSlot *victim = find_victim(GetUserId(), REFUSED_ROLE);

		if (victim == NULL)
			return REFUSED_ROLE;
		evict(victim);
	}
	slot->holder = sweep_holder_find(GetUserId(), InvalidOid);
	sweep_queue_memory.shared->holders[slot->holder].held[HELD_SLOTS]++;
	return REFUSED_NOT;
}

/* Returns the messages of leases that have run out to the queue; with "forget" also removes the entries of all returned messages. */
static void
make_room_in(SweepQueueSlot *slot, bool forget)
{
	uint32		generation = slot->generation;
	int			forgotten = 0;

	if (!sweep_in_flight_expire(slot) || !forget || slot->returned.first < 0)
		return;
	sweep_queue_reset_slot(slot);
	while (slot->returned.first >= 0)
	{
		sweep_in_flight_remove(slot->returned.first);
		if (sweep_queue_lend_lock_after(SWEEP_QUEUE_PIECE, &forgotten) && slot->generation != generation)
			return;
	}
	/* Once more, since a search may have left out messages that were in flight meanwhile. */
	sweep_queue_reset_slot(slot);
}

void
sweep_queue_make_room(SweepHeld what, SweepRefusal refusal)
{
	Oid			role = GetUserId();
	int			looked_at = 0;

	sweep_queue_lock(LW_EXCLUSIVE);
	for (int i = 0; i < sweep_max_queues; i++)
	{
		SweepQueueSlot *slot = sweep_queue_slot(i);

		if (slot->generation != 0 && (what == HELD_MESSAGES || fits(slot, role, refusal)))
		{
			make_room_in(slot, what == HELD_SLOTS || refusal == REFUSED_ALL);
			if (what == HELD_SLOTS && is_idle(slot))
			{
				sweep_queue_memory.shared->victim_slot = i;
				break;
			}
		}
		(void) sweep_queue_lend_lock_after(SWEEP_QUEUE_SLOTS_PIECE, &looked_at);
	}
	sweep_queue_unlock();
}

void
sweep_queue_drop(SweepQueueSlot *slot)
{
	if (!sweep_in_flight_remove_all(slot))
		return;
	sweep_queue_wake(slot, slot->waiters);
	if (slot->lease_count == 0)
		free_slot(slot);
}

void
sweep_queue_apply_to_all(Oid database, const SweepQueueChange *change)
{
	int			looked_at = 0;

	for (int i = 0; i < sweep_max_queues; i++)
	{
		SweepQueueSlot *slot = sweep_queue_slot(i);

		if (slot->generation != 0 && slot->database == database && change->dropped)
		{
			if (!OidIsValid(change->relation) || slot->relation == change->relation)
				sweep_queue_drop(slot);
		}
		else if (slot->generation != 0 && slot->database == database && (!change->emptied || sweep_in_flight_remove_all(slot)))
		{
			sweep_queue_reset_slot(slot);
			sweep_queue_wake(slot, slot->waiters);
		}
		(void) sweep_queue_lend_lock_after(SWEEP_QUEUE_SLOTS_PIECE, &looked_at);
	}
	sweep_queue_spoil_counts(database);
}
