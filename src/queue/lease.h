/*
 * lease.h
 *		The leases of a queue, in shared memory.
 *
 * The caller of every function has the lock of memory.h exclusively, unless said otherwise.
 */
#ifndef SWEEP_QUEUE_LEASE_H
#define SWEEP_QUEUE_LEASE_H

#include "queue/slot.h"

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
