/*
 * search.h
 *		Finds the messages that the next claims take.
 */
#ifndef SWEEP_QUEUE_SEARCH_H
#define SWEEP_QUEUE_SEARCH_H

#include "queue/table.h"

/*
 * Fills the list of prefetched messages of a queue when it is empty, or, ahead, when it is low. False when
 * there is nothing to be found; true when it is worth looking at the list, found by this process or by
 * another one. Waits for a search of another process, unless ahead. wanted is what the caller takes.
 */
extern bool sweep_queue_search(Relation messages, const SweepQueue *queue, int wanted, bool ahead);

#endif							/* SWEEP_QUEUE_SEARCH_H */
