/*
 * range_batch.h
 *		A batch that is a range of keys: its edge, its work, its report.
 */
#ifndef SWEEP_RANGE_BATCH_H
#define SWEEP_RANGE_BATCH_H

#include "makers/range_statements.h"

typedef struct SweepRangeBatch
{
	SweepRangeKept *kept;
	SweepRangeStatements *statements;	/* those that fit the cursor */
	MemoryContext context;
	int32		size;
	int32		limit;			/* rows of the target that the batch takes at most */
	bool		tied;			/* it begins with its last key, and more rows of that follow */
	SweepCascadeRows *roots;	/* that are deleted; NULL = nothing goes with them */
	const SweepCascadeRows *held_roots; /* that other sessions hold */
	int64		held;			/* rows that would be deleted, but for other sessions */
	int64		locked;			/* those of them that are reported */
	Datum		places;			/* of rows, for the statements; 0 = none */
	Datum		tables;
	bool		is_full;		/* it looks at as many rows as it may, because none of fewer can be deleted */
	bool		is_large;		/* the root does not fit, with all that goes with it */
	bool		is_in_circle;	/* as was found before */
	bool		abandoned;		/* the row that was dismantled is not to go any more */
	const char *stays;			/* counter of the rows that stay; NULL = none */
	Jsonb	   *cursor;			/* NULL = none */
	Jsonb	   *args;
	TimestampTz as_of;
	int64		run_id;
	int32		bucket;			/* of a share; -1 = the job is not divided */
	Jsonb	   *upto;			/* the last key of the batch, as a cursor */
	int64		rows;			/* read */
	int64		done;
	Jsonb	   *detail;			/* NULL = none */
} SweepRangeBatch;

/* Key of a cursor: rows have been left out in this pass, because other sessions held them, or may have moved to where it has been. */
#define SWEEP_RANGE_LEFT "left"
/* Key of a cursor, of a pass by places: how many of the rows that it has found are still there. */
#define SWEEP_RANGE_STAYS "stays"

/* Key of a cursor: how many rows of the next key were tried and are still there, because a trigger or a policy keeps them. */
#define SWEEP_RANGE_TRIED "tried"

/* Finds the last key of the batch; false when there is no row after the cursor. */
extern bool sweep_range_find_edge(SweepRangeBatch *batch);

/* Executes the statement that does the rows of the batch. */
extern void sweep_range_do_work(SweepRangeBatch *batch, SweepRangeStatement which);

/* Has the cursor after the last key of the batch. */
extern void sweep_range_advance(SweepRangeBatch *batch);

/* Has the next batch of the same key leave out as many more rows. */
extern void sweep_range_pass_over(SweepRangeBatch *batch, int64 count);

/* Sets the detail of the batch, and the number of its rows. */
extern void sweep_range_report(SweepRangeBatch *batch);

/* Returns the number of rows done or found; the first row found is the current one. */
extern uint64 sweep_range_execute(SweepRangeBatch *batch, SweepRangeStatement which);

/* The same for a statement that not every batch needs. */
extern uint64 sweep_range_execute_by_key(SweepRangeBatch *batch, SweepRangeStatement which);

#endif							/* SWEEP_RANGE_BATCH_H */
