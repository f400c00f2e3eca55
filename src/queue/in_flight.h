/*
 * in_flight.h
 *		The messages in flight, in shared memory.
 *
 * An entry is known by its number. The caller of every function has the lock of memory.h exclusively, unless said otherwise.
 */
#ifndef SWEEP_QUEUE_IN_FLIGHT_H
#define SWEEP_QUEUE_IN_FLIGHT_H

#include "queue/lease.h"

/* Adds an entry for a message that the lease has from now on; -1 when there are too many. */
extern int	sweep_in_flight_add(int lease, const SweepMessageRef *message);

/* Gives the lease the first of the messages that were returned to the queue; -1 when there is none. */
extern int	sweep_in_flight_take_returned(int lease);

/* The entry of a message, or -1; a shared lock is enough. */
extern int	sweep_in_flight_find(const SweepQueueSlot *slot, int16 lane, int64 message_id);

/* The same for a message that a lease has, and no transaction is ending. */
extern int	sweep_in_flight_find_leased(const SweepQueueLease *lease, int64 message_id);

/*
 * Finds the messages with keys of this hash that were given back and wait to be claimed, by their number from 0
 * on; false when there are no more. A shared lock is enough.
 */
extern bool sweep_in_flight_find_returned(const SweepQueueSlot *slot, uint32 key_hash, int nth, SweepMessageRef *message);

/* Forgets an entry: the message is gone. Its lease ends with its last message, here and below. */
extern void sweep_in_flight_remove(int number);

/* Gives a message back to the queue, to be claimed before all others. "untried": the delivery is taken off its attempts. */
extern void sweep_in_flight_return(int number, bool untried);

/* Puts a message aside, and takes its delivery off, if another one with its key is in flight; the end of that one returns it. */
extern bool sweep_in_flight_block(int number);

/* Moves the message to another lease, and takes the attempt off: it was not delivered. */
extern void sweep_in_flight_postpone(int number, int lease);

/* Notes that a transaction of this process ends the message. */
extern void sweep_in_flight_begin_ending(int number);

/* Whether a message with an entry waits to be claimed, so that it can be cancelled. */
extern bool sweep_in_flight_waits(int number);

/*
 * Notes that a transaction of this process removes a message that waits; the lease is a new one for that. "number" is -1 when the
 * message has no entry. Returns the number of the entry, or -1 when there are too many. After a rollback the message waits as before.
 */
extern int	sweep_in_flight_begin_cancel(int number, int lease, const SweepMessageRef *message);

/*
 * Gives back the messages of a lease but for those that are being ended, and ends the lease. If "untried", the attempt is taken off
 * the messages in the sorted array "ids", or all when that is NULL. Lends the lock.
 */
extern void sweep_in_flight_return_lease(const pg_uuid_t *id, bool untried, const int64 *ids, int count);

/* Compares two int64, for such arrays. */
extern int	sweep_in_flight_compare_ids(const void *left, const void *right);

/* Gives back the messages of the leases that have run out, at most as many as a piece; false if more are left. */
extern bool sweep_in_flight_expire(SweepQueueSlot *slot, int64 now_us);

/* Forgets the entries of a queue, but for those that transactions are ending. Lends the lock; false if the slot was lost meanwhile. */
extern bool sweep_in_flight_remove_all(SweepQueueSlot *slot);

/* If the entry is of a message that the transaction xid has purged: forgets the message, or that it was purged. */
extern void sweep_in_flight_settle_purged(int number, TransactionId xid, bool committed);

/* At the end of a transaction of this process that was ending the message: forgets it, or after a rollback undoes the ending. */
extern void sweep_in_flight_settle_ending(int number, bool committed);

/* At PREPARE: adds the message to the list of those that the prepared transaction is ending, see SweepPreparedChange. */
extern void sweep_in_flight_prepare(int number, int *first);

/* At the end of a prepared transaction: takes the first message off its list, and does the same as sweep_in_flight_settle_ending. */
extern void sweep_in_flight_settle_prepared(int *first, bool committed);

#endif							/* SWEEP_QUEUE_IN_FLIGHT_H */
