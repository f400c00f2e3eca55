/*
 * lease.h
 *		The leases of the queues, in shared memory, and how much of it each role and database uses.
 *
 * Every function is called with the lock of memory.h held exclusively, unless its comment says otherwise.
 */
#ifndef SWEEP_QUEUE_LEASE_H
#define SWEEP_QUEUE_LEASE_H

#include "base/quota.h"
#include "queue/slot.h"

/*
 * The number of the entry of a role (in all databases) or of a database; the other argument is InvalidOid. The entry stays with it while
 * something is counted there. If all entries are in use, the common entry of the other roles or databases; -1 if both arguments are InvalidOid.
 */
extern int	sweep_holder_find(Oid role, Oid database);

/* Adds "by", 1 or -1, to the counts of a role (-1 = none) and a database, which are given by the numbers of their entries. */
static inline void
sweep_holder_count(int role, int database, SweepHeld what, int by)
{
	SweepQueueShared *shared = sweep_queue_memory.shared;

	shared->held[what] += by;
	shared->holders[database].held[what] += by;
	if (role >= 0)
		shared->holders[role].held[what] += by;
}

/* How much a role, a database, and all together use; a shared lock is enough. */
extern SweepUse sweep_holder_use(int role, int database, SweepHeld what);

/* Raises the error for a message or slot that was refused; its detail tells which role uses the most. Takes the lock itself. */
pg_noreturn extern void sweep_holder_refuse(SweepHeld what, SweepRefusal refusal, const char *queue);

/* Draws random bytes for the id of a lease. To be called without the lock, since it may raise an error. */
extern void sweep_lease_draw(uint8 *random);

/*
 * Makes a lease of a role, without messages and without an end, and returns its number; -1 if none is left. Its id consists of the
 * number and of "random". A lease without an end is that of a claim in progress; it stays without messages.
 */
extern int	sweep_lease_new(SweepQueueSlot *slot, const uint8 *random, Oid role);

/* The lease with that id in this database, or NULL; a shared lock is enough. */
extern SweepQueueLease *sweep_lease_find(const pg_uuid_t *id);

/* Sets the end of a lease. SWEEP_LEASE_RAN_OUT: it has run out, and is kept only for messages that are being ended. */
extern void sweep_lease_set_expiry(int number, int64 expires_us);
#define SWEEP_LEASE_RAN_OUT (SWEEP_NOTHING_DUE - 1)

/* Frees the lease if it has no messages. */
extern void sweep_lease_free(int number);

static inline bool
sweep_lease_has_end(const SweepQueueLease *lease)
{
	return lease->expires_us != SWEEP_NOTHING_DUE;
}

#endif							/* SWEEP_QUEUE_LEASE_H */
