/*
 * environment.h
 *		The settings of a job, which its code is executed with.
 */
#ifndef SWEEP_ENVIRONMENT_H
#define SWEEP_ENVIRONMENT_H

#include "engine/run_state.h"

/* Whether the job has any. */
#define sweep_environment_is_needed(run) (JB_ROOT_COUNT((run)->settings) > 0)

/* Sets them: in a worker, before anything of the job is executed; in a session for the transaction in progress. Raises when one cannot be set. */
extern void sweep_environment_set(void *run);	/* a SweepWork */
extern void sweep_environment_set_local(SweepRun *run);

#endif							/* SWEEP_ENVIRONMENT_H */
