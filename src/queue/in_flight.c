/*
 * in_flight.c
 *		The messages in flight, in shared memory.
 *
 * A claim writes nothing to the table; a claimed message has an entry here, found by queue, lane and id. An entry is in a
 * hash chain, and depending on its state in one list: the list of a lease, or that of the returned or the blocked messages of
 * its queue. An entry that a transaction is ending is in no list; the transaction has its number. Only change_state() changes
 * the state, and with it lists and counters.
 *
 * A message that was returned, or whose lease ran out, keeps its entry, without a lease, and is claimed next. No
 * position is lowered for it, so that no search has to read the start of the queue again.
 *
 * Messages with a key are also in a chain of messages with that key and a similar state. This makes the cost of finding one
 * independent of the number of messages in flight with that key.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "miscadmin.h"

#include "base/clock.h"
#include "queue/in_flight.h"

/* States of the messages in a chain by key. */
typedef enum KeyChain
{
	CHAIN_NONE,
	CHAIN_LEASED,				/* or ENDING, PREPARED */
	CHAIN_RETURNED,
	CHAIN_BLOCKED,
} KeyChain;

static int *
chain_head(int slot, int64 message_id)
{
	return &sweep_queue_memory.message_chains[murmurhash32((uint32) message_id ^ ((uint32) slot << 18)) % (uint32) sweep_max_in_flight];
}

static bool
is_of_lease(SweepInFlightState state)
{
	return state == IN_FLIGHT_LEASED || state == IN_FLIGHT_ENDING || state == IN_FLIGHT_PREPARED;
}

static KeyChain
chain_of(SweepInFlightState state)
{
	return is_of_lease(state) ? CHAIN_LEASED : state == IN_FLIGHT_RETURNED ? CHAIN_RETURNED :
		state == IN_FLIGHT_BLOCKED ? CHAIN_BLOCKED : CHAIN_NONE;
}

static int *
key_chain_head(int slot, uint32 key_hash, KeyChain chain)
{
	uint32		hash = murmurhash32(key_hash ^ ((uint32) slot << 18) ^ ((uint32) chain << 16));

	return &sweep_queue_memory.key_chains[hash % (uint32) sweep_max_in_flight];
}

/* key_previous of the first entry of a chain is the last entry, as a number below -1. New entries are appended: the oldest is first. */
#define KEY_CHAIN_LAST(number) (-2 - (number))

static void
change_chain(int number, KeyChain from, KeyChain to)
{
	SweepInFlight *entry = sweep_in_flight(number);
	int		   *head = key_chain_head(entry->slot, entry->message.key_hash, from);

	if (from != CHAIN_NONE)
	{
		*(entry->key_previous >= 0 ? &sweep_in_flight(entry->key_previous)->key_next : head) = entry->key_next;
		if (entry->key_next >= 0)
			sweep_in_flight(entry->key_next)->key_previous = entry->key_previous;
		else if (*head >= 0)
			sweep_in_flight(*head)->key_previous = KEY_CHAIN_LAST(entry->key_previous);
	}
	head = key_chain_head(entry->slot, entry->message.key_hash, to);
	if (to != CHAIN_NONE)
	{
		int			last = *head >= 0 ? KEY_CHAIN_LAST(sweep_in_flight(*head)->key_previous) : -1;

		*(last >= 0 ? &sweep_in_flight(last)->key_next : head) = number;
		sweep_in_flight(*head)->key_previous = KEY_CHAIN_LAST(number);
		if (last >= 0)
			entry->key_previous = last;
		entry->key_next = -1;
	}
}

/* The first entry with this key in its chain, from "number" on, skipping the entry "except"; -1 = none. */
static int
find_key(int number, int slot, KeyChain chain, uint32 key_hash, int except)
{
	while (number >= 0 && (number == except || sweep_in_flight(number)->slot != slot || sweep_in_flight(number)->message.key_hash != key_hash ||
						   chain_of(sweep_in_flight(number)->state) != chain))
		number = sweep_in_flight(number)->key_next;
	return number;
}

/* Whether another message with the key of this one is claimed or returned. */
static bool
is_blocked_by_another(int number)
{
	int			slot = sweep_in_flight(number)->slot;
	uint32		key_hash = sweep_in_flight(number)->message.key_hash;

	return find_key(*key_chain_head(slot, key_hash, CHAIN_LEASED), slot, CHAIN_LEASED, key_hash, number) >= 0 ||
		find_key(*key_chain_head(slot, key_hash, CHAIN_RETURNED), slot, CHAIN_RETURNED, key_hash, number) >= 0;
}

/* The list that an entry belongs to in its state, or NULL. */
static SweepMessageList *
list_of(const SweepInFlight *entry)
{
	switch ((SweepInFlightState) entry->state)
	{
		case IN_FLIGHT_LEASED:
			return &sweep_queue_lease(entry->lease)->messages;
		case IN_FLIGHT_RETURNED:
			return &sweep_queue_slot(entry->slot)->returned;
		case IN_FLIGHT_BLOCKED:
			return &sweep_queue_slot(entry->slot)->blocked;
		default:
			return NULL;
	}
}

static void
add_to_counters(const SweepInFlight *entry, int by)
{
	if (is_of_lease(entry->state))
		sweep_queue_slot(entry->slot)->held[SWEEP_LANE_IS_DELAYED(entry->message.lane)] += by;
	if (is_of_lease(entry->state) && entry->state != IN_FLIGHT_LEASED)
		sweep_queue_lease(entry->lease)->ending += by;
	/* A blocked message counts for the role that claimed it, since it uses an entry. */
	if (is_of_lease(entry->state) || entry->state == IN_FLIGHT_BLOCKED)
		sweep_holder_count(entry->holder, sweep_queue_slot(entry->slot)->database_holder, HELD_MESSAGES, by);
}

/* Moves an entry to another state. "lease" is its lease in that state; ignored for states without one. */
static void
change_state(int number, SweepInFlightState state, int lease)
{
	SweepInFlight *entry = sweep_in_flight(number);
	SweepMessageList *list = list_of(entry);
	KeyChain	chain = chain_of(entry->state);
	bool		undone = state == IN_FLIGHT_LEASED && (entry->state == IN_FLIGHT_ENDING || entry->state == IN_FLIGHT_PREPARED);
	int			left_lease = is_of_lease(entry->state) && (!is_of_lease(state) || lease != entry->lease) ? entry->lease : -1;

	if (list != NULL)
	{
		*(entry->previous >= 0 ? &sweep_in_flight(entry->previous)->next : &list->first) = entry->next;
		*(entry->next >= 0 ? &sweep_in_flight(entry->next)->previous : &list->last) = entry->previous;
		list->count--;
	}
	add_to_counters(entry, -1);
	entry->state = (uint8) state;
	if (is_of_lease(state))
	{
		entry->lease = lease;
		entry->holder = sweep_queue_lease(lease)->holder;
	}
	add_to_counters(entry, 1);
	list = list_of(entry);
	if (list != NULL)
	{
		/* A rollback undoes the last ending first: adding each message in front keeps the order. */
		entry->previous = undone ? -1 : list->last;
		entry->next = undone ? list->first : -1;
		*(entry->previous >= 0 ? &sweep_in_flight(entry->previous)->next : &list->first) = number;
		*(entry->next >= 0 ? &sweep_in_flight(entry->next)->previous : &list->last) = number;
		list->count++;
	}
	if (entry->message.key_hash != 0 && chain_of(state) != chain)
		change_chain(number, chain, chain_of(state));
	/* A lease without an end is that of a claim in progress, and stays. */
	if (left_lease >= 0 && sweep_lease_has_end(sweep_queue_lease(left_lease)))
		sweep_lease_free(left_lease);
}

int
sweep_in_flight_add(int lease, const SweepMessageRef *message)
{
	SweepQueueShared *shared = sweep_queue_memory.shared;
	int			number = shared->free_in_flight;
	SweepInFlight *entry;
	int		   *head;

	if (number < 0 && shared->used_in_flight == sweep_max_in_flight)
		return -1;
	if (number >= 0)
		shared->free_in_flight = sweep_in_flight(number)->next;
	else
		number = shared->used_in_flight++;
	entry = sweep_in_flight(number);
	entry->message = *message;
	entry->purged_by = InvalidTransactionId;
	entry->slot = sweep_queue_lease(lease)->slot;
	entry->attempts = (uint16) (message->attempts + 1);
	head = chain_head(entry->slot, message->message_id);
	entry->hash_next = *head;
	*head = number;
	change_state(number, IN_FLIGHT_LEASED, lease);
	return number;
}

int
sweep_in_flight_take_returned(int lease)
{
	int			number = sweep_queue_slot(sweep_queue_lease(lease)->slot)->returned.first;

	if (number < 0)
		return -1;
	sweep_in_flight(number)->attempts++;
	change_state(number, IN_FLIGHT_LEASED, lease);
	return number;
}

int
sweep_in_flight_find(const SweepQueueSlot *slot, int16 lane, int64 message_id)
{
	int			slot_number = sweep_queue_slot_number(slot);
	int			number = *chain_head(slot_number, message_id);

	while (number >= 0 && (sweep_in_flight(number)->message.message_id != message_id || sweep_in_flight(number)->message.lane != lane ||
						   sweep_in_flight(number)->slot != slot_number))
		number = sweep_in_flight(number)->hash_next;
	return number;
}

int
sweep_in_flight_find_leased(const SweepQueueLease *lease, int64 message_id)
{
	int			lease_number = sweep_queue_lease_number(lease);
	int			number = *chain_head(lease->slot, message_id);

	while (number >= 0 && (sweep_in_flight(number)->message.message_id != message_id || sweep_in_flight(number)->lease != lease_number ||
						   sweep_in_flight(number)->state != IN_FLIGHT_LEASED))
		number = sweep_in_flight(number)->hash_next;
	return number;
}

bool
sweep_in_flight_find_returned(const SweepQueueSlot *slot, uint32 key_hash, int nth, SweepMessageRef *message)
{
	int			slot_number = sweep_queue_slot_number(slot);
	int			number = *key_chain_head(slot_number, key_hash, CHAIN_RETURNED);

	while ((number = find_key(number, slot_number, CHAIN_RETURNED, key_hash, -1)) >= 0 && nth-- > 0)
		number = sweep_in_flight(number)->key_next;
	if (number >= 0)
		*message = sweep_in_flight(number)->message;
	return number >= 0;
}

void
sweep_in_flight_remove(int number)
{
	SweepInFlight *entry = sweep_in_flight(number);
	SweepQueueSlot *slot = sweep_queue_slot(entry->slot);
	int		   *link = chain_head(entry->slot, entry->message.message_id);

	while (*link != number)
		link = &sweep_in_flight(*link)->hash_next;
	*link = entry->hash_next;
	change_state(number, IN_FLIGHT_FREE, -1);
	entry->next = sweep_queue_memory.shared->free_in_flight;
	sweep_queue_memory.shared->free_in_flight = number;
	/* The removed message may have been blocked itself. */
	if (entry->message.key_hash != 0 && slot->blocked.first >= 0 && !is_blocked_by_another(number))
	{
		int			blocked = *key_chain_head(entry->slot, entry->message.key_hash, CHAIN_BLOCKED);

		blocked = find_key(blocked, entry->slot, CHAIN_BLOCKED, entry->message.key_hash, -1);
		if (blocked >= 0)
			change_state(blocked, IN_FLIGHT_RETURNED, -1);
	}
}

void
sweep_in_flight_return(int number, bool untried)
{
	/* Messages that this one blocks stay blocked: it has not ended. */
	if (untried)
		sweep_in_flight(number)->attempts--;
	change_state(number, IN_FLIGHT_RETURNED, -1);
}

bool
sweep_in_flight_block(int number)
{
	SweepInFlight *entry = sweep_in_flight(number);

	if (!is_blocked_by_another(number))
		return false;
	entry->attempts--;
	change_state(number, IN_FLIGHT_BLOCKED, -1);
	return true;
}

void
sweep_in_flight_postpone(int number, int lease)
{
	sweep_in_flight(number)->attempts--;
	change_state(number, IN_FLIGHT_LEASED, lease);
}

void
sweep_in_flight_begin_ending(int number)
{
	change_state(number, IN_FLIGHT_ENDING, sweep_in_flight(number)->lease);
	sweep_in_flight(number)->undone_state = IN_FLIGHT_LEASED;
	sweep_in_flight(number)->pid = MyProcPid;
}

bool
sweep_in_flight_waits(int number)
{
	return sweep_in_flight(number)->state == IN_FLIGHT_RETURNED || sweep_in_flight(number)->state == IN_FLIGHT_BLOCKED;
}

int
sweep_in_flight_begin_cancel(int number, int lease, const SweepMessageRef *message)
{
	/* Only the entry has the attempts of a returned message, so it must be kept after a rollback. */
	bool		returned = number >= 0 && sweep_in_flight(number)->state == IN_FLIGHT_RETURNED;

	if (number < 0)
		number = sweep_in_flight_add(lease, message);
	if (number < 0)
		return -1;
	change_state(number, IN_FLIGHT_ENDING, lease);
	sweep_in_flight(number)->undone_state = returned ? IN_FLIGHT_RETURNED : IN_FLIGHT_FREE;
	sweep_in_flight(number)->pid = MyProcPid;
	return number;
}

int
sweep_in_flight_compare_ids(const void *left, const void *right)
{
	int64		a = *(const int64 *) left;
	int64		b = *(const int64 *) right;

	return (a > b) - (a < b);
}

void
sweep_in_flight_return_lease(const pg_uuid_t *id, bool untried, const int64 *ids, int count)
{
	SweepQueueLease *lease = sweep_lease_find(id);
	int			returned = 0;

	while (lease != NULL && lease->messages.first >= 0)
	{
		const int64 *message_id = &sweep_in_flight(lease->messages.first)->message.message_id;

		sweep_in_flight_return(lease->messages.first, untried &&
							   (ids == NULL || bsearch(message_id, ids, count, sizeof(int64), sweep_in_flight_compare_ids) != NULL));
		(void) sweep_queue_lend_lock_after(SWEEP_QUEUE_PIECE, &returned);
		lease = sweep_lease_find(id);
	}
	/* The lease is still there if it had no messages, or has no end. */
	if (lease != NULL)
		sweep_lease_free(sweep_queue_lease_number(lease));
}

bool
sweep_in_flight_expire(SweepQueueSlot *slot)
{
	int64		now_us = sweep_monotonic_us();
	uint32		generation = slot->generation;
	int			returned = 0;

	if (slot->next_expiry_us > now_us)
		return true;
	while (slot->lease_root >= 0 && sweep_queue_lease(slot->lease_root)->expires_us <= now_us)
	{
		int			number = sweep_queue_lease(slot->lease_root)->messages.first;

		if (number >= 0)
			sweep_in_flight_return(number, false);
		else
			sweep_lease_set_expiry(slot->lease_root, SWEEP_LEASE_RAN_OUT);
		if (sweep_queue_lend_lock_after(SWEEP_QUEUE_PIECE, &returned) && slot->generation != generation)
			return false;
	}
	slot->next_expiry_us = slot->lease_root < 0 ? SWEEP_NOTHING_DUE : sweep_queue_lease(slot->lease_root)->expires_us;
	return true;
}

bool
sweep_in_flight_remove_all(SweepQueueSlot *slot)
{
	uint32		generation = slot->generation;
	int			removed = 0;

	for (;;)
	{
		SweepQueueLease *lease = slot->lease_root >= 0 ? sweep_queue_lease(slot->lease_root) : NULL;

		if (lease != NULL && lease->expires_us == SWEEP_LEASE_RAN_OUT)
			lease = NULL;
		if (lease != NULL && lease->messages.first < 0)
			sweep_lease_set_expiry(slot->lease_root, SWEEP_LEASE_RAN_OUT);
		else if (lease != NULL || slot->blocked.first >= 0 || slot->returned.first >= 0)
			sweep_in_flight_remove(lease != NULL ? lease->messages.first : slot->blocked.first >= 0 ? slot->blocked.first : slot->returned.first);
		else
			return true;
		if (sweep_queue_lend_lock_after(SWEEP_QUEUE_PIECE, &removed) && slot->generation != generation)
			return false;
	}
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

/* Removes the entry of a message whose cancellation was rolled back. A search finds it again, when it is due. */
static void
search_again(int number)
{
	SweepMessageRef message = sweep_in_flight(number)->message;
	SweepQueueSlot *slot = sweep_queue_slot(sweep_in_flight(number)->slot);

	sweep_in_flight_remove(number);
	if (SWEEP_LANE_IS_DELAYED(message.lane))
		sweep_queue_note_due(slot, message.due_at);
	else
		sweep_queue_lower_position(slot, SWEEP_LANE_INDEX(message.lane), message.message_id);
	sweep_queue_wake(slot, 1);
}

/* After a rollback the message is LEASED again, unless it was cancelled; its lease may have run out meanwhile. */
static void
settle(int number, bool committed)
{
	int			lease = sweep_in_flight(number)->lease;
	SweepInFlightState undone_state = sweep_in_flight(number)->undone_state;

	if (committed)
	{
		sweep_in_flight_remove(number);
		return;
	}
	if (undone_state == IN_FLIGHT_FREE)
	{
		search_again(number);
		return;
	}
	change_state(number, undone_state, lease);
	if (undone_state == IN_FLIGHT_RETURNED)
	{
		sweep_queue_wake(sweep_queue_slot(sweep_in_flight(number)->slot), 1);
		return;
	}
	if (sweep_queue_lease(lease)->expires_us == SWEEP_LEASE_RAN_OUT)
		sweep_lease_set_expiry(lease, 0);
}

void
sweep_in_flight_settle_ending(int number, bool committed)
{
	if (sweep_in_flight(number)->state == IN_FLIGHT_ENDING && sweep_in_flight(number)->pid == MyProcPid)
		settle(number, committed);
}

void
sweep_in_flight_prepare(int number, int *first)
{
	change_state(number, IN_FLIGHT_PREPARED, sweep_in_flight(number)->lease);
	sweep_in_flight(number)->next = *first;
	*first = number;
}

void
sweep_in_flight_settle_prepared(int *first, bool committed)
{
	int			number = *first;

	*first = sweep_in_flight(number)->next;
	settle(number, committed);
}
