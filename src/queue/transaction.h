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

/*
 * Whether a statement on the table of messages is the extension's own, which notes its changes itself: it is executed between an increase
 * and a decrease of own_statements. A rollback of that level undoes the increase; a statement that has only fired a trigger with a
 * subtransaction of a level below goes on. After any other statement, all queues of the database are searched from their start when it commits.
 */
extern bool sweep_transaction_in_own_statement(void);

/* An action that a transaction leaves to its end. */
typedef enum SweepPendingKind
{
	PENDING_CLAIM,				/* a rollback returns the messages of the lease to the queue */
	PENDING_ENDING,				/* this transaction ends the message: gone at commit, LEASED again after a rollback */
	PENDING_PURGED,				/* this transaction has purged the message in flight: gone at commit */
} SweepPendingKind;

/* Reserves room for that many calls of sweep_transaction_note(), which then cannot fail. */
extern void sweep_transaction_reserve(int count);

/* Notes such an action for a message, by the number of its entry, or for a lease; the other argument is -1 or NULL. */
extern void sweep_transaction_note(SweepPendingKind kind, int message, const pg_uuid_t *lease);

/*
 * To be called without the lock, before a search or a count, unless knows_prepared is set. After a restart of the server it is not known what
 * the prepared transactions have done. When one of those that exist now ends, all queues are searched from their start, and counted again.
 */
extern void sweep_prepared_note_all(Oid relation);

/* Frees the slots of a database that was dropped, and the records of its prepared transactions. Takes the lock itself. */
extern void sweep_transaction_forget_database(Oid database);

#endif							/* SWEEP_QUEUE_TRANSACTION_H */
