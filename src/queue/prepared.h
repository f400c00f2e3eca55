/*
 * prepared.h
 *		Transactions that were prepared after they have worked with queues.
 */
#ifndef SWEEP_QUEUE_PREPARED_H
#define SWEEP_QUEUE_PREPARED_H

#include "queue/memory.h"

/*
 * Notes what such a transaction did to a queue; the number of its record, or -1 if there is no room. The messages in
 * flight that it ends belong to its first record. The caller has the lock exclusively, here and below.
 */
extern int	sweep_prepared_note(TransactionId xid, const SweepQueueChange *change);
extern void sweep_prepared_forget(TransactionId xid);
extern void sweep_prepared_forget_database(Oid database);

/*
 * To be called before a search or a count, without the lock. After a restart of the server nothing is known of what
 * prepared transactions have done: when one of those that are there ends, every queue is searched from its start, and
 * counted again.
 */
extern void sweep_prepared_note_all(Oid relation);

/* Applies the changes of the prepared transactions that have ended, and settles what they were ending. Takes the lock itself. */
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
