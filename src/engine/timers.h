/*
 * timers.h
 *		The timers of a run: its timeout, and the statement timeout of its role.
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

#endif							/* SWEEP_TIMERS_H */
