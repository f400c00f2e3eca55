/*
 * sql.h
 *		Transactions and the statements of the engine.
 */
#ifndef SWEEP_SQL_H
#define SWEEP_SQL_H

#include "access/htup.h"
#include "base/statements.h"
#include "storage/itemptr.h"
#include "utils/jsonb.h"

/* A statement that is not constant: the call of a step. */
typedef struct SweepPlan SweepPlan;

typedef void (*SweepWork) (void *arg);

/*
 * Says how this process controls its transactions: a worker begins and ends them itself, a session
 * that executes a procedure (CALL) asks SPI to. Enter before the first transaction, leave at the end.
 */
extern void sweep_sql_enter_call(void);
extern void sweep_sql_leave_call(void);
extern bool sweep_sql_in_call(void);

/*
 * Does a piece of work in a transaction of its own and commits it. When it fails: rolls back, returns
 * false and leaves a copy of the error in error_context. For the work of the engine see txn.h.
 */
extern bool sweep_sql_transaction(SweepWork work, void *arg, MemoryContext error_context, ErrorData **error);

/*
 * Does a piece of work in a transaction that goes on, and rolls it back, unless it succeeds and is to be kept.
 * Returns what it raised, in the current memory context, or NULL.
 */
extern ErrorData *sweep_sql_attempt(SweepWork work, void *arg, bool keeps);

/*
 * Does work of the engine that a user has asked for. What it raises is raised without the lines of CONTEXT
 * that tell of the engine, but with those of whoever called and of code of the user that it has executed.
 */
extern void sweep_sql_hide_context(SweepWork work, void *arg);

/* Only within CALL: ends the transaction, so that a wait holds no snapshot, and begins another. */
extern void sweep_sql_end_transaction(void);

/*
 * Finds the extension and locks it, shared, until the transaction ends. False when this database has none
 * (any more). Raises LOCK_NOT_AVAILABLE while somebody drops or updates it.
 */
extern bool sweep_sql_lock_extension(void);

/* What it has found. */
typedef struct SweepExtension
{
	Oid			id;
	Oid			owner;
	Oid			batch_type;		/* sweep.batch */
	Oid			run_table;		/* sweep.run_live */
} SweepExtension;

/* Finds it without a lock, in a function that a session calls; false when this database has none. */
extern bool sweep_sql_find_extension(void);

/* Raises unless it was found. */
extern void sweep_sql_require_extension(bool found);

/* What one of the two has found. */
extern const SweepExtension *sweep_sql_extension(void);

/*
 * Before it is locked for the first time: what another process of this database has found, to spare this one
 * the search. Whether it is still so is looked at with the lock.
 */
extern void sweep_sql_assume_extension(const SweepExtension *found);

/*
 * Executes a constant statement as the owner of the extension, under a safe search_path, and returns
 * the number of its rows, which sweep_sql_row selects from. Values are those of the last statement.
 */
extern uint64 sweep_sql_execute(SweepStatement statement, Datum *values, const char *nulls);

/*
 * Around sweep_sql_execute in a function that a session calls: finds the extension, but does not lock it,
 * for a session has locks of its own.
 */
extern void sweep_sql_begin_call(void);
extern void sweep_sql_end_call(void);

/*
 * Prepares a statement of the job, as the current user; kept until it is freed. A generic one is planned once
 * for all values; otherwise PostgreSQL chooses.
 */
extern SweepPlan *sweep_sql_prepare(const char *text, int count, Oid *types, bool generic);

extern void sweep_sql_free_plan(SweepPlan *plan);

/* Executes it as the current user; returns the number of rows returned or affected. */
extern uint64 sweep_sql_execute_plan(SweepPlan *plan, Datum *values, const char *nulls);

/* Columns are numbered from 1; the values are copied to the current memory context, NULL if null. */
extern void sweep_sql_row(uint64 row);
extern bool sweep_sql_is_null(int column);
extern int64 sweep_sql_int64(int column);
extern int32 sweep_sql_int32(int column);
extern bool sweep_sql_bool(int column);
extern int64 sweep_sql_interval_us(int column, int64 if_null);	/* see sweep_interval_us */
extern Oid	sweep_sql_oid(int column);
extern Oid *sweep_sql_oids(int column, MemoryContext context, int *count);	/* of an array */
extern Datum sweep_sql_copy(int column, MemoryContext context);	/* of any type; 0 if null */
extern char *sweep_sql_text(int column, MemoryContext context);
extern Jsonb *sweep_sql_jsonb(int column, MemoryContext context);
extern ItemPointerData sweep_sql_tid(int column);

/* How many bytes a value takes that is stored elsewhere or compressed, which is not read for that; 0 of null, or of a fixed size. */
extern Size sweep_sql_raw_size(int column);

#endif							/* SWEEP_SQL_H */
