/*
 * run.h
 *		A run from its beginning to its end.
 */
#ifndef SWEEP_RUN_H
#define SWEEP_RUN_H

#include "engine/run_state.h"

/*
 * Performs a run; the process already holds the lock of the run. Takes the lock of the job, executes the batches,
 * records the outcome and gives both locks back. Does not raise errors of the job.
 */
extern void sweep_run_perform(SweepRun *run);

#endif							/* SWEEP_RUN_H */
