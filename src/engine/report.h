/*
 * report.h
 *		Live progress, activity and errors of a run.
 */
#ifndef SWEEP_REPORT_H
#define SWEEP_REPORT_H

#include "engine/run_state.h"

/* These set the live progress in shared memory, for sweep.running. */
extern void sweep_report_begin(SweepRun *run);
extern void sweep_report_estimate(SweepRun *run, int64 rows);	/* -1 = unknown */
extern void sweep_report_phase(SweepRun *run, SweepPhase phase);
extern void sweep_report_batch(SweepRun *run);
/* Reports that a batch of that size has failed and is repeated with a smaller one. */
extern void sweep_report_halved(SweepRun *run, int32 size, const ErrorData *error);
extern void sweep_report_brake(SweepRun *run, bool begins);

/* "1 batch", "2 batches"; in the current memory context. */
extern char *sweep_report_batches(int64 batches);
extern char *sweep_report_rows(int64 rows);

/* Sets the query that pg_stat_activity shows while a worker is between the statements of a run. */
extern void sweep_report_activity(SweepRun *run);

/* An error as text, with its detail, hint and context, in the current memory context. */
extern char *sweep_report_error_text(const ErrorData *error);

/* The error as jsonb, for the rescue function and for messages of queues; in the current memory context. */
extern Jsonb *sweep_report_error_jsonb(const ErrorData *error);

/* Makes an error of the engine, in the run's memory context; detail and hint may be NULL or empty. */
extern ErrorData *sweep_report_error(SweepRun *run, int sqlstate, const char *message, const char *detail, const char *hint);

/* The error of a run whose timeout has passed. */
extern ErrorData *sweep_report_timeout_error(SweepRun *run);

#endif							/* SWEEP_REPORT_H */
