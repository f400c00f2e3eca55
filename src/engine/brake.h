/*
 * brake.h
 *		Pauses between the batches of a run, and requests to stop it.
 */
#ifndef SWEEP_BRAKE_H
#define SWEEP_BRAKE_H

#include "engine/run_state.h"

/* Whether the run was requested to stop. */
extern bool sweep_brake_is_stopped(const SweepRun *run);

/* Turns a pending request to cancel into a request to stop the run. */
extern void sweep_brake_note_cancel(SweepRun *run);

/* Waits for that time, or until the run is to stop. No transaction of the engine is open. */
extern void sweep_brake_wait(SweepRun *run, int64 time_us, uint32 wait_event);

/* Pauses after a batch for the time of the job, unless the run has ended or the batch is to be repeated. */
extern void sweep_brake_pause(SweepRun *run);

#endif							/* SWEEP_BRAKE_H */
