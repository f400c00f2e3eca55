/*
 * change.h
 *		The changes that a transaction makes to a queue: collected while it runs, applied when it has committed.
 */
#ifndef SWEEP_QUEUE_CHANGE_H
#define SWEEP_QUEUE_CHANGE_H

#include "queue/memory.h"

/* Adds a message that is sent. */
extern void sweep_change_add_sent(SweepQueueChange *change, int16 lane, int64 message_id, TimestampTz due_at);

/* Adds what a subtransaction has done. */
extern void sweep_change_add(SweepQueueChange *to, const SweepQueueChange *from);

/*
 * Applies what the transaction xid of this database did; xid as of now, not yet recycled. The caller has the lock
 * exclusively, here and below; it may be lent. Nothing is allocated and nothing fails.
 */
extern void sweep_change_apply(const SweepQueueChange *change, FullTransactionId xid, TimestampTz now);

/*
 * The transaction was rolled back: a queue whose rows it may have been deleting is searched from its start, since
 * searches have stepped over those rows.
 */
extern void sweep_change_undo(const SweepQueueChange *change);

/* Forgets the queues of a database that was dropped. */
extern void sweep_change_forget_database(Oid database);

#endif							/* SWEEP_QUEUE_CHANGE_H */
