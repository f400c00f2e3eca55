/*
 * in_flight.c
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
#include "queue/in_flight.h"
#include "queue/holder.h"
#include "queue/memory.h"

static uint32 bucket_of(int slot, int16 lane, int64 message_id);
static int *key_bucket_of(int slot, uint32 key_hash);
static void link_last(SweepQueueLease *lease, int entry);
static void unlink_entry(int entry);
static void append_returned(SweepQueueSlot *slot, int entry);
static void unblock_by_key(SweepQueueSlot *slot, uint32 key_hash);

SweepInFlight *
sweep_in_flight_entries(void)
{
	return sweep_queue_memory()->entries;
}

SweepQueueLease *
sweep_in_flight_leases(void)
{
	return sweep_queue_memory()->leases;
}

void
sweep_in_flight_initialize(void)
{
	SweepInFlight  *entries = sweep_in_flight_entries();
	SweepQueueLease *leases = sweep_in_flight_leases();
	int		   *buckets = sweep_queue_memory()->buckets;
	int		   *key_buckets = sweep_queue_memory()->key_buckets;

	for (int i = 0; i < sweep_max_leases; i++)
	{
		buckets[i] = key_buckets[i] = -1;
		entries[i].next = leases[i].next = i + 1 < sweep_max_leases ? i + 1 : -1;
		leases[i].slot = -1;
	}
	sweep_queue_memory()->shared->free_entry = sweep_queue_memory()->shared->free_lease = 0;
}

int
sweep_in_flight_new_lease(SweepQueueSlot *slot, TimestampTz expires_at, const uint8 *random, Oid role)
{
	int			number = sweep_queue_memory()->shared->free_lease;
	SweepQueueLease *lease = &sweep_in_flight_leases()[number];

	if (number < 0)
		return -1;
	sweep_queue_memory()->shared->free_lease = lease->next;
	memcpy(lease->id.data, &number, sizeof(number));
	memcpy(lease->id.data + sizeof(number), random, UUID_LEN - sizeof(number));
	lease->slot = sweep_queue_slot_number(slot);
	lease->first = lease->last = -1;
	lease->count = 0;
	lease->holder = sweep_holder_find(role);
	sweep_holder_count_lease(lease->holder, 1);
	lease->expires_at = expires_at;
	lease->previous = -1;
	lease->next = slot->lease_first;
	if (lease->next >= 0)
		sweep_in_flight_leases()[lease->next].previous = number;
	slot->lease_first = number;
	sweep_queue_note_expiry(slot, expires_at);
	return number;
}

SweepQueueLease *
sweep_in_flight_find_lease(const pg_uuid_t *id)
{
	int			number;
	SweepQueueLease *lease;

	memcpy(&number, id->data, sizeof(number));
	if (number < 0 || number >= sweep_max_leases)
		return NULL;
	lease = &sweep_in_flight_leases()[number];
	if (lease->slot < 0 || memcmp(&lease->id, id, sizeof(*id)) != 0 || sweep_queue_slot(lease->slot)->database != MyDatabaseId)
		return NULL;
	return lease;
}

void
sweep_in_flight_end_lease(int number)
{
	SweepQueueLease *lease = &sweep_in_flight_leases()[number];

	if (lease->slot < 0 || lease->count > 0)
		return;
	if (lease->previous >= 0)
		sweep_in_flight_leases()[lease->previous].next = lease->next;
	else
		sweep_queue_slot(lease->slot)->lease_first = lease->next;
	if (lease->next >= 0)
		sweep_in_flight_leases()[lease->next].previous = lease->previous;
	lease->slot = -1;
	sweep_holder_count_lease(lease->holder, -1);
	lease->next = sweep_queue_memory()->shared->free_lease;
	sweep_queue_memory()->shared->free_lease = number;
}

int
sweep_in_flight_add(int lease, const SweepMessageRef *message)
{
	int			number = sweep_queue_memory()->shared->free_entry;
	SweepInFlight  *entry = &sweep_in_flight_entries()[number];
	int		   *bucket;

	if (number < 0)
		return -1;
	sweep_queue_memory()->shared->free_entry = entry->next;
	entry->message = *message;
	entry->purged_by = InvalidTransactionId;
	entry->state = IN_FLIGHT_LEASED;
	entry->slot = sweep_in_flight_leases()[lease].slot;
	entry->attempts = message->attempts + 1;
	bucket = &sweep_queue_memory()->buckets[bucket_of(entry->slot, message->lane, message->message_id)];
	entry->hash_next = *bucket;
	*bucket = number;
	if (message->key_hash != 0)
	{
		bucket = key_bucket_of(entry->slot, message->key_hash);
		entry->key_next = *bucket;
		*bucket = number;
	}
	link_last(&sweep_in_flight_leases()[lease], number);
	return number;
}

int
sweep_in_flight_take_returned(int lease)
{
	SweepQueueSlot *slot = sweep_queue_slot(sweep_in_flight_leases()[lease].slot);
	int			number = slot->returned_first;

	if (number < 0)
		return -1;
	unlink_entry(number);
	sweep_in_flight_entries()[number].state = IN_FLIGHT_LEASED;
	sweep_in_flight_entries()[number].attempts++;
	link_last(&sweep_in_flight_leases()[lease], number);
	return number;
}

int
sweep_in_flight_find(const SweepQueueSlot *slot, int16 lane, int64 message_id)
{
	int			slot_number = sweep_queue_slot_number(slot);
	int			number = sweep_queue_memory()->buckets[bucket_of(slot_number, lane, message_id)];

	while (number >= 0)
	{
		const SweepInFlight *entry = &sweep_in_flight_entries()[number];

		if (entry->message.message_id == message_id && entry->message.lane == lane && entry->slot == slot_number)
			return number;
		number = entry->hash_next;
	}
	return -1;
}

bool
sweep_in_flight_find_returned(const SweepQueueSlot *slot, uint32 key_hash, int nth, SweepMessageRef *message)
{
	int			slot_number = sweep_queue_slot_number(slot);

	for (int number = *key_bucket_of(slot_number, key_hash); number >= 0; number = sweep_in_flight_entries()[number].key_next)
	{
		const SweepInFlight *entry = &sweep_in_flight_entries()[number];

		if (entry->state != IN_FLIGHT_RETURNED || entry->slot != slot_number || entry->message.key_hash != key_hash || nth-- > 0)
			continue;
		*message = entry->message;
		return true;
	}
	return false;
}

void
sweep_in_flight_remove(int number)
{
	SweepInFlight  *entry = &sweep_in_flight_entries()[number];
	int			lease = entry->lease;
	SweepQueueSlot *slot = sweep_queue_slot(entry->slot);
	int		   *link = &sweep_queue_memory()->buckets[bucket_of(entry->slot, entry->message.lane, entry->message.message_id)];

	unlink_entry(number);
	while (*link != number)
		link = &sweep_in_flight_entries()[*link].hash_next;
	*link = entry->hash_next;
	if (entry->message.key_hash != 0)
	{
		link = key_bucket_of(entry->slot, entry->message.key_hash);
		while (*link != number)
			link = &sweep_in_flight_entries()[*link].key_next;
		*link = entry->key_next;
	}
	entry->state = IN_FLIGHT_FREE;
	entry->next = sweep_queue_memory()->shared->free_entry;
	sweep_queue_memory()->shared->free_entry = number;
	if (lease >= 0)
		sweep_in_flight_end_lease(lease);
	if (entry->message.key_hash != 0 && slot->blocked_first >= 0)
		unblock_by_key(slot, entry->message.key_hash);
}

void
sweep_in_flight_return(int number)
{
	SweepInFlight  *entry = &sweep_in_flight_entries()[number];
	int			lease = entry->lease;

	/* What waits for its end goes on waiting: it has not ended. */
	unlink_entry(number);
	append_returned(sweep_queue_slot(entry->slot), number);
	if (lease >= 0)
		sweep_in_flight_end_lease(lease);
}

bool
sweep_in_flight_block(int number)
{
	SweepInFlight  *entry = &sweep_in_flight_entries()[number];
	SweepQueueSlot *slot = sweep_queue_slot(entry->slot);
	int			other = *key_bucket_of(entry->slot, entry->message.key_hash);
	int			holder = entry->holder;

	while (other >= 0 && (other == number || sweep_in_flight_entries()[other].state == IN_FLIGHT_BLOCKED ||
						  sweep_in_flight_entries()[other].slot != entry->slot ||
						  sweep_in_flight_entries()[other].message.key_hash != entry->message.key_hash))
		other = sweep_in_flight_entries()[other].key_next;
	if (other < 0)
		return false;
	/* It goes on counting as that of whoever has claimed it: nobody else can have its place. */
	sweep_holder_count_message(holder, 1);
	unlink_entry(number);
	entry->holder = holder;
	entry->state = IN_FLIGHT_BLOCKED;
	entry->attempts--;
	entry->previous = -1;
	entry->next = slot->blocked_first;
	if (entry->next >= 0)
		sweep_in_flight_entries()[entry->next].previous = number;
	slot->blocked_first = number;
	return true;
}

void
sweep_in_flight_postpone(int number, int lease)
{
	SweepInFlight  *entry = &sweep_in_flight_entries()[number];

	unlink_entry(number);
	entry->attempts--;
	link_last(&sweep_in_flight_leases()[lease], number);
}

int
sweep_in_flight_return_lease(int number)
{
	int			count = 0;
	int			next;

	for (int entry = sweep_in_flight_leases()[number].first; entry >= 0; entry = next)
	{
		next = sweep_in_flight_entries()[entry].next;
		if (sweep_in_flight_entries()[entry].state != IN_FLIGHT_LEASED)
			continue;
		sweep_in_flight_return(entry);
		count++;
	}
	/* One that has never held anything. */
	sweep_in_flight_end_lease(number);
	return count;
}

void
sweep_in_flight_expire(SweepQueueSlot *slot, TimestampTz now)
{
	TimestampTz next_expiry = SWEEP_NOTHING_DUE;
	int			next;

	if (slot->next_expiry > now)
		return;
	for (int number = slot->lease_first; number >= 0; number = next)
	{
		SweepQueueLease *lease = &sweep_in_flight_leases()[number];

		next = lease->next;
		/* What is being ended stays with its lease; if that fails it is noted again, see forget.c. */
		if (lease->expires_at > now)
			next_expiry = Min(next_expiry, lease->expires_at);
		else
			(void) sweep_in_flight_return_lease(number);
	}
	slot->next_expiry = next_expiry;
}

bool
sweep_in_flight_reclaim(Oid role)
{
	TimestampTz now = GetCurrentTimestamp();
	bool		reclaimed = false;

	for (int i = 0; i < sweep_queue_slot_count(); i++)
	{
		SweepQueueSlot *slot = sweep_queue_slot(i);

		if (slot->generation == 0 || (OidIsValid(role) && slot->role != role))
			continue;
		sweep_in_flight_expire(slot, now);
		if (slot->returned_first < 0)
			continue;
		while (slot->returned_first >= 0)
			sweep_in_flight_remove(slot->returned_first);
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
	SweepInFlight  *entry = &sweep_in_flight_entries()[number];

	entry->lease = (int) (lease - sweep_in_flight_leases());
	entry->previous = lease->last;
	entry->next = -1;
	if (entry->previous >= 0)
		sweep_in_flight_entries()[entry->previous].next = number;
	else
		lease->first = number;
	lease->last = number;
	lease->count++;
	entry->holder = lease->holder;
	sweep_holder_count_message(entry->holder, 1);
	sweep_queue_slot(entry->slot)->held[SWEEP_LANE_IS_DELAYED(entry->message.lane)]++;
}

/* Out of the list it is in: that of its lease, of what was returned, or of what is blocked. */
static void
unlink_entry(int number)
{
	SweepInFlight  *entry = &sweep_in_flight_entries()[number];
	SweepQueueSlot *slot = sweep_queue_slot(entry->slot);
	SweepQueueLease *lease = entry->lease >= 0 ? &sweep_in_flight_leases()[entry->lease] : NULL;
	int		   *first = lease ? &lease->first : entry->state == IN_FLIGHT_BLOCKED ? &slot->blocked_first : &slot->returned_first;

	if (entry->previous >= 0)
		sweep_in_flight_entries()[entry->previous].next = entry->next;
	else
		*first = entry->next;
	if (entry->next >= 0)
		sweep_in_flight_entries()[entry->next].previous = entry->previous;
	else if (lease)
		lease->last = entry->previous;
	else if (entry->state == IN_FLIGHT_RETURNED)
		slot->returned_last = entry->previous;
	if (lease)
	{
		lease->count--;
		slot->held[SWEEP_LANE_IS_DELAYED(entry->message.lane)]--;
	}
	else if (entry->state == IN_FLIGHT_RETURNED)
		slot->returned_count--;
	if (entry->holder >= 0)
		sweep_holder_count_message(entry->holder, -1);
	entry->holder = -1;
	entry->lease = -1;
}

static void
append_returned(SweepQueueSlot *slot, int number)
{
	SweepInFlight  *entry = &sweep_in_flight_entries()[number];

	entry->state = IN_FLIGHT_RETURNED;
	entry->lease = -1;
	entry->previous = slot->returned_last;
	entry->next = -1;
	if (entry->previous >= 0)
		sweep_in_flight_entries()[entry->previous].next = number;
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

	for (int number = *key_bucket_of(slot_number, key_hash); number >= 0; number = sweep_in_flight_entries()[number].key_next)
	{
		const SweepInFlight *entry = &sweep_in_flight_entries()[number];

		if (entry->state != IN_FLIGHT_BLOCKED || entry->slot != slot_number || entry->message.key_hash != key_hash)
			continue;
		unlink_entry(number);
		append_returned(slot, number);
		return;
	}
}
