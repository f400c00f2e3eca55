/*
 * script.h
 *		The statements of a job with sql.
 */
#ifndef SWEEP_SCRIPT_H
#define SWEEP_SCRIPT_H

#include "engine/run_state.h"

/*
 * Executes the sql of the job, statement by statement, in a worker. Afterwards status and reason of the run say how it ended, and its state
 * has the counts; they are not recorded yet. The session is as it was before. An error of a statement is not raised.
 */
extern void sweep_script_execute(SweepRun *run);

#endif							/* SWEEP_SCRIPT_H */
