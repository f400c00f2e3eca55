/*
 * step.h
 *		The call of what a job does in one batch: its step, or its statement.
 */
#ifndef SWEEP_STEP_H
#define SWEEP_STEP_H

#include "datatype/timestamp.h"
#include "utils/jsonb.h"

typedef struct SweepStep SweepStep;

/* One batch, as the type sweep.batch; NULL for what is not set. */
typedef struct SweepBatch
{
	int32		size;
	Jsonb	   *cursor;
	Jsonb	   *args;
	TimestampTz as_of;
	int64		run_id;
} SweepBatch;

/* What came of it, as the type sweep.progress. */
typedef struct SweepProgress
{
	int64		rows;
	Jsonb	   *cursor;
	Jsonb	   *detail;
} SweepProgress;

/*
 * Prepares the step or, when that is NULL, the statement, as the current user; within a transaction.
 * Raises when it does not exist or is not allowed.
 */
extern SweepStep *sweep_step_prepare(MemoryContext context, const char *step, const char *batch_sql);

/* Does one batch. The result is in the given context. Raises what the step raises. */
extern void sweep_step_call(SweepStep *step, const SweepBatch *batch, SweepProgress *progress, MemoryContext context);

/* The text that is executed, for sweep.preview. */
extern const char *sweep_step_text(const SweepStep *step);

#endif							/* SWEEP_STEP_H */
