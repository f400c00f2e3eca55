/*
 * slot_pool.h
 *		Room for queues and messages.
 *
 * The caller of every function has the lock of memory.h exclusively, unless said otherwise.
 */
#ifndef SWEEP_QUEUE_SLOT_POOL_H
#define SWEEP_QUEUE_SLOT_POOL_H

#include "miscadmin.h"

#include "queue/slot.h"

/*
 * A slot for a queue that has none: a free one, or that of an idle queue. NULL when all are busy, or those that the
 * role or the database may use. InvalidOid for whoever only counts: the slot is nobody's until a claim adopts it.
 */
extern SweepQueueSlot *sweep_queue_allot_slot(Oid relation, int32 queue_id, Oid role);

/* Makes a slot of nobody that of the current user; false when it has its share. */
extern bool sweep_queue_adopt_slot(SweepQueueSlot *slot);

/* Raises the error that says who uses how many slots; name is that of the queue. Do not hold the lock. */
pg_noreturn extern void sweep_queue_refuse_slot(const char *name);

/* While shared->short_of_slots: whether it is to be said that queues in use had to give way to others; once a minute at most. */
extern bool sweep_queue_take_shortage(int64 now_us);

/* Returns what leases have held that have run out, of all queues, for a holder that has its share; not more often than now and then. */
extern void sweep_queue_expire_all(int holder, int64 now_us);

/*
 * Makes room: what was given back, and what leases held that have run out, of whatever queue and
 * database, is forgotten, and those queues are looked at from their start. Only of queues in whose slots this
 * role is, if one is given. False when there was nothing.
 */
extern bool sweep_queue_reclaim(Oid role);

/* The slot of a queue, which it is given now if it has none. NULL as above. */
static inline SweepQueueSlot *
sweep_queue_get_slot(Oid relation, int32 queue_id)
{
	SweepQueueSlot *slot = sweep_queue_find_slot(relation, queue_id);

	return slot != NULL ? slot : sweep_queue_allot_slot(relation, queue_id, GetUserId());
}

#endif							/* SWEEP_QUEUE_SLOT_POOL_H */
