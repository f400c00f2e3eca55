/*
 * script.h
 *		The statements of a job with sql.
 */
#ifndef SWEEP_SCRIPT_H
#define SWEEP_SCRIPT_H

#include "engine/run_state.h"

/*
 * Executes the sql of the job, statement by statement, in a worker. Status and reason of the run say how it ended, its
 * state has the counts; neither is recorded yet. The session is then as before. An error of a statement is not raised.
 */
extern void sweep_script_execute(SweepRun *run);

#endif							/* SWEEP_SCRIPT_H */
