/*
 * transaction.h
 *		What the transaction in progress has done to queues, until it ends.
 *
 * Without shared memory there is nobody to tell: everything here does nothing.
 */
#ifndef SWEEP_QUEUE_TRANSACTION_H
#define SWEEP_QUEUE_TRANSACTION_H

#include "queue/change.h"

/* What was done to a queue at the present level of subtransactions, to be added to. queue_id 0: all queues. */
extern SweepQueueChange *sweep_transaction_change(Oid relation, int32 queue_id);

/* A claim, undone by a rollback. Reserve room before it is made: noting it cannot fail then. */
extern void sweep_transaction_reserve(int count);
extern void sweep_transaction_note_claim(const pg_uuid_t *lease);

/* A message in state IN_FLIGHT_ENDING: gone when we commit, of its lease again when we roll back. */
extern void sweep_transaction_note_ending(int number);

/* A message in flight that this transaction has purged: gone when it commits. Reserve room as for a claim, here and above. */
extern void sweep_transaction_note_purged(int number);

/*
 * Statements on the table of messages between these two are ours, and the changes say what they do.
 * All others have every queue of the database looked at from its start when they commit.
 */
extern void sweep_transaction_begin_statement(void);
extern void sweep_transaction_end_statement(void);
extern bool sweep_transaction_in_statement(void);

#endif							/* SWEEP_QUEUE_TRANSACTION_H */
