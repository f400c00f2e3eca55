/*
 * timers.h
 *		The timers of a run: its hard limit, and the statement timeout of its role.
 */
#ifndef SWEEP_TIMERS_H
#define SWEEP_TIMERS_H

#include "engine/run_state.h"

/*
 * For a run with a timeout: from now on it is interrupted when its timeout has passed. Its slot then carries
 * SWEEP_STOP_REQUEST_TIMEOUT. The scheduler watches the same deadline from outside.
 */
extern void sweep_timers_arm_timeout(SweepRun *run);
extern void sweep_timers_disarm_timeout(SweepRun *run);

/* Around a commit that waits for a standby: its own timer does not end the wait, nor does the scheduler while the phase says so. */
extern void sweep_timers_suspend_timeout(SweepRun *run);
extern void sweep_timers_resume_timeout(SweepRun *run);

/*
 * The statement timeout guards one call of the step. Nothing else arms it in a worker; within CALL that of the CALL is already
 * running. Disarm does nothing unless run->statement_timer says that it is armed.
 */
extern void sweep_timers_arm_statement(SweepRun *run);
extern void sweep_timers_disarm_statement(SweepRun *run);

/* Whether the time had passed when it was disarmed, so that it may be what ended the call. */
extern bool sweep_timers_statement_fired(const SweepRun *run);

#endif							/* SWEEP_TIMERS_H */
