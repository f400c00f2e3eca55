/*
 * change.h
 *		What a transaction has done to a queue: put together while it runs, applied when it has committed.
 */
#ifndef SWEEP_QUEUE_CHANGE_H
#define SWEEP_QUEUE_CHANGE_H

#include "queue/memory.h"

/* Adds a message that is sent. */
extern void sweep_change_add_sent(SweepQueueChange *change, int16 lane, int64 message_id, TimestampTz due_at);

/* Adds what a subtransaction has done. */
extern void sweep_change_add(SweepQueueChange *to, const SweepQueueChange *from);

/*
 * Applies what the transaction xid of this database did; xid as of now, not yet recycled. Hold the lock exclusively,
 * here and below. Nothing is allocated and nothing fails.
 */
extern void sweep_change_apply(const SweepQueueChange *change, FullTransactionId xid, TimestampTz now);

/*
 * It was rolled back: a queue whose rows it may have been deleting is looked at from its start, since searches have
 * stepped over them.
 */
extern void sweep_change_undo(const SweepQueueChange *change);

/* A database that was dropped: forgets its queues. */
extern void sweep_change_forget_database(Oid database);

#endif							/* SWEEP_QUEUE_CHANGE_H */
