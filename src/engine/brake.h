/*
 * brake.h
 *		What slows a run down: pauses between its batches.
 */
#ifndef SWEEP_BRAKE_H
#define SWEEP_BRAKE_H

#include "engine/run_state.h"

/* Somebody wants the run to stop; before it has begun nothing but this looks at it. */
extern bool sweep_brake_is_stopped(const SweepRun *run);

/* Waits so long, or until the run is to stop. No transaction of the engine is open. */
extern void sweep_brake_wait(SweepRun *run, int64 time_us, uint32 wait_event);

/* After a batch: the pause of the job, unless the run has ended or the batch is to be done again. */
extern void sweep_brake_pause(SweepRun *run);

#endif							/* SWEEP_BRAKE_H */
