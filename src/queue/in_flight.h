/*
 * in_flight.h
 *		Leases of queues and the messages in flight, in shared memory.
 *
 * The caller of every function has the lock of memory.h exclusively, unless said otherwise.
 */
#ifndef SWEEP_QUEUE_IN_FLIGHT_H
#define SWEEP_QUEUE_IN_FLIGHT_H

#include "queue/slot.h"

/* A new lease without messages, or -1 when there are too many. random: its name but for four bytes; role: who claims. */
extern int	sweep_in_flight_new_lease(SweepQueueSlot *slot, int64 expires_us, const uint8 *random, Oid role);

/* The lease of this name in this database, or NULL; a shared lock is enough. */
extern SweepQueueLease *sweep_in_flight_find_lease(const pg_uuid_t *id);

/* Ends a lease without messages; harmless while it has some. */
extern void sweep_in_flight_end_lease(int lease);

/* Adds a message to the lease; its entry, or -1 when there are too many. */
extern int	sweep_in_flight_add(int lease, const SweepMessageRef *message);

/* Takes the first of those that were returned to the queue; -1 when there is none. */
extern int	sweep_in_flight_take_returned(int lease);

/* The entry of a message, or -1; a shared lock is enough. */
extern int	sweep_in_flight_find(const SweepQueueSlot *slot, int16 lane, int64 message_id);

/*
 * Finds the messages with keys of this hash that were given back and wait to be claimed, by their number from 0
 * on; false when there are no more. A shared lock is enough.
 */
extern bool sweep_in_flight_find_returned(const SweepQueueSlot *slot, uint32 key_hash, int nth, SweepMessageRef *message);

/* Forgets an entry: the message is gone. Its lease ends with its last one. */
extern void sweep_in_flight_remove(int entry);

/* Gives the message back to the queue, to be claimed before all others. */
extern void sweep_in_flight_return(int entry);

/* Puts it aside when another message with its key is in flight; the end of that returns it. Its lease stays. */
extern bool sweep_in_flight_block(int entry);

/* Moves the message to another lease, as one that was not delivered. Its own stays. */
extern void sweep_in_flight_postpone(int entry, int lease);

/* Gives back everything a lease holds and is not just ending, and ends the lease. */
extern int	sweep_in_flight_return_lease(int lease);

/* Gives back what the leases held that have run out. */
extern void sweep_in_flight_expire(SweepQueueSlot *slot, int64 now_us);

/* Forgets what is in flight of a queue; what transactions are ending only if told so. */
extern void sweep_in_flight_remove_all(SweepQueueSlot *slot, bool ending);

/* If the entry is of a message that the transaction xid has purged: forgets the message, or that it was purged. */
extern void sweep_in_flight_settle_purged(int entry, TransactionId xid, bool committed);

/* A transaction of this process was ending it: forgets it, or it is of its lease again. */
extern void sweep_in_flight_settle_ending(int entry, bool committed);

/* Forgets what a prepared transaction has removed, or it is of its lease again. */
extern void sweep_in_flight_settle_prepared(SweepQueueSlot *slot, TransactionId xid, bool committed);

#endif							/* SWEEP_QUEUE_IN_FLIGHT_H */
