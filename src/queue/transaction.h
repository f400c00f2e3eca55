/*
 * transaction.h
 *		What the transaction in progress has done to queues, until it ends.
 *
 * Without shared memory all of this has no effect.
 */
#ifndef SWEEP_QUEUE_TRANSACTION_H
#define SWEEP_QUEUE_TRANSACTION_H

#include "queue/change.h"

/* The changes to a queue at the present level of subtransactions, to be added to. queue_id 0: all queues. */
extern SweepQueueChange *sweep_transaction_change(Oid relation, int32 queue_id);

/* Reserves room for so many of the notes below, which then cannot fail. */
extern void sweep_transaction_reserve(int count);

/* A claim: a rollback gives its messages back. */
extern void sweep_transaction_note_claim(const pg_uuid_t *lease);

/* A message in state IN_FLIGHT_ENDING: gone at commit, LEASED again at rollback. */
extern void sweep_transaction_note_ending(int number);

/* A message in flight that this transaction has purged: gone at commit. */
extern void sweep_transaction_note_purged(int number);

/*
 * Statements on the table of messages between these two are the extension's own, and the changes say what they do.
 * After all others, every queue of the database is searched from its start when they commit.
 */
extern void sweep_transaction_begin_statement(void);
extern void sweep_transaction_end_statement(void);
extern bool sweep_transaction_in_statement(void);

#endif							/* SWEEP_QUEUE_TRANSACTION_H */
