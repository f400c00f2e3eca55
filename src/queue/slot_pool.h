/*
 * slot_pool.h
 *		Gives slots to queues, and makes room for slots and messages by freeing unused ones.
 *
 * Every function is called with the lock of memory.h held exclusively, unless its comment says otherwise.
 */
#ifndef SWEEP_QUEUE_SLOT_POOL_H
#define SWEEP_QUEUE_SLOT_POOL_H

#include "miscadmin.h"

#include "base/clock.h"
#include "base/quota.h"
#include "queue/in_flight.h"

/*
 * Gives a queue without a slot a free one, or that of an idle queue, for which a few slots are looked at. NULL, with the reason in
 * *refusal, if there is none, or the quota of the role or the database is used up by queues that are not idle. A process that only
 * counts passes InvalidOid as role: the slot counts for no role until a claim adopts it.
 */
extern SweepQueueSlot *sweep_queue_allot_slot(Oid relation, int32 queue_id, Oid role, SweepRefusal *refusal);

/* Makes a slot that counts for no role count for the current user; returns whether, and why, that is refused. */
extern SweepRefusal sweep_queue_adopt_slot(SweepQueueSlot *slot);

/*
 * Makes room when the current user was refused a message or a slot: returns the messages of leases that have run out, in
 * all queues. When all entries are in use, or a slot is needed, it also removes the entries of returned messages; their
 * queues are then searched from their start. Takes the lock itself, and lends it.
 */
extern void sweep_queue_make_room(SweepHeld what, SweepRefusal refusal);

/* Frees the slot of a queue that was dropped, and wakes the processes that wait for its messages. May lend the lock. */
extern void sweep_queue_drop(SweepQueueSlot *slot);

/*
 * Applies a change to all queues of a database: a statement that is not the extension's own has written to the table, or
 * the table was dropped, or (without a table) the database was. Lends the lock.
 */
extern void sweep_queue_apply_to_all(Oid database, const SweepQueueChange *change);

/* The slot of a queue; a queue without one is given one, or NULL, as by sweep_queue_allot_slot. */
static inline SweepQueueSlot *
sweep_queue_get_slot(Oid relation, int32 queue_id)
{
	SweepQueueSlot *slot = sweep_queue_find_slot(relation, queue_id);
	SweepRefusal refusal;

	return slot != NULL ? slot : sweep_queue_allot_slot(relation, queue_id, GetUserId(), &refusal);
}

/* Returns the messages of the queue's leases that have run out to the queue, and then finds its slot. May lend the lock before. */
static inline SweepQueueSlot *
sweep_queue_find_settled(Oid relation, int32 queue_id)
{
	SweepQueueSlot *slot;

	do
		slot = sweep_queue_find_slot(relation, queue_id);
	while (slot != NULL && slot->next_expiry_us <= sweep_monotonic_us() && !sweep_in_flight_expire(slot));
	return slot;
}

#endif							/* SWEEP_QUEUE_SLOT_POOL_H */
