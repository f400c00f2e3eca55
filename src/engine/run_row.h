/*
 * run_row.h
 *		The row of a run in sweep.run_live. Only run_row.c writes into the row for a run.
 */
#ifndef SWEEP_RUN_ROW_H
#define SWEEP_RUN_ROW_H

#include "engine/run_state.h"

/* All functions are called within a transaction that has the extension locked. */

/* Inserts the row of a run that begins in a session; returns the expected number of rows, 0 = unknown. */
extern int64 sweep_run_row_insert(SweepRun *run, Jsonb *args);

/*
 * Sets the row to running. False when the row is not waiting any more, or another session has locked it: a worker
 * does not wait for that session, and the run stays queued.
 */
extern bool sweep_run_row_start(SweepRun *run);

/* Writes run->next, and the outcome when there is one. */
extern void sweep_run_row_save(SweepRun *run);

/* Record that the run was skipped: the lock is held by run->lock_holder; or no bucket is free. */
extern void sweep_run_row_skip(SweepRun *run);

/* Ends the waiting row of a run that could not begin or was stopped before, with its reason and error. */
extern void sweep_run_row_fail(SweepRun *run);

/* Ends the row of a run that has not begun; parameters: run, stop reason, sqlstate, error. */
extern SweepStatement sweep_fail_start_sql;

/* Moves ended runs to the history; with true, also removes runs that are older than their retention. */
extern SweepStatement sweep_archive_sql;

#endif							/* SWEEP_RUN_ROW_H */
