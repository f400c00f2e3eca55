/*
 * done.h
 *		Acknowledged messages that are kept for a while.
 */
#ifndef SWEEP_QUEUE_DONE_H
#define SWEEP_QUEUE_DONE_H

#include "queue/table.h"

/* Keeps a message whose row was deleted and is in the slot. */
extern void sweep_queue_keep_done(const SweepInFlight *entry, TupleTableSlot *slot);

/* Deletes some of those that were kept long enough; most of the time it does nothing. */
extern void sweep_queue_prune_done(Relation messages, const SweepQueue *queue);

#endif							/* SWEEP_QUEUE_DONE_H */
