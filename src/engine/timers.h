/*
 * timers.h
 *		The timers of a run: its timeout, and the statement timeout of its role; pauses between its batches, and requests to stop it.
 */
#ifndef SWEEP_TIMERS_H
#define SWEEP_TIMERS_H

#include "engine/run_state.h"

/*
 * For a run with a timeout: from now on it is interrupted when its timeout has passed. Its slot then has
 * SWEEP_STOP_REQUEST_TIMEOUT. The launcher watches the same deadline (process/launcher.c).
 */
extern void sweep_timers_arm_timeout(SweepRun *run);
extern void sweep_timers_disarm_timeout(SweepRun *run);

/* Called around a commit that waits for a standby: neither the timer nor the launcher ends that wait. */
extern void sweep_timers_suspend_timeout(SweepRun *run);
extern void sweep_timers_resume_timeout(SweepRun *run);

/*
 * The statement timeout limits one call of the step. Only these functions arm it in a worker; within CALL the timeout of the
 * CALL is already running. Disarm does nothing unless run->statement_timer says that it is armed.
 */
extern void sweep_timers_arm_statement(SweepRun *run);
extern void sweep_timers_disarm_statement(SweepRun *run);

/* Whether the time had passed when the timer was disarmed, so that the timeout may have ended the call. */
extern bool sweep_timers_statement_fired(const SweepRun *run);

/* Whether the run was requested to stop. */
extern bool sweep_brake_is_stopped(const SweepRun *run);

/* Turns a pending request to cancel into a request to stop the run. */
extern void sweep_brake_note_cancel(SweepRun *run);

/* Waits for that time, or until the run is to stop. No transaction of the engine is open. */
extern void sweep_brake_wait(SweepRun *run, int64 time_us, uint32 wait_event);

/* Pauses after a batch for the time of the job, unless the run has ended or the batch is to be repeated. */
extern void sweep_brake_pause(SweepRun *run);

#endif							/* SWEEP_TIMERS_H */
