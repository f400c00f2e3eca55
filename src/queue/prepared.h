/*
 * prepared.h
 *		Transactions that were prepared after they have worked with queues.
 */
#ifndef SWEEP_QUEUE_PREPARED_H
#define SWEEP_QUEUE_PREPARED_H

#include "queue/memory.h"

/* Notes what one did to a queue, once; false when there is no room. Hold the lock exclusively, here and below. */
extern bool sweep_prepared_note(TransactionId xid, const SweepQueueChange *change);
extern void sweep_prepared_forget(TransactionId xid);
extern void sweep_prepared_forget_database(Oid database);

/*
 * To be called before a search or a count, without the lock. After a restart of the server there is no trace of what
 * prepared transactions have done: when one of those that are there ends, every queue is looked at from its start,
 * and counted again.
 */
extern void sweep_prepared_note_all(Oid relation);

/* Applies what those have done that have ended, and settles what they were ending. Do not hold the lock. */
extern void sweep_prepared_settle_ended(void);

static inline bool
sweep_prepared_exist(void)
{
	return pg_atomic_read_u32(&sweep_queue_memory.shared->prepared_count) > 0;
}

static inline void
sweep_prepared_settle(void)
{
	if (sweep_queue_memory_exists() && sweep_prepared_exist())
		sweep_prepared_settle_ended();
}

#endif							/* SWEEP_QUEUE_PREPARED_H */
