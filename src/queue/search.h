/*
 * search.h
 *		Finds the messages that the next claims take.
 */
#ifndef SWEEP_QUEUE_SEARCH_H
#define SWEEP_QUEUE_SEARCH_H

#include "queue/table.h"

/*
 * Prefetches messages of a queue if none are prefetched, or, with "ahead", if few are. False when there is nothing to
 * be claimed; true when a claim may succeed, whichever process has searched. Waits for the search of another process,
 * unless "ahead". wanted: the number of messages that the caller takes.
 */
extern bool sweep_queue_search(Relation messages, const SweepQueue *queue, int wanted, bool ahead);

#endif							/* SWEEP_QUEUE_SEARCH_H */
