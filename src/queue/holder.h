/*
 * holder.h
 *		How many leases, messages and slots each role and each database has: one entry per role in a database.
 *
 * The caller of every function has the lock of memory.h exclusively, unless said otherwise.
 */
#ifndef SWEEP_QUEUE_HOLDER_H
#define SWEEP_QUEUE_HOLDER_H

#include "base/quota.h"
#include "queue/memory.h"

/*
 * The entry of a role in this database; of the database, if the role is InvalidOid; 0, the entry of the others, if none
 * is left. It is valid while something is counted in it.
 */
extern int	sweep_holder_find(Oid role);

/* Counts in an entry, or takes back what was counted: by is 1 or -1. */
static inline void
sweep_holder_count(int holder, SweepHeld what, int by)
{
	SweepQueueShared *shared = sweep_queue_memory.shared;
	SweepQueueHolder *entry = &shared->holders[holder];

	shared->held[what] += by;
	entry->held[what] += by;
	if (entry->of_role == 0)
		return;
	shared->holders[entry->of_role].held[what] += by;
	shared->holders[entry->of_database].held[what] += by;
}

/* The numbers of its role and its database; a shared lock is enough. */
extern SweepUse sweep_holder_use(int holder, SweepHeld what);

/* Raises the error that tells which role has how many messages, or slots, one of which the queue lacks. Takes the lock itself. */
pg_noreturn extern void sweep_holder_refuse(SweepHeld what, SweepRefusal refusal, const char *queue);

#endif							/* SWEEP_QUEUE_HOLDER_H */
