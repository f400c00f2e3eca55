/*
 * slot.h
 *		What is known of each queue: the places of its next messages, their number, and the processes that wait.
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

/* Counts now; how many per second, over the last ten seconds. */
extern void sweep_queue_add_to_rate(SweepRate *rate, int64 count, int64 now_us);
extern double sweep_queue_rate(const SweepRate *rate, int64 now_us);

/*
 * The entry of this database, or NULL; a shared lock is enough, unless it is to be made. It is made anew for another
 * table, in the place of any other entry if need be.
 */
extern SweepQueueDatabase *sweep_queue_find_database(Oid relation, bool create);

/* The transactions in progress in its snapshot. */
extern TransactionId *sweep_queue_running(const SweepQueueDatabase *entry);

/* Adds to the counters of a queue, which begin with 0 in each count. */
extern void sweep_queue_add_rows(SweepQueueSlot *slot, const SweepQueueDatabase *entry, const int64 *rows, int64 dead);

/* The entry of this database, if a commit of it belongs into the counters, else NULL. */
extern const SweepQueueDatabase *sweep_queue_counts(Oid relation, FullTransactionId xid);

/* Notes that the counters of a database are no longer right. */
extern void sweep_queue_spoil_counts(Oid database);

#endif							/* SWEEP_QUEUE_SLOT_H */
