/*
 * hold.c
 *		Leases of queues and the messages they hold, in shared memory.
 *
 * A claim writes nothing to the table: that a message is claimed is an entry here, found by the name of
 * its lease and by its queue, lane and id. A hold is in one list at a time: that of its lease, that of
 * the messages returned to its queue, or that of the free entries; and always in a hash chain unless it
 * is free. The name of a lease starts with its index, so finding it takes no search.
 *
 * A message whose lease ran out or that was given back stays here, without a lease, and is the next to
 * be claimed. So no position has to be set back for it, and nobody walks over the front of the queue
 * again to find it.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "utils/timestamp.h"

#include "base/settings.h"
#include "queue/hold.h"
#include "queue/holder.h"
#include "queue/memory.h"

static uint32 bucket_of(int slot, int16 lane, int64 message_id);
static int *key_bucket_of(int slot, uint32 key_hash);
static void link_last(SweepQueueLease *lease, int hold);
static void unlink_hold(int hold);
static void append_returned(SweepQueueSlot *slot, int hold);
static void unblock_by_key(SweepQueueSlot *slot, uint32 key_hash);

SweepHold *
sweep_queue_holds(void)
{
	return sweep_queue_memory()->holds;
}

SweepQueueLease *
sweep_queue_leases(void)
{
	return sweep_queue_memory()->leases;
}

void
sweep_hold_initialize(void)
{
	SweepHold  *holds = sweep_queue_holds();
	SweepQueueLease *leases = sweep_queue_leases();
	int		   *buckets = sweep_queue_memory()->buckets;
	int		   *key_buckets = sweep_queue_memory()->key_buckets;

	for (int i = 0; i < sweep_max_leases; i++)
	{
		buckets[i] = key_buckets[i] = -1;
		holds[i].next = leases[i].next = i + 1 < sweep_max_leases ? i + 1 : -1;
		leases[i].slot = -1;
	}
	sweep_queue_memory()->shared->free_hold = sweep_queue_memory()->shared->free_lease = 0;
}

int
sweep_hold_new_lease(SweepQueueSlot *slot, TimestampTz expires_at, const uint8 *random, Oid role)
{
	int			number = sweep_queue_memory()->shared->free_lease;
	SweepQueueLease *lease = &sweep_queue_leases()[number];

	if (number < 0)
		return -1;
	sweep_queue_memory()->shared->free_lease = lease->next;
	memcpy(lease->id.data, &number, sizeof(number));
	memcpy(lease->id.data + sizeof(number), random, UUID_LEN - sizeof(number));
	lease->slot = sweep_queue_slot_number(slot);
	lease->hold_first = lease->hold_last = -1;
	lease->hold_count = 0;
	lease->holder = sweep_holder_find(role);
	sweep_holder_count_lease(lease->holder, 1);
	lease->expires_at = expires_at;
	lease->previous = -1;
	lease->next = slot->lease_first;
	if (lease->next >= 0)
		sweep_queue_leases()[lease->next].previous = number;
	slot->lease_first = number;
	sweep_queue_note_expiry(slot, expires_at);
	return number;
}

SweepQueueLease *
sweep_hold_find_lease(const pg_uuid_t *id)
{
	int			number;
	SweepQueueLease *lease;

	memcpy(&number, id->data, sizeof(number));
	if (number < 0 || number >= sweep_max_leases)
		return NULL;
	lease = &sweep_queue_leases()[number];
	if (lease->slot < 0 || memcmp(&lease->id, id, sizeof(*id)) != 0 || sweep_queue_slot(lease->slot)->database != MyDatabaseId)
		return NULL;
	return lease;
}

void
sweep_hold_end_lease(int number)
{
	SweepQueueLease *lease = &sweep_queue_leases()[number];

	if (lease->slot < 0 || lease->hold_count > 0)
		return;
	if (lease->previous >= 0)
		sweep_queue_leases()[lease->previous].next = lease->next;
	else
		sweep_queue_slot(lease->slot)->lease_first = lease->next;
	if (lease->next >= 0)
		sweep_queue_leases()[lease->next].previous = lease->previous;
	lease->slot = -1;
	sweep_holder_count_lease(lease->holder, -1);
	lease->next = sweep_queue_memory()->shared->free_lease;
	sweep_queue_memory()->shared->free_lease = number;
}

int
sweep_hold_take(int lease, const SweepFound *message)
{
	int			number = sweep_queue_memory()->shared->free_hold;
	SweepHold  *hold = &sweep_queue_holds()[number];
	int		   *bucket;

	if (number < 0)
		return -1;
	sweep_queue_memory()->shared->free_hold = hold->next;
	hold->message = *message;
	hold->purged_by = InvalidTransactionId;
	hold->state = HOLD_HELD;
	hold->slot = sweep_queue_leases()[lease].slot;
	hold->attempts = message->attempts + 1;
	bucket = &sweep_queue_memory()->buckets[bucket_of(hold->slot, message->lane, message->message_id)];
	hold->hash_next = *bucket;
	*bucket = number;
	if (message->key_hash != 0)
	{
		bucket = key_bucket_of(hold->slot, message->key_hash);
		hold->key_next = *bucket;
		*bucket = number;
	}
	link_last(&sweep_queue_leases()[lease], number);
	return number;
}

int
sweep_hold_take_returned(int lease)
{
	SweepQueueSlot *slot = sweep_queue_slot(sweep_queue_leases()[lease].slot);
	int			number = slot->returned_first;

	if (number < 0)
		return -1;
	unlink_hold(number);
	sweep_queue_holds()[number].state = HOLD_HELD;
	sweep_queue_holds()[number].attempts++;
	link_last(&sweep_queue_leases()[lease], number);
	return number;
}

int
sweep_hold_find(const SweepQueueSlot *slot, int16 lane, int64 message_id)
{
	int			slot_number = sweep_queue_slot_number(slot);
	int			number = sweep_queue_memory()->buckets[bucket_of(slot_number, lane, message_id)];

	while (number >= 0)
	{
		const SweepHold *hold = &sweep_queue_holds()[number];

		if (hold->message.message_id == message_id && hold->message.lane == lane && hold->slot == slot_number)
			return number;
		number = hold->hash_next;
	}
	return -1;
}

bool
sweep_hold_find_returned(const SweepQueueSlot *slot, uint32 key_hash, int nth, SweepFound *message)
{
	int			slot_number = sweep_queue_slot_number(slot);

	for (int number = *key_bucket_of(slot_number, key_hash); number >= 0; number = sweep_queue_holds()[number].key_next)
	{
		const SweepHold *hold = &sweep_queue_holds()[number];

		if (hold->state != HOLD_RETURNED || hold->slot != slot_number || hold->message.key_hash != key_hash || nth-- > 0)
			continue;
		*message = hold->message;
		return true;
	}
	return false;
}

void
sweep_hold_free(int number)
{
	SweepHold  *hold = &sweep_queue_holds()[number];
	int			lease = hold->lease;
	SweepQueueSlot *slot = sweep_queue_slot(hold->slot);
	int		   *link = &sweep_queue_memory()->buckets[bucket_of(hold->slot, hold->message.lane, hold->message.message_id)];

	unlink_hold(number);
	while (*link != number)
		link = &sweep_queue_holds()[*link].hash_next;
	*link = hold->hash_next;
	if (hold->message.key_hash != 0)
	{
		link = key_bucket_of(hold->slot, hold->message.key_hash);
		while (*link != number)
			link = &sweep_queue_holds()[*link].key_next;
		*link = hold->key_next;
	}
	hold->state = HOLD_FREE;
	hold->next = sweep_queue_memory()->shared->free_hold;
	sweep_queue_memory()->shared->free_hold = number;
	if (lease >= 0)
		sweep_hold_end_lease(lease);
	if (hold->message.key_hash != 0 && slot->blocked_first >= 0)
		unblock_by_key(slot, hold->message.key_hash);
}

void
sweep_hold_give_back(int number)
{
	SweepHold  *hold = &sweep_queue_holds()[number];
	int			lease = hold->lease;

	/* What waits for its end goes on waiting: it has not ended. */
	unlink_hold(number);
	append_returned(sweep_queue_slot(hold->slot), number);
	if (lease >= 0)
		sweep_hold_end_lease(lease);
}

bool
sweep_hold_block_by_key(int number)
{
	SweepHold  *hold = &sweep_queue_holds()[number];
	SweepQueueSlot *slot = sweep_queue_slot(hold->slot);
	int			other = *key_bucket_of(hold->slot, hold->message.key_hash);
	int			holder = hold->holder;

	while (other >= 0 && (other == number || sweep_queue_holds()[other].state == HOLD_BLOCKED ||
						  sweep_queue_holds()[other].slot != hold->slot ||
						  sweep_queue_holds()[other].message.key_hash != hold->message.key_hash))
		other = sweep_queue_holds()[other].key_next;
	if (other < 0)
		return false;
	/* It goes on counting as that of whoever has claimed it: nobody else can have its place. */
	sweep_holder_count_message(holder, 1);
	unlink_hold(number);
	hold->holder = holder;
	hold->state = HOLD_BLOCKED;
	hold->attempts--;
	hold->previous = -1;
	hold->next = slot->blocked_first;
	if (hold->next >= 0)
		sweep_queue_holds()[hold->next].previous = number;
	slot->blocked_first = number;
	return true;
}

void
sweep_hold_put_off(int number, int lease)
{
	SweepHold  *hold = &sweep_queue_holds()[number];

	unlink_hold(number);
	hold->attempts--;
	link_last(&sweep_queue_leases()[lease], number);
}

int
sweep_hold_give_back_lease(int number)
{
	int			count = 0;
	int			next;

	for (int hold = sweep_queue_leases()[number].hold_first; hold >= 0; hold = next)
	{
		next = sweep_queue_holds()[hold].next;
		if (sweep_queue_holds()[hold].state != HOLD_HELD)
			continue;
		sweep_hold_give_back(hold);
		count++;
	}
	/* One that has never held anything. */
	sweep_hold_end_lease(number);
	return count;
}

void
sweep_hold_expire(SweepQueueSlot *slot, TimestampTz now)
{
	TimestampTz next_expiry = SWEEP_NOTHING_DUE;
	int			next;

	if (slot->next_expiry > now)
		return;
	for (int number = slot->lease_first; number >= 0; number = next)
	{
		SweepQueueLease *lease = &sweep_queue_leases()[number];

		next = lease->next;
		/* What is being ended stays with its lease; if that fails it is noted again, see forget.c. */
		if (lease->expires_at > now)
			next_expiry = Min(next_expiry, lease->expires_at);
		else
			(void) sweep_hold_give_back_lease(number);
	}
	slot->next_expiry = next_expiry;
}

bool
sweep_hold_reclaim(Oid role)
{
	TimestampTz now = GetCurrentTimestamp();
	bool		reclaimed = false;

	for (int i = 0; i < sweep_queue_slot_count(); i++)
	{
		SweepQueueSlot *slot = sweep_queue_slot(i);

		if (slot->generation == 0 || (OidIsValid(role) && slot->role != role))
			continue;
		sweep_hold_expire(slot, now);
		if (slot->returned_first < 0)
			continue;
		while (slot->returned_first >= 0)
			sweep_hold_free(slot->returned_first);
		sweep_queue_reset_slot(slot);
		reclaimed = true;
	}
	return reclaimed;
}

static uint32
bucket_of(int slot, int16 lane, int64 message_id)
{
	return murmurhash32((uint32) message_id ^ ((uint32) slot << 20) ^ (uint32) lane) % (uint32) sweep_max_leases;
}

/* Not only of this queue, and of this key. */
static int *
key_bucket_of(int slot, uint32 key_hash)
{
	return &sweep_queue_memory()->key_buckets[murmurhash32(key_hash ^ ((uint32) slot << 20)) % (uint32) sweep_max_leases];
}

static void
link_last(SweepQueueLease *lease, int number)
{
	SweepHold  *hold = &sweep_queue_holds()[number];

	hold->lease = (int) (lease - sweep_queue_leases());
	hold->previous = lease->hold_last;
	hold->next = -1;
	if (hold->previous >= 0)
		sweep_queue_holds()[hold->previous].next = number;
	else
		lease->hold_first = number;
	lease->hold_last = number;
	lease->hold_count++;
	hold->holder = lease->holder;
	sweep_holder_count_message(hold->holder, 1);
	sweep_queue_slot(hold->slot)->held[SWEEP_LANE_IS_DELAYED(hold->message.lane)]++;
}

/* Out of the list it is in: that of its lease, of what was returned, or of what is blocked. */
static void
unlink_hold(int number)
{
	SweepHold  *hold = &sweep_queue_holds()[number];
	SweepQueueSlot *slot = sweep_queue_slot(hold->slot);
	SweepQueueLease *lease = hold->lease >= 0 ? &sweep_queue_leases()[hold->lease] : NULL;
	int		   *first = lease ? &lease->hold_first : hold->state == HOLD_BLOCKED ? &slot->blocked_first : &slot->returned_first;

	if (hold->previous >= 0)
		sweep_queue_holds()[hold->previous].next = hold->next;
	else
		*first = hold->next;
	if (hold->next >= 0)
		sweep_queue_holds()[hold->next].previous = hold->previous;
	else if (lease)
		lease->hold_last = hold->previous;
	else if (hold->state == HOLD_RETURNED)
		slot->returned_last = hold->previous;
	if (lease)
	{
		lease->hold_count--;
		slot->held[SWEEP_LANE_IS_DELAYED(hold->message.lane)]--;
	}
	else if (hold->state == HOLD_RETURNED)
		slot->returned_count--;
	if (hold->holder >= 0)
		sweep_holder_count_message(hold->holder, -1);
	hold->holder = -1;
	hold->lease = -1;
}

static void
append_returned(SweepQueueSlot *slot, int number)
{
	SweepHold  *hold = &sweep_queue_holds()[number];

	hold->state = HOLD_RETURNED;
	hold->lease = -1;
	hold->previous = slot->returned_last;
	hold->next = -1;
	if (hold->previous >= 0)
		sweep_queue_holds()[hold->previous].next = number;
	else
		slot->returned_first = number;
	slot->returned_last = number;
	slot->returned_count++;
	sweep_queue_wake(slot, 1);
}

static void
unblock_by_key(SweepQueueSlot *slot, uint32 key_hash)
{
	int			slot_number = sweep_queue_slot_number(slot);

	for (int number = *key_bucket_of(slot_number, key_hash); number >= 0; number = sweep_queue_holds()[number].key_next)
	{
		const SweepHold *hold = &sweep_queue_holds()[number];

		if (hold->state != HOLD_BLOCKED || hold->slot != slot_number || hold->message.key_hash != key_hash)
			continue;
		unlink_hold(number);
		append_returned(slot, number);
		return;
	}
}
