/*
 * watch.h
 *		Ends a run whose batches go on reporting rows without an end.
 */
#ifndef SWEEP_WATCH_H
#define SWEEP_WATCH_H

#include "engine/run_state.h"

/* The run begins, with the cursor that its first batch is given. */
extern void sweep_watch_begin(SweepRun *run);

/* In the transaction of a batch that was not the last one, with what it came to in run->next. */
extern void sweep_watch_batch(SweepRun *run);

/* The batch is committed: if the run is endless, the reason and error it ends with. */
extern void sweep_watch_end(SweepRun *run);

#endif							/* SWEEP_WATCH_H */
