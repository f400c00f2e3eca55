/*
 * slot.h
 *		The state of each queue, and what a commit changes of it.
 *
 * Every function is called with the lock of memory.h held, exclusively unless its comment says otherwise.
 */
#ifndef SWEEP_QUEUE_SLOT_H
#define SWEEP_QUEUE_SLOT_H

#include "queue/memory.h"

/* The slot of a queue of this database, or NULL; a shared lock is enough. */
extern SweepQueueSlot *sweep_queue_find_slot(Oid relation, int32 queue_id);

/* The head of the hash chain for the slot of a queue. */
extern int *sweep_queue_slot_chain(Oid database, int32 queue_id);

/* Makes the next search begin at the start of the queue, and wakes the waiting processes. Messages in flight stay in flight. */
extern void sweep_queue_reset_slot(SweepQueueSlot *slot);

/*
 * Whether a search is needed: there is something to find, and at most "few" messages are prefetched; or messages have
 * fallen due, which are delivered before the prefetched ones. A shared lock is enough.
 */
extern bool sweep_queue_needs_search(const SweepQueueSlot *slot, int few, TimestampTz now);

/* Makes the next search of a lane, by its index, begin at this message at the latest. */
extern void sweep_queue_lower_position(SweepQueueSlot *slot, int lane, int64 message_id);

/*
 * Note that a message falls due, or that a lease ends, at that time. If it is earlier than the times known before, all
 * waiting processes are woken: each of them sleeps until the earliest time, so that any of them may leave.
 */
extern void sweep_queue_note_due(SweepQueueSlot *slot, TimestampTz due_at);
extern void sweep_queue_note_expiry(SweepQueueSlot *slot, int64 expires_us);

/* Wakes up to count processes that wait for messages of the queue, first come first, and takes them out of its list. */
extern void sweep_queue_wake(SweepQueueSlot *slot, int64 count);

/* The rate per second, over the last ten seconds. */
extern double sweep_queue_rate(const SweepRate *rate, int64 now_us);

/*
 * The entry of this database, or NULL; with "create" it is made, if all are in use in place of another one. If the table is
 * another one than before, the entry is reset. Without "create" a shared lock is enough.
 */
extern SweepQueueDatabase *sweep_queue_find_database(Oid relation, bool create);

/* The transactions in progress in the snapshot of the entry. */
extern TransactionId *sweep_queue_running(const SweepQueueDatabase *entry);

/* The full id of a recent transaction. */
static inline FullTransactionId
sweep_queue_full_xid(TransactionId xid)
{
	FullTransactionId next = ReadNextFullTransactionId();

	return FullTransactionIdFromU64(U64FromFullTransactionId(next) - (uint32) (XidFromFullTransactionId(next) - xid));
}

/* Adds to the counters of a queue, which begin at 0 with each count of its database. */
extern void sweep_queue_add_rows(SweepQueueSlot *slot, const SweepQueueDatabase *entry, const int64 *rows, int64 dead);

/* Notes that the counters of a database are no longer valid. */
extern void sweep_queue_spoil_counts(Oid database);

/* Add a sent message, or the changes of a subtransaction, to the changes of a transaction. Called without the lock. */
extern void sweep_change_add_sent(SweepQueueChange *change, int16 lane, int64 message_id, TimestampTz due_at);
extern void sweep_change_add(SweepQueueChange *to, const SweepQueueChange *from);

/*
 * Applies the changes of a transaction to the queue: makes its messages known to searches, counts them, and wakes
 * processes. The xid must not be recycled yet. Nothing is allocated and nothing fails.
 */
extern void sweep_queue_apply(SweepQueueSlot *slot, const SweepQueueChange *change, FullTransactionId xid, TimestampTz now);

#endif							/* SWEEP_QUEUE_SLOT_H */
