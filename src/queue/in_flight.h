/*
 * in_flight.h
 *		The messages in flight, in shared memory.
 *
 * The caller of every function has the lock of memory.h exclusively, unless said otherwise.
 */
#ifndef SWEEP_QUEUE_IN_FLIGHT_H
#define SWEEP_QUEUE_IN_FLIGHT_H

#include "queue/lease.h"

/* Adds a message to the lease; its entry, or -1 when there are too many. */
extern int	sweep_in_flight_add(int lease, const SweepMessageRef *message);

/* Takes the first of those that were returned to the queue; -1 when there is none. */
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
extern void sweep_in_flight_remove(int entry);

/* Gives a message back to the queue, to be claimed before all others; untried: this delivery does not count. */
extern void sweep_in_flight_return(int entry, bool untried);

/* Puts it aside if another message with its key is in flight; the end of that one returns it. */
extern bool sweep_in_flight_block(int entry);

/* Moves the message to another lease, as one that was not delivered. */
extern void sweep_in_flight_postpone(int entry, int lease);

/* Notes that a transaction of this process ends the message. */
extern void sweep_in_flight_begin_ending(int entry);

/* Whether a message with an entry waits to be claimed, so that it can be cancelled. */
extern bool sweep_in_flight_waits(int entry);

/*
 * Notes that a transaction of this process removes a message that waits, and that the lease is for this alone. entry: that
 * of the message, or -1 when it has none. Its entry, or -1 when there are too many. A rollback makes it wait as before.
 */
extern int	sweep_in_flight_begin_cancel(int entry, int lease, const SweepMessageRef *message);

/*
 * Gives back the messages of a lease but for those that are being ended, and ends the lease; untried: as above, for all
 * of them, or for those in a sorted array, if it is given. Lends the lock.
 */
extern void sweep_in_flight_return_lease(const pg_uuid_t *id, bool untried, const int64 *ids, int count);

/* Compares two int64, for such arrays. */
extern int	sweep_in_flight_compare_ids(const void *left, const void *right);

/* Gives back the messages of the leases that have run out, at most as many as a piece; false if more are left. */
extern bool sweep_in_flight_expire(SweepQueueSlot *slot, int64 now_us);

/* Forgets what is in flight of a queue, but for what transactions are ending. Lends the lock; false if the slot was lost meanwhile. */
extern bool sweep_in_flight_remove_all(SweepQueueSlot *slot);

/* If the entry is of a message that the transaction xid has purged: forgets the message, or that it was purged. */
extern void sweep_in_flight_settle_purged(int entry, TransactionId xid, bool committed);

/* A transaction of this process was ending it: forgets it, or makes it LEASED again, or wait when it was cancelled. */
extern void sweep_in_flight_settle_ending(int entry, bool committed);

/* That transaction was prepared: adds the message to those that it is ending, see SweepPreparedChange. */
extern void sweep_in_flight_prepare(int entry, int *first);

/* Forgets the first of them, or makes it LEASED again. */
extern void sweep_in_flight_settle_prepared(int *first, bool committed);

#endif							/* SWEEP_QUEUE_IN_FLIGHT_H */
