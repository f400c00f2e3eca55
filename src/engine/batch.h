/*
 * batch.h
 *		One transaction of a run, and the steps that all kinds of batches share.
 */
#ifndef SWEEP_BATCH_H
#define SWEEP_BATCH_H

#include "engine/run_state.h"

/*
 * Calls work in a transaction; work may change run->next. Before the run has begun, a serialization failure is repeated.
 * TXN_FAILED: *error is in the batch context, which lives until the run is freed. TXN_ABSENT: the extension is gone and the
 * run has ended. TXN_STOPPED: the run is to stop while another session has the extension locked.
 */
extern SweepTxnEnd sweep_batch_transact(SweepRun *run, SweepWork work, void *arg, ErrorData **error);

/* The argument of the functions of the job for a batch, with the clock read now. */
extern SweepBatch sweep_batch_request(SweepRun *run);

/*
 * Calls the step, or with the error of an item the rescue function, under the timers of the run, and checks
 * afterwards that the lock, and the bucket of a share, are still held.
 */
extern void sweep_batch_call(SweepRun *run, SweepStep *step, const SweepBatch *batch, Jsonb *error, SweepProgress *progress);

/* Called around the call of another function of the job: the timers and the check of the lock only. */
extern void sweep_batch_enter_code(SweepRun *run);
extern void sweep_batch_leave_code(SweepRun *run);

/* Raises when processes may no longer work for the role of the run. */
extern void sweep_batch_require_role(SweepRun *run);

/* Raises when the process has lost the lock of the run. */
extern void sweep_batch_require_lock(SweepRun *run);

/* From here on the transaction can only commit while the share still holds its bucket. */
extern void sweep_batch_hold_bucket(SweepRun *run);

/* Adds the result of a call to run->next. Raises when cursor or detail is larger than SWEEP_PROGRESS_SIZE bytes. */
#define SWEEP_PROGRESS_SIZE (1024 * 1024)
extern void sweep_batch_add(SweepRun *run, const SweepProgress *progress);

/* A batch is complete: decides whether the run goes on, and if not, how it ended. */
extern void sweep_batch_end(SweepRun *run, bool drained);

/* Marks the transaction as the last one of the run: its commit waits until it and all earlier commits are on disk. */
extern void sweep_batch_is_last(SweepRun *run);

/* Called last in the transaction: writes the row of the run, and gives back the bucket of a share that has ended. */
extern void sweep_batch_save(SweepRun *run);

/* Queues the runs that follow from the recorded outcome: another attempt, or the hooks of the job. */
extern void sweep_batch_follow_end(SweepRun *run);

/* The transaction is committed: run->next becomes the state of the run. */
extern void sweep_batch_accept(SweepRun *run);

/*
 * Called after a rollback. True if it was due to a statement timeout, a lock timeout or a conflict with other transactions (a
 * deadlock, for example): the batch is then repeated with half the size, or the run has reached its stop_after. False after any
 * other error, and for a batch of one row (after a conflict only when it failed several times); then the error has a hint.
 */
extern bool sweep_batch_halve(SweepRun *run, ErrorData *error);

/* Whether the error is a serialization failure or a deadlock, so that another try may succeed. */
extern bool sweep_batch_is_conflict(const ErrorData *error);

/* Whether the statement timeout of a worker ended the transaction. */
extern bool sweep_batch_is_timed_out(const SweepRun *run, const ErrorData *error);

/*
 * Whether the error comes from a request to stop the run, or from the statement timeout of a CALL, which fires once. Code of a job may
 * have replaced that error by another one with the same SQLSTATE.
 */
extern bool sweep_batch_is_cancelled(const SweepRun *run, const ErrorData *error);

/* Called when the transaction was rolled back or not begun: the run ends with the error, or as requested. */
extern void sweep_batch_fail(SweepRun *run, ErrorData *error);

#endif							/* SWEEP_BATCH_H */
