/*
 * dispatch.h
 *		Sees to it that the buckets of a divided job are there, and are worked on.
 */
#ifndef SWEEP_DISPATCH_H
#define SWEEP_DISPATCH_H

#include "engine/share.h"

/* All of them: false with an error, or with the reason for which the run ends. */

/* Dispatches the divided children of the run's job. */
extern bool sweep_dispatch_children(SweepRun *run, ErrorData **error);

/* Finds the store of the buckets, and how many there are. */
extern bool sweep_dispatch_look(SweepRun *run, SweepShare *share, ErrorData **error);

/* Maintains the buckets and queues shares for those that are free. */
extern bool sweep_dispatch_shares(SweepRun *run, SweepShare *share, ErrorData **error);

/*
 * How many buckets there are just now, in a transaction: 0 also when the job is no longer divided, or its
 * buckets are elsewhere. Raises what the buckets_function raises.
 */
extern int32 sweep_dispatch_count_buckets(SweepRun *run, SweepShare *share);

#endif							/* SWEEP_DISPATCH_H */
