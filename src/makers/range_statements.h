/*
 * range_statements.h
 *		The statements of a batch that is a range of keys: made by SQL, prepared once, planned to go by an index.
 */
#ifndef SWEEP_RANGE_STATEMENTS_H
#define SWEEP_RANGE_STATEMENTS_H

#include "access/tupdesc.h"
#include "fmgr.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

#include "base/sql.h"

/* In the order of the columns of sweep._statements; all have the same parameters. */
typedef enum SweepRangeStatement
{
	RANGE_PROLOGUE,				/* (rows, cursor, detail): before each batch; with rows it has been the batch */
	RANGE_EDGE,					/* (key): the last of the batch, and, where keys are not unique, the next one */
	RANGE_REST,					/* (key, rows): the last of those that are left */
	RANGE_BEFORE,				/* (key): the next smaller one */
	RANGE_WORK,
	RANGE_PICK,
	RANGE_EPILOGUE,				/* (bool): whether anything is left after all */
	RANGE_STATEMENT_COUNT
} SweepRangeStatement;

typedef struct SweepRangeStatements
{
	bool		made;
	char	   *texts[RANGE_STATEMENT_COUNT];	/* NULL = there is none */
	SweepPlan  *plans[RANGE_STATEMENT_COUNT];	/* NULL = not prepared yet */
	char	   *key;			/* the columns; a cursor of other ones is of no use */
	char	   *part;			/* the partition that they are for; NULL = the table as a whole */
	char	   *next_part;		/* the cursor that the next partition begins with; NULL = there is none */
	char	   *counter;		/* in the detail: what was done */
	char	   *rest_counter;	/* rows that were looked at and left as they are; NULL = not counted */
	bool		checked;		/* "work" returns how many rows it has done, and the key of one that it was in vain for */
	bool		restarts;		/* with a cursor of other columns; otherwise that is an error */
} SweepRangeStatements;

/* Of a batch behind the cursor (otherwise it is the first one of its pass), and of one in a further pass. */
#define RANGE_NEXT 1
#define RANGE_AGAIN 2
#define RANGE_KINDS 4

/* What is kept between the calls of a run, in fn_extra of the call. */
typedef struct SweepRangeKept SweepRangeKept;

extern SweepRangeKept *sweep_range_keep(FmgrInfo *function, Jsonb *args);

/* Describes sweep.progress. */
extern TupleDesc sweep_range_progress(const SweepRangeKept *kept);

/*
 * The statements for these args; part is that of the cursor, NULL when it has none. They need not be for that one: it may be
 * gone. Raises when the job can no longer be done.
 */
extern SweepRangeStatements *sweep_range_find_statements(SweepRangeKept *kept, int kind, const char *part, TimestampTz as_of);

/* A statement, prepared. */
extern SweepPlan *sweep_range_plan(SweepRangeStatements *statements, SweepRangeStatement which);

/* Has these planned, if they are not: to be executed by indexes. */
extern void sweep_range_plan_by_key(SweepRangeStatements *statements, const SweepRangeStatement *which, int count);

/*
 * Whether what is just executed makes the statements, and is none of them. An error leaves it as it is: whoever wants to
 * know sets it to false first.
 */
extern bool sweep_range_preparing;

#endif							/* SWEEP_RANGE_STATEMENTS_H */
