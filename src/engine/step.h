/*
 * step.h
 *		Calls the step or the statement of a job for one batch.
 */
#ifndef SWEEP_STEP_H
#define SWEEP_STEP_H

#include "postgres.h"
#include "datatype/timestamp.h"
#include "utils/jsonb.h"

typedef struct SweepStep SweepStep;

/* One batch, as the type sweep.batch; NULL = not set. */
typedef struct SweepBatch
{
	int32		size;
	Jsonb	   *cursor;
	Jsonb	   *args;
	TimestampTz as_of;
	int64		run_id;
	int32		bucket;			/* only when there are buckets */
	int32		buckets;		/* 0 = the job is not divided */
	Jsonb	  **items;			/* item jobs */
	int			item_count;
} SweepBatch;

/* The columns of that type, from 0, and their types. */
enum
{
	BATCH_SIZE,
	BATCH_CURSOR,
	BATCH_ARGS,
	BATCH_AS_OF,
	BATCH_BUCKET,
	BATCH_BUCKETS,
	BATCH_ITEMS,
	BATCH_RUN_ID,
	BATCH_COLUMNS
};
extern const Oid sweep_batch_types[BATCH_COLUMNS];

/* The result of a batch, as the type sweep.progress. */
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

/* The same for a function that returns one sweep.progress: a step, or with 2 arguments a rescue function. */
extern SweepStep *sweep_step_prepare_function(MemoryContext context, const char *name, int argument_count);

/* The same for the pick function of an item job and the buckets_function. */
extern SweepStep *sweep_step_prepare_call(MemoryContext context, const char *name);

/* The same for an estimate. Its result is in the columns of the current row; returns the number of rows, 2 = two or more. */
extern SweepStep *sweep_step_prepare_question(MemoryContext context, const char *estimate);
extern uint64 sweep_step_ask(SweepStep *question, const SweepBatch *batch);

/* Items as jsonb[], in the current memory context. */
extern Datum sweep_step_items(Jsonb **items, int count);

/* Calls the buckets_function. Raises unless it returns 0 or more. */
extern int32 sweep_step_count(SweepStep *count, const SweepBatch *batch);

/* Picks items: returns how many, and the items in the given context. Raises what the function raises. */
extern int	sweep_step_pick(SweepStep *pick, const SweepBatch *batch, Jsonb ***items, MemoryContext context);

/* Frees the plan; NULL is allowed. */
extern void sweep_step_free(SweepStep *step);

/*
 * Executes one batch; with an error, calls the rescue function with the one item of the batch. The result is in the
 * given context. Raises errors of the function, and an error if it no longer exists, may not be executed, or has
 * returned no number of rows.
 */
extern void sweep_step_call(SweepStep *step, const SweepBatch *batch, Jsonb *error, SweepProgress *progress, MemoryContext context);

/* A function of one argument that a statement calls, by its quoted name with schema. */
typedef struct SweepCallee
{
	const char *name;
	Oid			argument;		/* its type */
	uint64		checked_at;		/* 0 = not yet */
} SweepCallee;

/*
 * Called before each execution of the statement, as its user. Raises when the owner of the function cannot SET ROLE
 * to that user; checks only after a function, a role or a membership has changed.
 */
extern void sweep_step_check_callee(SweepCallee *callee);

/* The quoted name of a function with its schema. Raises when the function was dropped. */
extern char *sweep_step_function_name(Oid function);

#endif							/* SWEEP_STEP_H */
