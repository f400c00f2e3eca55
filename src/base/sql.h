/*
 * sql.h
 *		Execution of statements of the engine and of jobs.
 */
#ifndef SWEEP_SQL_H
#define SWEEP_SQL_H

#include "access/htup.h"
#include "catalog/pg_type_d.h"
#include "nodes/pg_list.h"
#include "storage/itemptr.h"
#include "utils/jsonb.h"

/* The SPI plan of a statement that is not constant, such as the call of a step. */
typedef struct _SPI_plan SweepPlan;

typedef void (*SweepWork) (void *arg);

/*
 * A constant statement of the engine, in static storage in the file that uses it. Its names are qualified
 * (test/bin/check-qualified).
 */
#define SWEEP_STATEMENT_MAX_PARAMETERS 13
typedef struct SweepStatement
{
	const char *const text;
	const Oid	types[SWEEP_STATEMENT_MAX_PARAMETERS];	/* of the parameters */
	const bool	reads_latest;	/* uses the latest snapshot instead of that of the transaction; for queues */
	SweepPlan  *plan;			/* NULL = not prepared yet */
} SweepStatement;

/*
 * From here on the session executes a procedure (CALL), and SPI begins and ends its transactions; a worker does
 * this itself. Called before the first transaction; sweep_sql_end_call() ends it.
 */
extern void sweep_sql_enter_call(void);
extern bool sweep_sql_in_call(void);

/* Only within CALL, in the context of the procedure: ends the transaction, so that a wait holds no snapshot, and begins a new one. */
extern void sweep_sql_end_transaction(void);

/*
 * Executes a constant statement as the owner of the extension, under a safe search_path, and returns the number of
 * its rows. sweep_sql_row() selects one of them; the result is kept until the next statement.
 */
extern uint64 sweep_sql_execute(SweepStatement *statement, Datum *values, const char *nulls);

/* The same as a SweepWork, whose argument is the execution. */
typedef struct SweepExecution
{
	SweepStatement *statement;
	Datum	   *values;
	const char *nulls;
} SweepExecution;

extern void sweep_sql_execute_work(void *execution);

/* The next number of a sequence of the engine, without a statement. Works also in a worker whose transaction is read-only. */
extern int64 sweep_sql_next_value(Oid sequence);

/*
 * Called around sweep_sql_execute() in a function that a session calls: finds the extension, but does not lock it,
 * because the session has locks of its own.
 */
extern void sweep_sql_begin_call(void);
extern void sweep_sql_connect(void);	/* the same without the search */
extern void sweep_sql_end_call(void);

/* When a statement is planned. */
typedef enum SweepPlanned
{
	PLANNED_AS_CHOSEN,			/* as PostgreSQL decides */
	PLANNED_ONCE,				/* one generic plan */
	PLANNED_EACH_TIME			/* a custom plan for each execution */
} SweepPlanned;

/* Prepares a statement of the job, as the current user; kept until it is freed. */
extern SweepPlan *sweep_sql_prepare(const char *text, int count, Oid *types, SweepPlanned planned);

/* Makes the generic plan of a statement now, with the current settings, unless it has a valid one. */
extern void sweep_sql_make_plan(SweepPlan *plan);

extern void sweep_sql_free_plan(SweepPlan *plan);	/* NULL is allowed */

/* Whether the plan is still valid, so that it need not be analysed again; and the Query nodes that it was analysed to. */
extern bool sweep_sql_is_valid(SweepPlan *plan);
extern List *sweep_sql_queries(SweepPlan *plan);

/* Executes a plan as the current user; returns the number of rows returned or affected. */
extern uint64 sweep_sql_execute_plan(SweepPlan *plan, Datum *values, const char *nulls);

/* Executes a statement that only reads, with the latest snapshot instead of that of the transaction. */
extern uint64 sweep_sql_execute_latest(SweepPlan *plan, Datum *values, const char *nulls);

/* Executes a SELECT read-only, for so many rows at most; returns their number. No value may be null, here and in sweep_sql_open(). */
extern uint64 sweep_sql_read(SweepPlan *plan, Datum *values, long most);

/* Reads the rows of a SELECT in pieces: a fetch replaces the current result by the next rows, and returns 0 at the end. */
typedef struct PortalData SweepCursor;

extern SweepCursor *sweep_sql_open(SweepPlan *plan, Datum *values);
extern uint64 sweep_sql_fetch(SweepCursor *cursor, long count);
extern void sweep_sql_close(SweepCursor *cursor);

/* Select a row and read its columns, which are numbered from 1. Values are copied to the current memory context, NULL if null. */
extern void sweep_sql_row(uint64 row);
extern bool sweep_sql_is_null(int column);
extern Datum sweep_sql_datum(int column);	/* not copied; 0 if null */
extern Oid	sweep_sql_type(int column);	/* InvalidOid if there is no such column */

/*
 * A value of this type, not copied; raises when the column has another type. A table may be replaced or altered after the statement
 * was prepared, and a value of another type might be taken for a pointer.
 */
extern Datum sweep_sql_value(int column, Oid type);
#define sweep_sql_int64(column) DatumGetInt64(sweep_sql_value(column, INT8OID))
#define sweep_sql_int32(column) DatumGetInt32(sweep_sql_value(column, INT4OID))
#define sweep_sql_bool(column) DatumGetBool(sweep_sql_value(column, BOOLOID))
#define sweep_sql_oid(column) DatumGetObjectId(sweep_sql_value(column, OIDOID))
#define sweep_sql_moment(column) DatumGetTimestampTz(sweep_sql_value(column, TIMESTAMPTZOID))
#define sweep_sql_tid(column) (*sweep_sql_place(column))
extern ItemPointer sweep_sql_place(int column);	/* raises if null, too */
extern int64 sweep_sql_interval_us(int column, int64 if_null);	/* see sweep_interval_us */
extern Oid *sweep_sql_oids(int column, MemoryContext context, int *count);	/* of an array */
extern Datum sweep_sql_copy(int column, MemoryContext context);	/* of any type; 0 if null */
extern char *sweep_sql_text(int column, MemoryContext context);
extern Jsonb *sweep_sql_jsonb(int column, MemoryContext context);

/* The uncompressed size of a value in bytes, without reading a value that is stored out of line; 0 if null or of a type of fixed size. */
extern Size sweep_sql_raw_size(int column);

#endif							/* SWEEP_SQL_H */
