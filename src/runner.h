/*
 * runner.h
 *		The process of one run.
 */
#ifndef SWEEP_RUNNER_H
#define SWEEP_RUNNER_H

#include "postmaster/bgworker.h"
#include "run.h"

/*
 * Starts a process for a waiting run of this database, given with its id and definition; expected_rows
 * are those of the last run that drained, 0 = not known. False when there is no room for it now: all of
 * pg_sweep.max_running_jobs are in use (*reason says so), or max_worker_processes. True also when the
 * run has a process already; then *slot_index is -1.
 */
extern bool sweep_runner_start(const SweepRun *run, int64 expected_rows, int *slot_index,
							   BackgroundWorkerHandle **handle, const char **reason);

extern PGDLLEXPORT void sweep_runner_main(Datum arg);

#endif							/* SWEEP_RUNNER_H */
