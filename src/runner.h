/*
 * runner.h
 *		The process of one run.
 */
#ifndef SWEEP_RUNNER_H
#define SWEEP_RUNNER_H

#include "postmaster/bgworker.h"

/*
 * Starts a process for a waiting run of this database. False when there is no room for it now: all of
 * pg_sweep.max_running_jobs are in use (*reason says so), or max_worker_processes. True also when the
 * run has a process already; then *slot_index is -1.
 */
extern bool sweep_runner_start(int64 run_id, const char *job, Oid run_as, int *slot_index,
							   BackgroundWorkerHandle **handle, const char **reason);

extern PGDLLEXPORT void sweep_runner_main(Datum arg);

#endif							/* SWEEP_RUNNER_H */
