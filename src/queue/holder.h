/*
 * holder.h
 *		Who has claimed how many messages: one entry per role in a database.
 *
 * The caller of every function has the lock of memory.h exclusively, unless said otherwise.
 */
#ifndef SWEEP_QUEUE_HOLDER_H
#define SWEEP_QUEUE_HOLDER_H

#include "base/quota.h"
#include "queue/memory.h"

/* The entry of a role in this database. It is valid while a lease or a message is counted in it. */
extern int	sweep_holder_find(Oid role);

/* The entry of those for whom there is none. */
#define SWEEP_HOLDER_OTHERS 0

static inline SweepQueueHolder *
sweep_holder_entry(int holder)
{
	return &sweep_queue_memory.shared->holders[holder];
}

/* Counts a lease, or a message, in an entry; or takes one back: by is 1 or -1. */
static inline void
sweep_holder_count_lease(int holder, int by)
{
	SweepQueueHolder *entry = sweep_holder_entry(holder);

	entry->leases += by;
	if (holder == SWEEP_HOLDER_OTHERS)
		return;
	sweep_holder_entry(entry->of_role)->leases += by;
	sweep_holder_entry(entry->of_database)->leases += by;
}

static inline void
sweep_holder_count_message(int holder, int by)
{
	SweepQueueHolder *entry = sweep_holder_entry(holder);

	sweep_queue_memory.shared->held_count += by;
	entry->messages += by;
	if (holder == SWEEP_HOLDER_OTHERS)
		return;
	sweep_holder_entry(entry->of_role)->messages += by;
	sweep_holder_entry(entry->of_database)->messages += by;
}

/* How many messages its role and its database hold; not how many all do: that nothing is left a claim finds out by itself. */
extern SweepUse sweep_holder_use(int holder);

/* Raises the error that says who holds what. Takes the lock itself. */
pg_noreturn extern void sweep_holder_refuse(Oid role, SweepRefusal refusal);

#endif							/* SWEEP_QUEUE_HOLDER_H */
