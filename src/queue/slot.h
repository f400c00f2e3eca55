/*
 * slot.h
 *		The state of each queue, and what a commit changes of it.
 *
 * The caller of every function has the lock of memory.h, exclusively unless said otherwise.
 */
#ifndef SWEEP_QUEUE_SLOT_H
#define SWEEP_QUEUE_SLOT_H

#include "queue/memory.h"

/* The slot of a queue of this database, or NULL; a shared lock is enough. */
extern SweepQueueSlot *sweep_queue_find_slot(Oid relation, int32 queue_id);

/* The head of the hash chain of such a slot. */
extern int *sweep_queue_slot_chain(Oid database, int32 queue_id);

/* Makes the next search begin at the start of the queue, and wakes the waiting processes; what is in flight stays so. */
extern void sweep_queue_reset_slot(SweepQueueSlot *slot);

/*
 * Whether a search would find what is needed: because no more than "few" messages are prefetched, or because some have
 * fallen due, which come before those; a shared lock is enough.
 */
extern bool sweep_queue_needs_search(const SweepQueueSlot *slot, int few, TimestampTz now);

/* Makes the next search of a lane, by its index, begin at this message at the latest. */
extern void sweep_queue_lower_position(SweepQueueSlot *slot, int lane, int64 message_id);

/*
 * A message is due at that time; a lease ends. If that is earlier than known, all waiting processes are woken: each
 * sleeps until the earliest such time, and it does not matter which of them goes away.
 */
extern void sweep_queue_note_due(SweepQueueSlot *slot, TimestampTz due_at);
extern void sweep_queue_note_expiry(SweepQueueSlot *slot, int64 expires_us);

/* Wakes up to count processes that wait for messages of the queue, and takes them out of its list: the first in it first. */
extern void sweep_queue_wake(SweepQueueSlot *slot, int64 count);

/* The number per second, over the last ten seconds. */
extern double sweep_queue_rate(const SweepRate *rate, int64 now_us);

/*
 * The entry of this database, or NULL; a shared lock is enough, unless it is to be made. It is made anew for another
 * table, in the place of any other entry if need be.
 */
extern SweepQueueDatabase *sweep_queue_find_database(Oid relation, bool create);

/* The transactions in progress in its snapshot. */
extern TransactionId *sweep_queue_running(const SweepQueueDatabase *entry);

/* A recent transaction id of 32 bits, of the same counter. */
static inline FullTransactionId
sweep_queue_full_xid(TransactionId xid)
{
	FullTransactionId next = ReadNextFullTransactionId();

	return FullTransactionIdFromU64(U64FromFullTransactionId(next) - (uint32) (XidFromFullTransactionId(next) - xid));
}

/* Adds to the counters of a queue. They begin at 0 with each count of its database. */
extern void sweep_queue_add_rows(SweepQueueSlot *slot, const SweepQueueDatabase *entry, const int64 *rows, int64 dead);

/* Notes that the counters of a database are no longer right. */
extern void sweep_queue_spoil_counts(Oid database);

/* Adds a message that is sent, or the changes of a subtransaction, to the changes of a transaction. Without the lock. */
extern void sweep_change_add_sent(SweepQueueChange *change, int16 lane, int64 message_id, TimestampTz due_at);
extern void sweep_change_add(SweepQueueChange *to, const SweepQueueChange *from);

/*
 * Applies what a transaction did to the queue: makes its messages known to searches, counts them, and wakes processes.
 * Its xid must not be recycled yet. Nothing is allocated and nothing fails.
 */
extern void sweep_queue_apply(SweepQueueSlot *slot, const SweepQueueChange *change, FullTransactionId xid, TimestampTz now);

#endif							/* SWEEP_QUEUE_SLOT_H */
