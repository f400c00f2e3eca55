/*
 * environment.h
 *		The settings with which the code of a job is executed.
 */
#ifndef SWEEP_ENVIRONMENT_H
#define SWEEP_ENVIRONMENT_H

#include "engine/run_state.h"

/* Whether the job has settings. */
#define sweep_environment_is_needed(run) (JB_ROOT_COUNT((run)->settings) > 0)

/* Sets them, in a worker before any code of the job is executed, in a session for the current transaction. Raises when one cannot be set. */
extern void sweep_environment_set(void *run);	/* a SweepWork */
extern void sweep_environment_set_local(SweepRun *run);

#endif							/* SWEEP_ENVIRONMENT_H */
