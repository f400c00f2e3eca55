/*
 * transaction.h
 *		What the transaction in progress has done to queues, until it ends.
 *
 * Without shared memory there is nobody to tell: everything here does nothing.
 */
#ifndef SWEEP_QUEUE_TRANSACTION_H
#define SWEEP_QUEUE_TRANSACTION_H

#include "queue/slot.h"

/* The books of a queue at the present level of subtransactions, to be added to. queue_id 0: all queues. */
extern SweepQueueChange *sweep_transaction_change(Oid relation, int32 queue_id);

/* Adds a message to them. */
extern void sweep_change_add_sent(SweepQueueChange *change, int16 lane, int64 message_id, TimestampTz due_at);

/*
 * A claim, undone by a rollback. Make room before the claim is made: noting it cannot fail then.
 */
extern void sweep_transaction_reserve(int count);
extern void sweep_transaction_note_claim(const pg_uuid_t *lease);

/* A hold of ours in state IN_FLIGHT_ENDING: free when we commit, held again when we roll back. */
extern void sweep_transaction_note_ending(int entry);

/*
 * Statements on the table of messages between these two are ours, and the books say what they do.
 * All others have every queue of the database looked at from its start when they commit.
 */
extern void sweep_transaction_begin_statement(void);
extern void sweep_transaction_end_statement(void);

#endif							/* SWEEP_QUEUE_TRANSACTION_H */
