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
 * Starts a process for a waiting run of this database, given with its id and definition. expected_rows: rows of the
 * last run that drained, 0 = not known; unlimited: its role has no limit, see quota.h. Returns why there is no room
 * for it now, or REFUSED_NOT. If the run has a process already, REFUSED_NOT is returned and *started is false.
 * Without a pool the launcher starts the process, once this one has ended.
 */
extern SweepRefusal sweep_runner_start(SweepPool *pool, const SweepRun *run, int64 expected_rows, bool unlimited,
									   bool preferred, bool *started);

/* Called in the launcher: starts the runs that schedulers have left to it; true when no process was available. */
extern bool sweep_runner_start_wanted(SweepPool *pool);

/* Whether the process of the slot was started by a scheduler of this database and has not attached yet. The caller has the lock. */
extern bool sweep_runner_is_starting(int index);

/*
 * The slots of runs in this database whose process ended before it began, or never came up. Lowers *starting_ms to the time until
 * a starting process is given up, and sets *waits_on when a run needs another process.
 */
extern List *sweep_runner_collect_unopened(const SweepPool *pool, long *starting_ms, bool *waits_on);

/* Records why such a run could not begin, and frees its slot. In a transaction. */
extern void sweep_runner_fail_start(SweepSlot *slot);

/* Whether a run in progress, in any database, has begun within the last two seconds, so that it may end soon. */
extern bool sweep_runner_any_young(void);

extern PGDLLEXPORT void sweep_runner_main(Datum arg);

#endif							/* SWEEP_RUNNER_H */
