/*
 * plan_buckets.h
 *		Sees to it that the buckets of a divided job are there, and are worked on.
 */
#ifndef SWEEP_PLAN_BUCKETS_H
#define SWEEP_PLAN_BUCKETS_H

#include "engine/run_state.h"

/* All of them: false with an error, or with the reason for which the run ends. */

/* Queues shares for the divided children of the run's job. */
extern bool sweep_plan_children(SweepRun *run, ErrorData **error);

/* Finds the store of the buckets, and how many there are. */
extern bool sweep_plan_look(SweepRun *run, SweepBuckets *buckets, ErrorData **error);

/* Maintains the buckets and queues shares for those that are free. */
extern bool sweep_plan_queue(SweepRun *run, SweepBuckets *buckets, ErrorData **error);

/* Whether the store did what it was asked for. */
extern bool sweep_plan_accept(SweepRun *run, SweepBucketResult result, const SweepBucketError *problem, ErrorData **error);

/*
 * How many buckets there are just now, in a transaction: 0 also when the job is no longer divided, or its
 * buckets are elsewhere. Raises what the buckets_function raises.
 */
extern int32 sweep_plan_count(SweepRun *run, SweepBuckets *buckets);

#endif							/* SWEEP_PLAN_BUCKETS_H */
