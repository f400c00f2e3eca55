/*
 * runner.h
 *		The process of one run.
 */
#ifndef SWEEP_RUNNER_H
#define SWEEP_RUNNER_H

#include "base/sql.h"
#include "engine/run_state.h"
#include "process/pool.h"

/*
 * Starts a process for a waiting run of this database, given with its id and definition; expected_rows
 * are those of the last run that drained, 0 = not known; unlimited: its role has no share of its own. Says
 * so when there is no room for it now. When the run has a process already, nothing was refused and
 * *started is false.
 */
extern SweepRefusal sweep_runner_start(SweepPool *pool, const SweepRun *run, int64 expected_rows, bool unlimited,
									   bool preferred, bool *started);

/*
 * Once after each start of the server, before the first run is started: counts for their jobs the runs that were in progress when the server went down, in a
 * transaction of its own. False when that could not be done yet.
 */
extern bool sweep_runner_count_crashes(bool (*transact) (SweepWork work), SweepDatabaseRecord *record);

extern PGDLLEXPORT void sweep_runner_main(Datum arg);

#endif							/* SWEEP_RUNNER_H */
