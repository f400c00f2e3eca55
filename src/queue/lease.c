/*
 * lease.c
 *		The leases of a queue, in shared memory.
 *
 * The id of a lease begins with its number: finding a lease takes no search. The leases of a queue that have an end are
 * a leftist heap, ordered by it: the end of the first is known, and a change takes a time that grows with the logarithm
 * of the number of leases. A claim gives its lease an end when it has all its messages.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "queue/holder.h"
#include "queue/lease.h"

static int
rank_of(int number)
{
	return number < 0 ? 0 : sweep_queue_lease(number)->rank;
}

/* Puts the child with the higher rank to the left; returns whether the rank of the lease has changed. */
static bool
order_children(SweepQueueLease *lease)
{
	int			rank = Min(rank_of(lease->left), rank_of(lease->right)) + 1;
	bool		changed = rank != lease->rank;

	if (rank_of(lease->left) < rank_of(lease->right))
	{
		int			left = lease->left;

		lease->left = lease->right;
		lease->right = left;
	}
	lease->rank = (int16) rank;
	return changed;
}

/* Makes one heap of two, and returns its root. The depth is that of the right spines, which are short. */
static int
merge(int a, int b)
{
	SweepQueueLease *lease;

	if (a < 0 || b < 0)
		return a < 0 ? b : a;
	if (sweep_queue_lease(b)->expires_us < sweep_queue_lease(a)->expires_us)
	{
		int			first = b;

		b = a;
		a = first;
	}
	lease = sweep_queue_lease(a);
	lease->right = merge(lease->right, b);
	sweep_queue_lease(lease->right)->parent = a;
	(void) order_children(lease);
	return a;
}

static void
set_root(SweepQueueSlot *slot, int root)
{
	slot->lease_root = root;
	if (root >= 0)
		sweep_queue_lease(root)->parent = -1;
}

static void
take_from_heap(int number)
{
	SweepQueueLease *lease = sweep_queue_lease(number);
	int			rest = merge(lease->left, lease->right);
	int			parent = lease->parent;

	if (parent < 0)
	{
		set_root(sweep_queue_slot(lease->slot), rest);
		return;
	}
	if (rest >= 0)
		sweep_queue_lease(rest)->parent = parent;
	if (sweep_queue_lease(parent)->left == number)
		sweep_queue_lease(parent)->left = rest;
	else
		sweep_queue_lease(parent)->right = rest;
	/* Each rank that changes is one more than the one below: there are few. */
	while (parent >= 0 && order_children(sweep_queue_lease(parent)))
		parent = sweep_queue_lease(parent)->parent;
}

int
sweep_lease_new(SweepQueueSlot *slot, const uint8 *random, Oid role)
{
	SweepQueueShared *shared = sweep_queue_memory.shared;
	int			number = shared->free_lease;
	SweepQueueLease *lease;

	if (number < 0 && shared->used_leases == sweep_max_in_flight)
		return -1;
	if (number >= 0)
		shared->free_lease = sweep_queue_lease(number)->left;
	else
		number = shared->used_leases++;
	lease = sweep_queue_lease(number);
	memcpy(lease->id.data, &number, sizeof(number));
	memcpy(lease->id.data + sizeof(number), random, UUID_LEN - sizeof(number));
	lease->slot = (int16) sweep_queue_slot_number(slot);
	lease->messages = (SweepMessageList) {.first = -1, .last = -1};
	lease->ending = 0;
	lease->expires_us = SWEEP_NOTHING_DUE;
	lease->holder = (int16) sweep_holder_find(role);
	sweep_holder_count(lease->holder, HELD_LEASES, 1);
	slot->lease_count++;
	return number;
}

SweepQueueLease *
sweep_lease_find(const pg_uuid_t *id)
{
	int			number;
	SweepQueueLease *lease;

	memcpy(&number, id->data, sizeof(number));
	if (number < 0 || number >= sweep_queue_memory.shared->used_leases)
		return NULL;
	lease = sweep_queue_lease(number);
	if (lease->slot < 0 || memcmp(&lease->id, id, sizeof(*id)) != 0 || sweep_queue_slot(lease->slot)->database != MyDatabaseId)
		return NULL;
	return lease;
}

void
sweep_lease_set_expiry(int number, int64 expires_us)
{
	SweepQueueLease *lease = sweep_queue_lease(number);
	SweepQueueSlot *slot = sweep_queue_slot(lease->slot);

	if (sweep_lease_has_end(lease))
		take_from_heap(number);
	lease->expires_us = expires_us;
	lease->left = lease->right = -1;
	lease->rank = 1;
	set_root(slot, merge(slot->lease_root, number));
	sweep_queue_note_expiry(slot, expires_us);
}

void
sweep_lease_free(int number)
{
	SweepQueueLease *lease = sweep_queue_lease(number);

	if (lease->messages.count > 0 || lease->ending > 0)
		return;
	if (sweep_lease_has_end(lease))
		take_from_heap(number);
	sweep_holder_count(lease->holder, HELD_LEASES, -1);
	sweep_queue_slot(lease->slot)->lease_count--;
	lease->slot = -1;
	lease->left = sweep_queue_memory.shared->free_lease;
	sweep_queue_memory.shared->free_lease = number;
}
