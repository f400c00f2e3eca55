/*
 * done.h
 *		Acknowledged messages that are kept for a while.
 */
#ifndef SWEEP_QUEUE_DONE_H
#define SWEEP_QUEUE_DONE_H

#include "queue/table.h"

/* Keeps a message whose row was deleted; the slot has the row. */
extern void sweep_queue_keep_done(const SweepInFlight *entry, TupleTableSlot *slot);

/* Deletes messages that were kept long enough, at most once a second. */
extern void sweep_queue_prune_done(Relation messages, const SweepQueue *queue);

#endif							/* SWEEP_QUEUE_DONE_H */
