/*
 * bucket_run.h
 *		Runs of divided jobs: each works on one bucket.
 */
#ifndef SWEEP_BUCKET_RUN_H
#define SWEEP_BUCKET_RUN_H

#include "engine/run_state.h"

/*
 * Before a run begins whose job is divided, or has jobs to start: queues the shares of divided children; for a divided job,
 * maintains the buckets, queues further shares unless the run is one of those, and claims a bucket. False when the run does
 * not begin: with an error, or with the reason of the run set.
 *
 * The functions below are for runs that have run->buckets.
 */
extern bool sweep_bucket_run_open(SweepRun *run, ErrorData **error);

/* Before a batch, without a transaction: false when the claim no longer stands, or the run is to stop. */
extern bool sweep_bucket_run_check(SweepRun *run, ErrorData **error);

/* First thing in a batch: false when the number of buckets has changed; the run has then ended. */
extern bool sweep_bucket_run_begin_batch(SweepRun *run);

/* After the end of the run: returns the bucket, and queues the share that follows. */
extern void sweep_bucket_run_close(SweepRun *run);

#endif							/* SWEEP_BUCKET_RUN_H */
