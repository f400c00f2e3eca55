/*
 * holder.h
 *		Who has claimed how many messages: one entry per role in a database.
 *
 * The caller of every function has the lock of shared.h exclusively, unless said otherwise.
 */
#ifndef SWEEP_QUEUE_HOLDER_H
#define SWEEP_QUEUE_HOLDER_H

#include "base/quota.h"
#include "queue/slot.h"

/* The entry of a role in this database. It is valid while a lease or a message is counted in it. */
extern int	sweep_holder_find(Oid role);

/* Counts a lease, or a message, in an entry; or takes one back: by is 1 or -1. */
extern void sweep_holder_count_lease(int holder, int by);
extern void sweep_holder_count_message(int holder, int by);

/* How many more messages it may claim. */
extern int	sweep_holder_room(int holder, bool unlimited);

/* Whether it may claim one more message, and why not: REFUSED_ROLE or REFUSED_DATABASE. */
extern SweepRefusal sweep_holder_check(int holder, bool unlimited);

/* Gives back what its leases held that have run out, in queues that nobody looks at; not more often than now and then. */
extern void sweep_holder_expire(int holder, TimestampTz now);

/* Raises the error that says who holds what. Takes the lock itself. */
pg_noreturn extern void sweep_holder_refuse(Oid role, SweepRefusal refusal);

#endif							/* SWEEP_QUEUE_HOLDER_H */
