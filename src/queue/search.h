/*
 * search.h
 *		Finds the messages that the next claims take.
 */
#ifndef SWEEP_QUEUE_SEARCH_H
#define SWEEP_QUEUE_SEARCH_H

#include "queue/table.h"

/*
 * Prefetches messages of a queue if there are none, or, ahead, if there are few. False when there is nothing to be
 * found; true when a claim may find messages that this process or another one has found. Waits for a search of another
 * process, unless ahead. wanted: the number of messages that the caller takes.
 */
extern bool sweep_queue_search(Relation messages, const SweepQueue *queue, int wanted, bool ahead);

#endif							/* SWEEP_QUEUE_SEARCH_H */
