/*
 * estimate.h
 *		The number of rows that a run has to handle, from the estimate of its job.
 */
#ifndef SWEEP_ESTIMATE_H
#define SWEEP_ESTIMATE_H

#include "engine/run_state.h"

/* Time that an estimate may take, in ms. */
#define SWEEP_ESTIMATE_MS 1000

/*
 * Executes the estimate of a run that has begun, and reports the result in sweep.running. Without a result it logs the
 * reason and the run goes on; only a request to stop ends the run.
 */
extern void sweep_estimate_ask(SweepRun *run);

#endif							/* SWEEP_ESTIMATE_H */
