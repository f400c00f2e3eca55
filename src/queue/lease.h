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
 * The entry of a role, in all databases, or of a database; the other one is InvalidOid. It is valid while something is
 * counted in it. If none is left, that of the others; -1 if both are InvalidOid.
 */
extern int	sweep_holder_find(Oid role, Oid database);

/* Counts for a role (-1 = none) and a database, by their entries, or takes back what was counted: by is 1 or -1. */
static inline void
sweep_holder_count(int role, int database, SweepHeld what, int by)
{
	SweepQueueShared *shared = sweep_queue_memory.shared;

	shared->held[what] += by;
	shared->holders[database].held[what] += by;
	if (role >= 0)
		shared->holders[role].held[what] += by;
}

/* The numbers of a role and a database, by their entries; a shared lock is enough. */
extern SweepUse sweep_holder_use(int role, int database, SweepHeld what);

/* Raises the error that tells which role has how many messages, or slots, one of which the queue lacks. Takes the lock itself. */
pg_noreturn extern void sweep_holder_refuse(SweepHeld what, SweepRefusal refusal, const char *queue);

/* Draws the id of a lease but for four bytes. Without the lock: it may raise. */
extern void sweep_lease_draw(uint8 *random);

/*
 * A new lease of a role, without messages and without an end; -1 if none is left. random: its id but for four bytes.
 * While it has no end it stays, with messages or without.
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
