/*
 * run_row.h
 *		The row of a run in sweep.run_live. All that a run writes into its row is written here.
 */
#ifndef SWEEP_RUN_ROW_H
#define SWEEP_RUN_ROW_H

#include "engine/run_state.h"

/* All of them within a transaction that has the extension locked. */

/* Inserts the row of a run that begins in a session; returns the number of rows to expect, 0 = unknown. */
extern int64 sweep_run_row_insert(SweepRun *run, Jsonb *args);

/*
 * The run is in progress. False when its row waits no longer, or another session has locked it: a worker does not
 * wait for that, and the row stays queued.
 */
extern bool sweep_run_row_start(SweepRun *run);

/* Writes run->next, and the outcome when there is one. */
extern void sweep_run_row_save(SweepRun *run);

/* The run was skipped: the lock is held, by run->lock_holder; or no bucket is free. */
extern void sweep_run_row_skip(SweepRun *run);
extern void sweep_run_row_skip_share(SweepRun *run);

/* The run could not begin, or was stopped before, as its reason and error say: its row still waits. */
extern void sweep_run_row_fail(SweepRun *run);

/* Ends the row of a run that has not begun; parameters: run, stop reason, sqlstate, error. */
extern SweepStatement sweep_fail_start_sql;

/* Moves ended runs to the history; with true, also removes what is past its retention. */
extern SweepStatement sweep_archive_sql;

#endif							/* SWEEP_RUN_ROW_H */
