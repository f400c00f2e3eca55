/*
 * lease.h
 *		The leases of a queue, in shared memory, and how much each role and each database has.
 *
 * The caller of every function has the lock of memory.h exclusively, unless said otherwise.
 */
#ifndef SWEEP_QUEUE_LEASE_H
#define SWEEP_QUEUE_LEASE_H

#include "base/quota.h"
#include "queue/slot.h"

/*
 * The number of the entry of a role, for all databases, or of a database; the other argument is InvalidOid. The entry is valid while
 * something is counted in it. If all are in use, the common entry of other roles or databases; -1 if both arguments are InvalidOid.
 */
extern int	sweep_holder_find(Oid role, Oid database);

/* Adds "by", 1 or -1, to what a role (-1 = none) and a database hold. Both are given by the numbers of their entries. */
static inline void
sweep_holder_count(int role, int database, SweepHeld what, int by)
{
	SweepQueueShared *shared = sweep_queue_memory.shared;

	shared->held[what] += by;
	shared->holders[database].held[what] += by;
	if (role >= 0)
		shared->holders[role].held[what] += by;
}

/* How much a role, a database and all together hold; a shared lock is enough. */
extern SweepUse sweep_holder_use(int role, int database, SweepHeld what);

/* Raises the error that tells which role has how many messages, or slots, one of which the queue lacks. Takes the lock itself. */
pg_noreturn extern void sweep_holder_refuse(SweepHeld what, SweepRefusal refusal, const char *queue);

/* Draws random bytes for the id of a lease. Without the lock: it may raise. */
extern void sweep_lease_draw(uint8 *random);

/*
 * A new lease of a role, without messages and without an end; -1 if none is left. "random" becomes its id but for the first four bytes.
 * A lease without an end belongs to a claim in progress, and stays when its last message leaves it.
 */
extern int	sweep_lease_new(SweepQueueSlot *slot, const uint8 *random, Oid role);

/* The lease of this id in this database, or NULL; a shared lock is enough. */
extern SweepQueueLease *sweep_lease_find(const pg_uuid_t *id);

/* Sets its end. SWEEP_LEASE_RAN_OUT: the lease has ended for all messages but those that are being ended. */
extern void sweep_lease_set_expiry(int number, int64 expires_us);
#define SWEEP_LEASE_RAN_OUT (SWEEP_NOTHING_DUE - 1)

/* Frees it, if it has no messages. */
extern void sweep_lease_free(int number);

static inline bool
sweep_lease_has_end(const SweepQueueLease *lease)
{
	return lease->expires_us != SWEEP_NOTHING_DUE;
}

#endif							/* SWEEP_QUEUE_LEASE_H */
