/*
 * bucket_run.h
 *		Runs of divided jobs: each works on one bucket.
 */
#ifndef SWEEP_BUCKET_RUN_H
#define SWEEP_BUCKET_RUN_H

#include "engine/run_state.h"

/*
 * Called before a run begins if its job is divided or has an on_start: queues the shares of divided jobs in on_start. For a
 * divided job, maintains the buckets, queues the other shares unless the run was begun as a share, and claims a bucket.
 * False when the run does not begin: *error or run->reason is set then.
 *
 * The functions below are for runs that have run->buckets.
 */
extern bool sweep_bucket_run_open(SweepRun *run, ErrorData **error);

/* Called before a batch, outside of a transaction: false when the claim is no longer valid, or the run is to stop. */
extern bool sweep_bucket_run_check(SweepRun *run, ErrorData **error);

/* Called first in a batch: false when the number of buckets has changed; the run has then ended. */
extern bool sweep_bucket_run_begin_batch(SweepRun *run);

/* Called after the end of the run: gives the bucket back, and queues the next share. */
extern void sweep_bucket_run_close(SweepRun *run);

#endif							/* SWEEP_BUCKET_RUN_H */
