/*
 * unit.h
 *		One transaction of a run: begun behind the gate, with its settings, ended with the row of the run.
 */
#ifndef SWEEP_UNIT_H
#define SWEEP_UNIT_H

#include "base/sql.h"
#include "engine/run.h"

/*
 * Does the work in a transaction; while somebody alters or drops the extension, waits and begins again.
 * False when the work failed; *error is then in the context of the batch, which outlives the end of the run. True with run->gate_closed when a
 * request to stop came during that wait: the work was not done.
 */
extern bool sweep_unit_transact(SweepRun *run, SweepWork work, void *arg, ErrorData **error);

/*
 * First thing in the work: false when the extension, and the row of the run with it, is gone; the run
 * has then ended. Sets run->next to the state that the work may change.
 */
extern bool sweep_unit_begin(SweepRun *run);

/* This transaction is the last one of the run: its commit waits for the disk, and all before with it. */
extern void sweep_unit_is_last(SweepRun *run);

/* Whether somebody else has locked the row of the run, which still waits. Waits for nobody. */
extern bool sweep_unit_is_locked(const SweepRun *run);

/* Calls a function of the job, guarded by its timers, and checks that the lease, and the bucket of a share, are still held after it. */
extern void sweep_unit_call(SweepRun *run, SweepStep *step, const SweepBatch *batch, SweepProgress *progress);

/* The same for the function that counts buckets, the pick function and the rescue function. */
extern int32 sweep_unit_count(SweepRun *run, SweepStep *count, const SweepBatch *batch);
extern int	sweep_unit_pick(SweepRun *run, const SweepBatch *batch, Jsonb ***items);
extern void sweep_unit_rescue(SweepRun *run, const SweepBatch *batch, Jsonb *error, SweepProgress *progress);

/* A batch for the functions of the job, with the clock read now. */
extern SweepBatch sweep_unit_batch(SweepRun *run);

/* A batch is complete: decides whether the run goes on, and if not, how it ended. */
extern void sweep_unit_end_batch(SweepRun *run, bool drained);

/* Writes the row of the run. */
extern void sweep_unit_save(SweepRun *run);

/* Raises when a batch has left a cursor or detail of more than this. */
#define SWEEP_PROGRESS_SIZE (1024 * 1024)
extern void sweep_unit_check_size(const SweepRun *run);

/* The transaction is committed: what it came to is now the state of the run. */
extern void sweep_unit_accept(SweepRun *run);

/* The transaction was rolled back, or not begun: why the run ends. */
extern void sweep_unit_fail(SweepRun *run, ErrorData *error);

#endif							/* SWEEP_UNIT_H */
