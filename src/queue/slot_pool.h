/*
 * slot_pool.h
 *		Room for queues and messages: gives a queue a slot, and frees what nothing needs.
 *
 * The caller of every function has the lock of memory.h exclusively, unless said otherwise.
 */
#ifndef SWEEP_QUEUE_SLOT_POOL_H
#define SWEEP_QUEUE_SLOT_POOL_H

#include "miscadmin.h"

#include "base/clock.h"
#include "base/quota.h"
#include "queue/slot.h"

/*
 * Gives a slot to a queue that has none: a free one, or that of an idle queue. NULL, with the reason in *refusal, if none is found
 * among a few, or the role or the database has its share. A process that only counts passes InvalidOid as role: the slot counts for no
 * role until a claim adopts it.
 */
extern SweepQueueSlot *sweep_queue_allot_slot(Oid relation, int32 queue_id, Oid role, SweepRefusal *refusal);

/* Has a slot that counts for no role count for the current user; returns why that is refused. */
extern SweepRefusal sweep_queue_adopt_slot(SweepQueueSlot *slot);

/* Finds the slot of a queue, after the messages of leases that have run out were given back. May lend the lock before it finds the slot. */
extern SweepQueueSlot *sweep_queue_settle_leases(Oid relation, int32 queue_id);

/*
 * Makes room when the current user was refused a message or a slot: settles the leases that have run out, of all queues.
 * When everything is in use, or a slot is needed, it also forgets what was given back; those queues are then searched
 * from their start. Takes the lock itself, and lends it.
 */
extern void sweep_queue_make_room(SweepHeld what, SweepRefusal refusal);

/* Forgets a queue that is gone; processes that wait for its messages find that out when they look. May lend the lock. */
extern void sweep_queue_drop(SweepQueueSlot *slot);

/*
 * Applies a change to all queues of a database: a statement that is not the extension's own has written to the table, or
 * the table was dropped; no table: the database was. Lends the lock.
 */
extern void sweep_queue_apply_to_all(Oid database, const SweepQueueChange *change);

/* The slot of a queue, which it is given now if it has none. NULL as above. */
static inline SweepQueueSlot *
sweep_queue_get_slot(Oid relation, int32 queue_id)
{
	SweepQueueSlot *slot = sweep_queue_find_slot(relation, queue_id);
	SweepRefusal refusal;

	return slot != NULL ? slot : sweep_queue_allot_slot(relation, queue_id, GetUserId(), &refusal);
}

/* As sweep_queue_find_slot, with the leases settled that have run out: may lend the lock before it finds the slot. */
static inline SweepQueueSlot *
sweep_queue_find_settled(Oid relation, int32 queue_id)
{
	SweepQueueSlot *slot = sweep_queue_find_slot(relation, queue_id);

	return slot == NULL || slot->next_expiry_us > sweep_monotonic_us() ? slot : sweep_queue_settle_leases(relation, queue_id);
}

#endif							/* SWEEP_QUEUE_SLOT_POOL_H */
