/*
 * environment.h
 *		The settings that the code of a job is executed with.
 */
#ifndef SWEEP_ENVIRONMENT_H
#define SWEEP_ENVIRONMENT_H

#include "engine/run_state.h"

/*
 * In a session, for the transaction in progress: what a worker has for good, and the settings of the job. Or, where
 * nothing of the job is executed, the path of the engine, which its statements then need not set each for itself.
 */
extern void sweep_environment_set_local(SweepRun *run);
extern void sweep_environment_pin_local(void);

/* In a worker, before anything of the job is executed: the settings of the job, if it has any; raises when one cannot be set. */
#define sweep_environment_is_needed(run) (JB_ROOT_COUNT((run)->settings) > 0)
extern void sweep_environment_set(void *run);	/* a SweepWork */

#endif							/* SWEEP_ENVIRONMENT_H */
