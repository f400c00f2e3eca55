/*
 * watch.h
 *		Ends a run whose batches report rows without an end.
 */
#ifndef SWEEP_WATCH_H
#define SWEEP_WATCH_H

#include "engine/run_state.h"

/*
 * Called in the transaction of a batch that was not the last one, with its result in run->next. If the run makes no
 * progress, sets run->no_progress, and run->endless to the error with which the run ends after the commit.
 */
extern void sweep_watch_batch(SweepRun *run);

#endif							/* SWEEP_WATCH_H */
