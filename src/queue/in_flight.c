/*
 * in_flight.c
 *		Leases of queues and the messages in flight, in shared memory.
 *
 * A claim writes nothing to the table: that a message is claimed is an entry here, found by the name of its lease and
 * by its queue, lane and id. An entry is in one list at a time: that of its lease, that of the messages returned to its
 * queue, that of those blocked by their keys, or that of the free entries; and always in a hash chain unless it is
 * free. The name of a lease starts with its index, so finding it takes no search.
 *
 * A message whose lease ran out or that was returned stays here, without a lease, and is the next to be claimed. So
 * no position has to be set back for it, and nobody walks over the front of the queue again to find it.
 *
 * The transaction that removes a message settles its entry at its end, by its number. Only when a purge was prepared,
 * which is rare, are all entries walked over, in pieces (prepared.c).
 *
 * Lists and hash chains are numbers and not those of the server: those of ilist.h are pointers, and a hash table of
 * dynahash.c has one key, takes a lock of its own or a partition, and costs more than a chain of numbers.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "miscadmin.h"

#include "queue/holder.h"
#include "queue/in_flight.h"

static uint32 bucket_of(int slot, int16 lane, int64 message_id);
static int *key_bucket_of(int slot, uint32 key_hash);
static void append(SweepMessageList *list, int number);
static void append_to_lease(int lease, int number);
static void append_returned(SweepQueueSlot *slot, int number);
static void unlink_entry(int number);
static void unblock_by_key(SweepQueueSlot *slot, uint32 key_hash);
static void lease_again(SweepInFlight *entry);

int
sweep_in_flight_new_lease(SweepQueueSlot *slot, int64 expires_us, const uint8 *random, Oid role)
{
	int			number = sweep_queue_memory.shared->free_lease;
	SweepQueueLease *lease = sweep_queue_lease(number);

	if (number < 0)
		return -1;
	sweep_queue_memory.shared->free_lease = lease->next;
	memcpy(lease->id.data, &number, sizeof(number));
	memcpy(lease->id.data + sizeof(number), random, UUID_LEN - sizeof(number));
	lease->slot = sweep_queue_slot_number(slot);
	lease->messages = (SweepMessageList) {.first = -1,.last = -1};
	lease->holder = sweep_holder_find(role);
	sweep_holder_count_lease(lease->holder, 1);
	lease->expires_us = expires_us;
	lease->previous = -1;
	lease->next = slot->lease_first;
	if (lease->next >= 0)
		sweep_queue_lease(lease->next)->previous = number;
	slot->lease_first = number;
	sweep_queue_note_expiry(slot, expires_us);
	return number;
}

SweepQueueLease *
sweep_in_flight_find_lease(const pg_uuid_t *id)
{
	int			number;
	SweepQueueLease *lease;

	memcpy(&number, id->data, sizeof(number));
	if (number < 0 || number >= sweep_max_in_flight)
		return NULL;
	lease = sweep_queue_lease(number);
	if (lease->slot < 0 || memcmp(&lease->id, id, sizeof(*id)) != 0 || sweep_queue_slot(lease->slot)->database != MyDatabaseId)
		return NULL;
	return lease;
}

void
sweep_in_flight_end_lease(int number)
{
	SweepQueueLease *lease = sweep_queue_lease(number);

	if (lease->slot < 0 || lease->messages.count > 0)
		return;
	if (lease->previous >= 0)
		sweep_queue_lease(lease->previous)->next = lease->next;
	else
		sweep_queue_slot(lease->slot)->lease_first = lease->next;
	if (lease->next >= 0)
		sweep_queue_lease(lease->next)->previous = lease->previous;
	lease->slot = -1;
	sweep_holder_count_lease(lease->holder, -1);
	lease->next = sweep_queue_memory.shared->free_lease;
	sweep_queue_memory.shared->free_lease = number;
}

int
sweep_in_flight_add(int lease, const SweepMessageRef *message)
{
	int			number = sweep_queue_memory.shared->free_in_flight;
	SweepInFlight *entry = sweep_in_flight(number);
	int		   *bucket;

	if (number < 0)
		return -1;
	sweep_queue_memory.shared->free_in_flight = entry->next;
	entry->message = *message;
	entry->purged_by = InvalidTransactionId;
	entry->state = IN_FLIGHT_LEASED;
	entry->slot = sweep_queue_lease(lease)->slot;
	entry->attempts = message->attempts + 1;
	bucket = &sweep_queue_memory.buckets[bucket_of(entry->slot, message->lane, message->message_id)];
	entry->hash_next = *bucket;
	*bucket = number;
	if (message->key_hash != 0)
	{
		bucket = key_bucket_of(entry->slot, message->key_hash);
		entry->key_next = *bucket;
		*bucket = number;
	}
	append_to_lease(lease, number);
	return number;
}

int
sweep_in_flight_take_returned(int lease)
{
	SweepQueueSlot *slot = sweep_queue_slot(sweep_queue_lease(lease)->slot);
	int			number = slot->returned.first;

	if (number < 0)
		return -1;
	unlink_entry(number);
	sweep_in_flight(number)->state = IN_FLIGHT_LEASED;
	sweep_in_flight(number)->attempts++;
	append_to_lease(lease, number);
	return number;
}

int
sweep_in_flight_find(const SweepQueueSlot *slot, int16 lane, int64 message_id)
{
	int			slot_number = sweep_queue_slot_number(slot);
	int			number = sweep_queue_memory.buckets[bucket_of(slot_number, lane, message_id)];

	while (number >= 0)
	{
		const SweepInFlight *entry = sweep_in_flight(number);

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

	for (int number = *key_bucket_of(slot_number, key_hash); number >= 0; number = sweep_in_flight(number)->key_next)
	{
		const SweepInFlight *entry = sweep_in_flight(number);

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
	SweepInFlight *entry = sweep_in_flight(number);
	int			lease = entry->lease;
	SweepQueueSlot *slot = sweep_queue_slot(entry->slot);
	int		   *link = &sweep_queue_memory.buckets[bucket_of(entry->slot, entry->message.lane, entry->message.message_id)];

	unlink_entry(number);
	while (*link != number)
		link = &sweep_in_flight(*link)->hash_next;
	*link = entry->hash_next;
	if (entry->message.key_hash != 0)
	{
		link = key_bucket_of(entry->slot, entry->message.key_hash);
		while (*link != number)
			link = &sweep_in_flight(*link)->key_next;
		*link = entry->key_next;
	}
	entry->state = IN_FLIGHT_FREE;
	entry->next = sweep_queue_memory.shared->free_in_flight;
	sweep_queue_memory.shared->free_in_flight = number;
	if (lease >= 0)
		sweep_in_flight_end_lease(lease);
	if (entry->message.key_hash != 0 && slot->blocked.first >= 0)
		unblock_by_key(slot, entry->message.key_hash);
}

void
sweep_in_flight_return(int number)
{
	SweepInFlight *entry = sweep_in_flight(number);
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
	SweepInFlight *entry = sweep_in_flight(number);
	SweepQueueSlot *slot = sweep_queue_slot(entry->slot);
	int			other = *key_bucket_of(entry->slot, entry->message.key_hash);
	int			holder = entry->holder;

	while (other >= 0 && (other == number || sweep_in_flight(other)->state == IN_FLIGHT_BLOCKED ||
						  sweep_in_flight(other)->slot != entry->slot ||
						  sweep_in_flight(other)->message.key_hash != entry->message.key_hash))
		other = sweep_in_flight(other)->key_next;
	if (other < 0)
		return false;
	/* It goes on counting as that of whoever has claimed it: nobody else can have its place. */
	sweep_holder_count_message(holder, 1);
	unlink_entry(number);
	entry->holder = holder;
	entry->state = IN_FLIGHT_BLOCKED;
	entry->attempts--;
	append(&slot->blocked, number);
	return true;
}

void
sweep_in_flight_postpone(int number, int lease)
{
	SweepInFlight *entry = sweep_in_flight(number);

	unlink_entry(number);
	entry->attempts--;
	append_to_lease(lease, number);
}

int
sweep_in_flight_return_lease(int number)
{
	int			count = 0;
	int			next;

	for (int entry = sweep_queue_lease(number)->messages.first; entry >= 0; entry = next)
	{
		next = sweep_in_flight(entry)->next;
		if (sweep_in_flight(entry)->state != IN_FLIGHT_LEASED)
			continue;
		sweep_in_flight_return(entry);
		count++;
	}
	/* One that has never held anything. */
	sweep_in_flight_end_lease(number);
	return count;
}

void
sweep_in_flight_expire(SweepQueueSlot *slot, int64 now_us)
{
	int64		next_expiry_us = SWEEP_NOTHING_DUE;
	int			next;

	if (slot->next_expiry_us > now_us)
		return;
	for (int number = slot->lease_first; number >= 0; number = next)
	{
		SweepQueueLease *lease = sweep_queue_lease(number);

		next = lease->next;
		/* What is being ended stays with its lease; if that fails it is noted again, see lease_again(). */
		if (lease->expires_us > now_us)
			next_expiry_us = Min(next_expiry_us, lease->expires_us);
		else
			(void) sweep_in_flight_return_lease(number);
	}
	slot->next_expiry_us = next_expiry_us;
}

void
sweep_in_flight_remove_all(SweepQueueSlot *slot, bool ending)
{
	int			next_lease;
	int			next;

	for (int lease = slot->lease_first; lease >= 0; lease = next_lease)
	{
		next_lease = sweep_queue_lease(lease)->next;
		for (int number = sweep_queue_lease(lease)->messages.first; number >= 0; number = next)
		{
			const SweepInFlight *entry = sweep_in_flight(number);

			next = entry->next;
			/* What a transaction is ending, it also forgets. */
			if (ending || (entry->state != IN_FLIGHT_ENDING && entry->state != IN_FLIGHT_PREPARED))
				sweep_in_flight_remove(number);
		}
	}
	/* The end of one that is blocked may return another one. */
	while (slot->blocked.first >= 0)
		sweep_in_flight_remove(slot->blocked.first);
	while (slot->returned.first >= 0)
		sweep_in_flight_remove(slot->returned.first);
}

void
sweep_in_flight_settle_purged(int number, TransactionId xid, bool committed)
{
	SweepInFlight *entry = sweep_in_flight(number);

	if (entry->state == IN_FLIGHT_FREE || entry->purged_by != xid)
		return;
	if (!committed)
		entry->purged_by = InvalidTransactionId;
	else if (entry->state != IN_FLIGHT_ENDING && entry->state != IN_FLIGHT_PREPARED)
		sweep_in_flight_remove(number);
}

void
sweep_in_flight_settle_ending(int number, bool committed)
{
	SweepInFlight *entry = sweep_in_flight(number);

	if (entry->state != IN_FLIGHT_ENDING || entry->pid != MyProcPid)
		return;
	if (committed)
		sweep_in_flight_remove(number);
	else
		lease_again(entry);
}

void
sweep_in_flight_settle_prepared(SweepQueueSlot *slot, TransactionId xid, bool committed)
{
	int			next_lease;
	int			next;

	for (int lease = slot->lease_first; lease >= 0; lease = next_lease)
	{
		next_lease = sweep_queue_lease(lease)->next;
		for (int number = sweep_queue_lease(lease)->messages.first; number >= 0; number = next)
		{
			SweepInFlight *entry = sweep_in_flight(number);

			next = entry->next;
			if (entry->state != IN_FLIGHT_PREPARED || entry->xid != xid)
				continue;
			if (committed)
				sweep_in_flight_remove(number);
			else
				lease_again(entry);
		}
	}
}

static uint32
bucket_of(int slot, int16 lane, int64 message_id)
{
	return murmurhash32((uint32) message_id ^ ((uint32) slot << 20) ^ (uint32) lane) % (uint32) sweep_max_in_flight;
}

/* Not only of this queue, and of this key. */
static int *
key_bucket_of(int slot, uint32 key_hash)
{
	return &sweep_queue_memory.key_buckets[murmurhash32(key_hash ^ ((uint32) slot << 20)) % (uint32) sweep_max_in_flight];
}

static void
append(SweepMessageList *list, int number)
{
	SweepInFlight *entry = sweep_in_flight(number);

	entry->previous = list->last;
	entry->next = -1;
	*(list->last >= 0 ? &sweep_in_flight(list->last)->next : &list->first) = number;
	list->last = number;
	list->count++;
}

static void
append_to_lease(int lease, int number)
{
	SweepInFlight *entry = sweep_in_flight(number);

	append(&sweep_queue_lease(lease)->messages, number);
	entry->lease = lease;
	entry->holder = sweep_queue_lease(lease)->holder;
	sweep_holder_count_message(entry->holder, 1);
	sweep_queue_slot(entry->slot)->held[SWEEP_LANE_IS_DELAYED(entry->message.lane)]++;
}

static void
append_returned(SweepQueueSlot *slot, int number)
{
	append(&slot->returned, number);
	sweep_in_flight(number)->state = IN_FLIGHT_RETURNED;
	sweep_queue_wake(slot, 1);
}

/* Out of the list that it is in: that of its lease, of what was returned, or of what is blocked. */
static void
unlink_entry(int number)
{
	SweepInFlight *entry = sweep_in_flight(number);
	SweepQueueSlot *slot = sweep_queue_slot(entry->slot);
	SweepMessageList *list = entry->lease >= 0 ? &sweep_queue_lease(entry->lease)->messages
		: entry->state == IN_FLIGHT_BLOCKED ? &slot->blocked : &slot->returned;

	*(entry->previous >= 0 ? &sweep_in_flight(entry->previous)->next : &list->first) = entry->next;
	*(entry->next >= 0 ? &sweep_in_flight(entry->next)->previous : &list->last) = entry->previous;
	list->count--;
	if (entry->lease >= 0)
		slot->held[SWEEP_LANE_IS_DELAYED(entry->message.lane)]--;
	if (entry->holder >= 0)
		sweep_holder_count_message(entry->holder, -1);
	entry->holder = -1;
	entry->lease = -1;
}

static void
unblock_by_key(SweepQueueSlot *slot, uint32 key_hash)
{
	int			slot_number = sweep_queue_slot_number(slot);

	for (int number = *key_bucket_of(slot_number, key_hash); number >= 0; number = sweep_in_flight(number)->key_next)
	{
		const SweepInFlight *entry = sweep_in_flight(number);

		if (entry->state != IN_FLIGHT_BLOCKED || entry->slot != slot_number || entry->message.key_hash != key_hash)
			continue;
		unlink_entry(number);
		append_returned(slot, number);
		return;
	}
}

/* Its lease may have run out, and been stepped over for that, while the message was being ended. */
static void
lease_again(SweepInFlight *entry)
{
	entry->state = IN_FLIGHT_LEASED;
	sweep_queue_note_expiry(sweep_queue_slot(entry->slot), sweep_queue_lease(entry->lease)->expires_us);
}
