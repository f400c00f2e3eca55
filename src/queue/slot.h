/*
 * slot.h
 *		What is known of each queue: where its messages are to be found next, how many there are, who waits.
 *
 * The caller of every function has the lock of memory.h, exclusively unless said otherwise.
 */
#ifndef SWEEP_QUEUE_SLOT_H
#define SWEEP_QUEUE_SLOT_H

#include "queue/memory.h"

/* The slot of a queue of this database, or NULL; a shared lock is enough. */
extern SweepQueueSlot *sweep_queue_find_slot(Oid relation, int32 queue_id);

/* Has the next search begin at the start, and those who wait look; what is in flight stays so. */
extern void sweep_queue_reset_slot(SweepQueueSlot *slot);

/*
 * Whether a search would find what is needed: with so few messages in the list, or because some have fallen
 * due, which come before those of the list; a shared lock is enough.
 */
extern bool sweep_queue_needs_search(const SweepQueueSlot *slot, int few, TimestampTz now);

/*
 * Something is due at that time; a lease ends. Those who wait for messages sleep no longer than that: each of
 * them knows, so that it does not matter who of them goes away.
 */
extern void sweep_queue_note_due(SweepQueueSlot *slot, TimestampTz due_at);
extern void sweep_queue_note_expiry(SweepQueueSlot *slot, int64 expires_us);

/* Wakes up to count processes that wait for messages of the queue: each once, those that wait longest first. */
extern void sweep_queue_wake(SweepQueueSlot *slot, int64 count);

/* Counts now; how many per second, over the last ten seconds. */
extern void sweep_queue_add_to_rate(SweepRate *rate, int64 count, int64 now_us);
extern double sweep_queue_rate(const SweepRate *rate, int64 now_us);

/*
 * The entry of this database, or NULL; a shared lock is enough, unless it is to be made. It is made anew for another
 * table, in the place of any other if need be.
 */
extern SweepQueueDatabase *sweep_queue_find_database(Oid relation, bool create);

/* The transactions in progress in its snapshot. */
extern TransactionId *sweep_queue_running(const SweepQueueDatabase *entry);

/* Whether the counters are to have a commit of this database. That those of a database are not right. */
extern bool sweep_queue_counts(Oid relation, FullTransactionId xid);
extern void sweep_queue_spoil_counts(Oid database);

#endif							/* SWEEP_QUEUE_SLOT_H */
