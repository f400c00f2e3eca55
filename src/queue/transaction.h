/*
 * transaction.h
 *		Changes of queues by the transaction in progress and by prepared ones, until they end.
 *
 * Without shared memory these functions have no effect.
 */
#ifndef SWEEP_QUEUE_TRANSACTION_H
#define SWEEP_QUEUE_TRANSACTION_H

#include "queue/memory.h"

/* The record of the changes to a queue by the current (sub)transaction, to which the caller adds. queue_id 0: all queues. */
extern SweepQueueChange *sweep_transaction_change(Oid relation, int32 queue_id);

/* Whether the transaction has purged the queue, or truncated the table. */
extern bool sweep_transaction_has_emptied(Oid relation, int32 queue_id);

/* Reserves room for that many calls of the functions sweep_transaction_note_..., which then cannot fail. */
extern void sweep_transaction_reserve(int count);

/* Notes a claim: a rollback returns its messages to the queue. */
extern void sweep_transaction_note_claim(const pg_uuid_t *lease);

/* Notes a message that this transaction ends: gone at commit, LEASED again after a rollback. Called with the lock held. */
extern void sweep_transaction_note_ending(int number);

/* Notes a message in flight that this transaction has purged: gone at commit. */
extern void sweep_transaction_note_purged(int number);

/*
 * To be called without the lock, before a search or a count, unless knows_prepared is set. After a restart of the server it is not known what
 * the prepared transactions have done. When one of those that exist now ends, all queues are searched from their start, and counted again.
 */
extern void sweep_prepared_note_all(Oid relation);

/* Applies the changes of prepared transactions that have ended, and settles the messages that they were ending. Takes the lock itself. */
extern void sweep_prepared_settle_ended(void);

/* Frees the slots of a database that was dropped, and the records of its prepared transactions. Takes the lock itself. */
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
