/*
 * transaction.h
 *		Changes of queues by the transaction in progress, until it ends, and by prepared ones.
 *
 * Without shared memory all of this has no effect.
 */
#ifndef SWEEP_QUEUE_TRANSACTION_H
#define SWEEP_QUEUE_TRANSACTION_H

#include "queue/memory.h"

/* The changes to a queue at the present level of subtransactions, to be added to. queue_id 0: all queues. */
extern SweepQueueChange *sweep_transaction_change(Oid relation, int32 queue_id);

/* Whether the transaction has purged the queue, or truncated the table. */
extern bool sweep_transaction_has_emptied(Oid relation, int32 queue_id);

/* Reserves room for so many of the notes below, which then cannot fail. */
extern void sweep_transaction_reserve(int count);

/* A claim: a rollback gives its messages back. */
extern void sweep_transaction_note_claim(const pg_uuid_t *lease);

/* A message that this transaction ends: gone at commit, LEASED again at rollback. With the lock. */
extern void sweep_transaction_note_ending(int number);

/* A message in flight that this transaction has purged: gone at commit. */
extern void sweep_transaction_note_purged(int number);

/*
 * To be called before a search or a count unless knows_prepared is set, without the lock. After a restart of the server nothing is known of what
 * prepared transactions have done: when one of those that are there ends, every queue is searched from its start, and
 * counted again.
 */
extern void sweep_prepared_note_all(Oid relation);

/* Applies the changes of the prepared transactions that have ended, and settles what they were ending. Takes the lock itself. */
extern void sweep_prepared_settle_ended(void);

/* Forgets the queues of a database that was dropped, and its prepared transactions. Takes the lock itself. */
extern void sweep_transaction_forget_database(Oid database);

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

#endif							/* SWEEP_QUEUE_TRANSACTION_H */
