/*
 * run_row.h
 *		The row of a run in sweep.run_live, changed in place.
 */
#ifndef SWEEP_RUN_ROW_H
#define SWEEP_RUN_ROW_H

#include "postgres.h"
#include "storage/itemptr.h"

/* The columns of sweep.run_live, in their order. */
typedef enum SweepRunColumn
{
	RUN_COLUMN_RUN_ID,
	RUN_COLUMN_JOB,
	RUN_COLUMN_ARGS,
	RUN_COLUMN_TRIGGER,
	RUN_COLUMN_ATTEMPT,
	RUN_COLUMN_DUE_AT,
	RUN_COLUMN_STARTED_AT,
	RUN_COLUMN_FINISHED_AT,
	RUN_COLUMN_STATUS,
	RUN_COLUMN_STOP_REASON,
	RUN_COLUMN_BATCHES,
	RUN_COLUMN_ROWS,
	RUN_COLUMN_RESCUED,
	RUN_COLUMN_QUARANTINED,
	RUN_COLUMN_CURSOR,
	RUN_COLUMN_DETAIL,
	RUN_COLUMN_SQLSTATE,
	RUN_COLUMN_ERROR,
	RUN_COLUMN_PID,
	RUN_COLUMN_RUN_AS,
	RUN_COLUMN_BUCKET,
	RUN_COLUMN_SHARES_LEFT,
	RUN_COLUMN_PARENT_RUN_ID,
	RUN_COLUMN_COUNT
} SweepRunColumn;

/* What is to become of the columns; those that are not set stay as they are. All zero to begin with. */
typedef struct SweepRunChange
{
	Datum		values[RUN_COLUMN_COUNT];
	bool		is_null[RUN_COLUMN_COUNT];
	bool		is_set[RUN_COLUMN_COUNT];
} SweepRunChange;

extern void sweep_run_row_set(SweepRunChange *change, SweepRunColumn column, Datum value);
extern void sweep_run_row_set_null(SweepRunChange *change, SweepRunColumn column);

/*
 * Changes the row at *place if it is that of the run and has that status; *place is then where its new
 * version is. False when it is not there, or somebody else is just changing it, and nothing was done:
 * the caller then leaves it to a statement, which searches and waits. Within a transaction that has
 * passed the gate.
 */
extern bool sweep_run_row_change(ItemPointer place, int64 run_id, const char *status, const SweepRunChange *change);

#endif							/* SWEEP_RUN_ROW_H */
