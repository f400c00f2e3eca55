/*
 * script.h
 *		The statements of a job with sql.
 */
#ifndef SWEEP_SCRIPT_H
#define SWEEP_SCRIPT_H

#include "engine/run_state.h"

/*
 * Executes the sql of the job, statement by statement, in a worker. Status and reason of the run say how that ended, its
 * state how far it came; neither is recorded yet. The session is then as it was before. Does not raise for what a statement
 * does.
 */
extern void sweep_script_execute(SweepRun *run);

#endif							/* SWEEP_SCRIPT_H */
