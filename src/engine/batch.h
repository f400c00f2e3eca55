/*
 * batch.h
 *		One transaction of a run, and what its batches have in common.
 */
#ifndef SWEEP_BATCH_H
#define SWEEP_BATCH_H

#include "engine/run_state.h"

/*
 * Does the work in a transaction, with run->next as the state that it may change. Before the run has begun it is
 * repeated after a serialization failure. With TXN_FAILED *error is in the context of the batch, which outlives the end of the
 * run. With TXN_ABSENT the run has ended. TXN_STOPPED: the run is to stop, and another session has the extension locked.
 */
extern SweepTxnEnd sweep_batch_transact(SweepRun *run, SweepWork work, void *arg, ErrorData **error);

/* The argument of the functions of the job for a batch, with the clock read now. */
extern SweepBatch sweep_batch_request(SweepRun *run);

/*
 * Calls the step, or the rescue function with the error of an item, guarded by the timers of the run, and
 * checks that the lock, and the bucket of a share, are still held after it.
 */
extern void sweep_batch_call(SweepRun *run, SweepStep *step, const SweepBatch *batch, Jsonb *error, SweepProgress *progress);

/* The same for the function that counts buckets, and for the pick function; neither needs a bucket. */
extern int32 sweep_batch_count(SweepRun *run, SweepStep *count, const SweepBatch *batch);
extern int	sweep_batch_pick(SweepRun *run, const SweepBatch *batch, Jsonb ***items);

/* Raises when no process may work for the role of the run any more. */
extern void sweep_batch_require_role(SweepRun *run);

/* Raises when the process has lost the lock of the run. */
extern void sweep_batch_require_lock(SweepRun *run);

/* From here on the transaction is not committed unless the bucket of a share is still held. */
extern void sweep_batch_hold_bucket(SweepRun *run);

/* Adds the result of a call to run->next. Raises when cursor or detail is larger than this, in bytes. */
#define SWEEP_PROGRESS_SIZE (1024 * 1024)
extern void sweep_batch_add(SweepRun *run, const SweepProgress *progress);

/* A batch is complete: decides whether the run goes on, and if not, how it ended. */
extern void sweep_batch_end(SweepRun *run, bool drained);

/* This transaction is the last one of the run: its commit waits for the disk, and all before with it. */
extern void sweep_batch_is_last(SweepRun *run);

/* Last thing in the transaction: the row of the run, and the bucket of a share that has ended. */
extern void sweep_batch_save(SweepRun *run);

/* Queues what the recorded outcome asks for: another attempt, or the hooks of the job. */
extern void sweep_batch_follow_end(SweepRun *run);

/* The transaction is committed: run->next becomes the state of the run. */
extern void sweep_batch_accept(SweepRun *run);

/*
 * The transaction was rolled back by a timeout of a statement or a lock, or by a conflict with others, a deadlock for one: true
 * when its batch is to be done again with half the size, or the run has reached its stop_after instead. False when it failed for
 * another reason, or with one row, if by a conflict, several times; then the error has a hint.
 */
extern bool sweep_batch_halve(SweepRun *run, ErrorData *error);

/* A serialization failure or a deadlock: the same may succeed when it is done again. */
extern bool sweep_batch_is_conflict(const ErrorData *error);

/* Whether the statement timeout of a worker is what ended the transaction. */
extern bool sweep_batch_is_timed_out(const SweepRun *run, const ErrorData *error);

/*
 * Whether the error comes from a request to stop the run, or from the statement timeout of a CALL, which fires once. Code of a job may
 * have raised another one with the same SQLSTATE in its place.
 */
extern bool sweep_batch_is_cancelled(const SweepRun *run, const ErrorData *error);

/* The transaction was rolled back, or not begun: the run ends with the error, or as requested. */
extern void sweep_batch_fail(SweepRun *run, ErrorData *error);

#endif							/* SWEEP_BATCH_H */
