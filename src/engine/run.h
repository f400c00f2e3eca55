/*
 * run.h
 *		A run from its beginning to its end.
 */
#ifndef SWEEP_RUN_H
#define SWEEP_RUN_H

#include "engine/run_state.h"

/*
 * Performs the run, whose lock the process holds: takes the lock, executes its batches, records the
 * outcome and gives the lock of the job and that of the run back. Does not raise for what the job does.
 */
extern void sweep_run_perform(SweepRun *run);

#endif							/* SWEEP_RUN_H */
