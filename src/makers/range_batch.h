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
	SweepRangeStatements *statements;	/* the statements for its cursor */
	MemoryContext context;
	int32		size;
	int32		limit;			/* maximal number of rows of the target */
	bool		tied;			/* all its rows have one key, and more rows with that key follow */
	bool		locks;			/* the rows are locked before others are counted */
	int64		counted;		/* rows of the target, with the rows that are affected by deleting them */
	SweepCascadeRows *roots;	/* rows to delete; NULL = no other rows are affected by them */
	const SweepCascadeRows *held_roots; /* rows of the batch that other sessions have locked */
	int64		held;			/* number of rows that are not deleted because other sessions have locked them */
	int64		locked;			/* number of these rows that are reported */
	Datum		places;			/* of the rows to delete, as parameters; 0 = none */
	Datum		tables;
	bool		is_full;		/* it reads as many rows as it may, because among fewer none could be deleted */
	bool		is_large;		/* the row does not fit into a batch with all rows that are affected */
	bool		is_in_circle;	/* the row is part of a circle */
	bool		abandoned;		/* the row that was being dismantled is no longer to be deleted */
	const char *stays;			/* name of the counter of the rows that stay; NULL = none */
	Jsonb	   *cursor;			/* NULL = none */
	Jsonb	   *args;
	TimestampTz as_of;
	int64		run_id;
	int32		bucket;			/* bucket of the share; -1 = the job is not divided */
	Jsonb	   *upto;			/* the last key of the batch, as a cursor */
	int64		rows;			/* number of rows read */
	int64		done;
	Jsonb	   *detail;			/* NULL = none */
} SweepRangeBatch;

/* Key of a cursor: this pass has left out rows that other sessions had locked, or rows may have moved to a part that it has read. */
#define SWEEP_RANGE_LEFT "left"
/* Key of a cursor of a pass by ctid: how many of the rows that it has found are still there. */
#define SWEEP_RANGE_STAYS "stays"

/* Key of a cursor: how many rows of the next key were tried and are still there, because a trigger or a policy keeps them. */
#define SWEEP_RANGE_TRIED "tried"

/* Finds the last key of the batch; false when there is no row after the cursor. */
extern bool sweep_range_find_edge(SweepRangeBatch *batch);

/* Executes the statement that deletes, moves or updates the rows of the batch. */
extern void sweep_range_do_work(SweepRangeBatch *batch, SweepRangeStatement which);

/* Sets the cursor to after the last key of the batch. */
extern void sweep_range_advance(SweepRangeBatch *batch);

/* Makes the next batch of the same key leave out "count" more rows. */
extern void sweep_range_pass_over(SweepRangeBatch *batch, int64 count);

/* Sets the detail of the batch, and the number of its rows. */
extern void sweep_range_report(SweepRangeBatch *batch);

/* Returns the number of rows done or found; the first row found is the current one. */
extern uint64 sweep_range_execute(SweepRangeBatch *batch, SweepRangeStatement which);

/* The same for a statement that is prepared and planned on first use, because not every batch needs it. */
extern uint64 sweep_range_execute_by_key(SweepRangeBatch *batch, SweepRangeStatement which);

#endif							/* SWEEP_RANGE_BATCH_H */
