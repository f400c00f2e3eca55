/*
 * estimate.h
 *		How many rows a run has to handle, as the estimate of its job says.
 */
#ifndef SWEEP_ESTIMATE_H
#define SWEEP_ESTIMATE_H

#include "engine/run_state.h"

/* Time that an estimate may take, in ms. */
#define SWEEP_ESTIMATE_MS 1000

/*
 * Executes the estimate of a run that has begun, and reports its answer. Without an answer it says why in one line and
 * the run goes on; only a request to stop meanwhile ends it.
 */
extern void sweep_estimate_ask(SweepRun *run);

#endif							/* SWEEP_ESTIMATE_H */
