/*
 * consumer_shared.h
 *		The slots of consumers in shared memory: one per process, see shared.h.
 */
#ifndef SWEEP_CONSUMER_SHARED_H
#define SWEEP_CONSUMER_SHARED_H

#include "base/shared.h"

/* How many processes a consumer of this database has. */
extern int	sweep_consumer_shared_processes(int32 consumer_id);

/* Asks a process to leave; false when it was asked already. The caller has the lock. */
extern bool sweep_consumer_shared_ask_to_leave(SweepSlot *slot);

/*
 * Asks processes of a database to leave: "surplus" processes of one consumer, or all processes when the id is
 * negative.
 */
extern void sweep_consumer_shared_dismiss(Oid database, int32 consumer_id, int surplus);

/* If all databases together have more consumer processes than pg_sweep.max_consumers, asks as many of this database to leave. */
extern void sweep_consumer_shared_dismiss_excess(Oid database);

/* Whether a database has processes of consumers, or such that have not attached yet. */
extern bool sweep_consumer_shared_any(Oid database, bool starting);

/* Counts messages in the slot of this process as handled, or with an error as failed. */
extern void sweep_consumer_shared_note(SweepSlot *slot, int64 messages, const char *error);

#endif							/* SWEEP_CONSUMER_SHARED_H */
