/*
 * range_statements.h
 *		The statements of a batch that is a range of keys: made by SQL, prepared once, planned to use an index.
 */
#ifndef SWEEP_RANGE_STATEMENTS_H
#define SWEEP_RANGE_STATEMENTS_H

#include "access/tupdesc.h"
#include "fmgr.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

#include "base/sql.h"
#include "makers/dismantle.h"

/* In the order of the columns of sweep._statements; all have the same parameters. */
typedef enum SweepRangeStatement
{
	RANGE_PROLOGUE,				/* (rows, cursor, detail): before each batch; rows that are not null are the batch */
	RANGE_EDGE,					/* (key): the last key of the batch and, where keys are not unique, the next one */
	RANGE_REST,					/* (key, rows): the last key of the rest, and its number of rows */
	RANGE_BEFORE,				/* (key): the next smaller key */
	RANGE_WORK,
	RANGE_PICK,
	RANGE_ROOTS,				/* (tableoid, ctid, key): rows that work would do */
	RANGE_SAME_ROOTS,			/* the same for pick */
	RANGE_EPILOGUE,				/* (bool, left, referenced, proof): whether rows are left, how many, how many others keep, and what is proved */
	RANGE_ORDERING,				/* raises when the key of the cursor has another order by now, or other columns are to be taken */
	RANGE_READS,				/* raises when the key of the cursor cannot be read */
	RANGE_STATEMENT_COUNT
} SweepRangeStatement;

typedef struct SweepRangeStatements
{
	char	   *texts[RANGE_STATEMENT_COUNT];	/* NULL = none */
	SweepPlan  *plans[RANGE_STATEMENT_COUNT];	/* NULL = not prepared yet */
	char	   *key;			/* the key columns; a cursor of other columns does not fit */
	char	   *part;			/* the partition of the statements; NULL = the whole table */
	char	   *next_part;		/* the cursor at the start of the next partition; NULL = none */
	char	   *counter;		/* key of the detail: rows done */
	char	   *rest_counter;	/* key of the detail: rows read and left as they are; NULL = not counted */
	bool		checked;		/* "work" returns the number of rows done, and the key of a row that would be done again */
	bool		custom;			/* they are planned for the keys of each batch, and as the planner likes */
	bool		by_place;		/* the key is the place of a row: "edge" returns a range of blocks, "roots" the rows in it */
	bool		restarts;		/* a cursor of other columns starts the pass again; otherwise it is an error */
} SweepRangeStatements;

/* The state between the calls of a run, in fn_extra of the call. */
typedef struct SweepRangeKept
{
	MemoryContextCallback callback;
	Oid			function;
	TupleDesc	progress;		/* sweep.progress */
	MemoryContext context;		/* of the texts */
	Jsonb	   *args;
	char	   *parts;			/* the partitions, as an array in SQL; NULL = not known yet, or none */
	bool		made;
	bool		again;			/* the statements are those of a further pass */
	SweepCascade *cascade;		/* NULL = no rows of other tables go with those of the target */
	int32		fitting;		/* number of rows of the target that a batch may take with what goes with them; 0 = not known yet */
	SweepDismantling *dismantling;	/* of a row that does not fit into a batch; NULL = none */
	SweepCascadeRows *skipped;	/* rows of the key at hand that stay; NULL = none */
	HTAB	   *circles;		/* rows that can only go together with others; NULL = none are known */
	/* For the whole run: */
	MemoryContext run_context;
	Jsonb	   *range;			/* of a share, as an addition to the args; NULL = the table as a whole */
	Jsonb	   *range_cursor;	/* where the share begins in it; NULL = at its start */
	HTAB	   *counted;		/* rows that stay, and were reported, which further passes find again; NULL = none */
	HTAB	   *held;			/* the same for rows that other sessions have held */
	bool		has_begun;		/* a batch was done, and its cursor can be read */
	bool		has_waited;		/* for a lock, and did not get it */
	bool		has_warned;		/* of a circle that stays */
	SweepRangeStatements statements[2];	/* of a first batch, of a batch after a cursor */
} SweepRangeKept;

extern SweepRangeKept *sweep_range_keep(FmgrInfo *function, Jsonb *args);

/*
 * The statements of a batch after a cursor (or of a first one), in a further pass or not; part is that of the cursor, NULL
 * when it has none. The statements are for another partition when part was dropped. Raises when the job cannot work any more.
 */
extern SweepRangeStatements *sweep_range_find_statements(SweepRangeKept *kept, bool after, bool again, const char *part, TimestampTz as_of);

/*
 * Whether the table may have been altered since a batch was found by these statements, and before any was. It is locked: it is not
 * altered until the transaction ends.
 */
extern bool sweep_range_is_altered(const SweepRangeKept *kept, const SweepRangeStatements *statements);

/* Whether the statements are for that partition, or both have none. */
extern bool sweep_range_has_part(const SweepRangeStatements *statements, const char *part);

/* A statement, prepared. */
extern SweepPlan *sweep_range_plan(SweepRangeStatements *statements, SweepRangeStatement which);

/* Plans these statements by indexes, unless they are planned. */
extern void sweep_range_plan_by_key(SweepRangeStatements *statements, const SweepRangeStatement *which, int count);

/*
 * Whether a query that is executed just now makes the statements, and is none of them. An error leaves the variable as it
 * is: a reader sets it to false first.
 */
extern bool sweep_range_preparing;

#endif							/* SWEEP_RANGE_STATEMENTS_H */
