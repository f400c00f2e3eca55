/*
 * in_flight.h
 *		The messages in flight, in shared memory.
 *
 * An entry is known by its number. Every function is called with the lock of memory.h held exclusively, unless its comment says otherwise.
 */
#ifndef SWEEP_QUEUE_IN_FLIGHT_H
#define SWEEP_QUEUE_IN_FLIGHT_H

#include "queue/lease.h"

/* Adds an entry for a message to a lease and returns its number; -1 when there are too many. */
extern int	sweep_in_flight_add(int lease, const SweepMessageRef *message);

/* Moves the first of the messages that were returned to the queue to the lease, and returns its number; -1 when there is none. */
extern int	sweep_in_flight_take_returned(int lease);

/* The entry of a message, or -1; a shared lock is enough. */
extern int	sweep_in_flight_find(const SweepQueueSlot *slot, int16 lane, int64 message_id);

/* The entry of a message that the lease has and that no transaction is ending, or -1. */
extern int	sweep_in_flight_find_leased(const SweepQueueLease *lease, int64 message_id);

/*
 * Finds the nth message (from 0 on) that was returned to the queue and whose key has this hash; false when there is
 * none. A shared lock is enough.
 */
extern bool sweep_in_flight_find_returned(const SweepQueueSlot *slot, uint32 key_hash, int nth, SweepMessageRef *message);

/* Removes the entry of a message that is gone. A lease ends with its last message (in all functions below). */
extern void sweep_in_flight_remove(int number);

/* Returns a message to the queue, where it is claimed before all others. "untried": its attempts become one less. */
extern void sweep_in_flight_return(int number, bool untried);

/* Makes a message BLOCKED, with one attempt less, if another one with its key is in flight; the end of that one returns it. */
extern bool sweep_in_flight_block(int number);

/* Moves a message that was not delivered to another lease, with one attempt less. */
extern void sweep_in_flight_postpone(int number, int lease);

/* Notes that a transaction of this process ends the message. */
extern void sweep_in_flight_begin_ending(int number);

/* Whether a message with an entry waits to be claimed, and can be cancelled. */
extern bool sweep_in_flight_waits(int number);

/*
 * Notes that a transaction of this process removes a waiting message, under a lease made for that. "number" is -1 when the message
 * has no entry. Returns the number of the entry, or -1 when there are too many. After a rollback the message waits as before.
 */
extern int	sweep_in_flight_begin_cancel(int number, int lease, const SweepMessageRef *message);

/*
 * Returns the messages of a lease to the queue, except those that are being ended, and ends the lease. If "untried", the messages
 * in the sorted array "ids", or all if that is NULL, have one attempt less. Lends the lock.
 */
extern void sweep_in_flight_return_lease(const pg_uuid_t *id, bool untried, const int64 *ids, int count);

/* Compares two int64: the order of "ids". */
extern int	sweep_in_flight_compare_ids(const void *left, const void *right);

/* Returns messages of leases that have run out to the queue. Lends the lock; false if the slot was lost meanwhile. */
extern bool sweep_in_flight_expire(SweepQueueSlot *slot);

/* Removes the entries of a queue, except those that transactions are ending. Lends the lock; false if the slot was lost meanwhile. */
extern bool sweep_in_flight_remove_all(SweepQueueSlot *slot);

/* At the end of the transaction xid: if it has purged the message, removes the entry, or after a rollback the mark of the purge. */
extern void sweep_in_flight_settle_purged(int number, TransactionId xid, bool committed);

/* At the end of a transaction of this process that was ending the message: removes the entry, or after a rollback undoes the ending. */
extern void sweep_in_flight_settle_ending(int number, bool committed);

/* At PREPARE: adds the message to the list of those that the prepared transaction is ending, see SweepPreparedChange. */
extern void sweep_in_flight_prepare(int number, int *first);

/* At the end of a prepared transaction: takes the first message off its list, and does the same as sweep_in_flight_settle_ending. */
extern void sweep_in_flight_settle_prepared(int *first, bool committed);

#endif							/* SWEEP_QUEUE_IN_FLIGHT_H */
