/*
 * estimate.h
 *		How many rows a run has to do, as the estimate of its job says.
 */
#ifndef SWEEP_ESTIMATE_H
#define SWEEP_ESTIMATE_H

#include "engine/run_state.h"

/*
 * Asks, for as long as SWEEP_ESTIMATE_MS, in a run that has begun and has an estimate, and reports the answer. Where there
 * is none, it says so in one line and the run goes on; it ends only when somebody wants it to stop meanwhile.
 */
#define SWEEP_ESTIMATE_MS 1000
extern void sweep_estimate_ask(SweepRun *run);

#endif							/* SWEEP_ESTIMATE_H */
