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
 * *started is false. Without a pool the launcher is to start the process, once this one has ended.
 */
extern SweepRefusal sweep_runner_start(SweepPool *pool, const SweepRun *run, int64 expected_rows, bool unlimited,
									   bool preferred, bool *started);

/* In the launcher: starts the processes that schedulers have left to it; true when there was none to be had. */
extern bool sweep_runner_start_wanted(SweepPool *pool);

/* Whether a process that a scheduler of this database has started for a slot has not come up. The caller has the lock. */
extern bool sweep_runner_is_starting(int index);

/*
 * The slots of runs in this database whose process ended before it began, or never came up. Lowers *starting_ms to the time until
 * one that is starting is given up, and sets *waits_on when a run waits for another process.
 */
extern List *sweep_runner_collect_unopened(const SweepPool *pool, long *starting_ms, bool *waits_on);

/* Records why such a run could not begin, and frees its slot. In a transaction. */
extern void sweep_runner_fail_start(SweepSlot *slot);

/* Whether a run that is in progress, in any database, has begun within the last seconds: it may end soon. */
extern bool sweep_runner_any_young(void);

extern PGDLLEXPORT void sweep_runner_main(Datum arg);

#endif							/* SWEEP_RUNNER_H */
