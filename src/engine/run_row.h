/*
 * run_row.h
 *		The row of a run in sweep.run_live. All that a run writes into its row is written here.
 */
#ifndef SWEEP_RUN_ROW_H
#define SWEEP_RUN_ROW_H

#include "engine/run_state.h"

/* All of them within a transaction that has the extension locked. */

/* Inserts the row of a run that is begun in a session; returns how many rows to expect, 0 = not known. */
extern int64 sweep_run_row_insert(SweepRun *run, Jsonb *args);

/*
 * It is in progress. False when it waits no longer; or when somebody else has just locked the row: a worker
 * does not wait for that, and the row waits on.
 */
extern bool sweep_run_row_start(SweepRun *run);

/* What run->next has come to, and the outcome when there is one. */
extern void sweep_run_row_save(SweepRun *run);

/* It was skipped: the lock is held, by run->lock_holder then; or there is no bucket for it. */
extern void sweep_run_row_skip(SweepRun *run);
extern void sweep_run_row_skip_share(SweepRun *run);

/* It could not begin, or was stopped before, as reason and error of the run say: its row still waits. */
extern void sweep_run_row_fail(SweepRun *run);

/* Ends the row of a run that has not begun; parameters: run, stop reason, sqlstate, error. */
extern SweepStatement sweep_fail_start_sql;

/* Moves ended runs to the history; with true, also removes what is past its retention. */
extern SweepStatement sweep_archive_sql;

#endif							/* SWEEP_RUN_ROW_H */
