/*
 * extension.h
 *		The extension itself: whether this database has it, where its objects are, and what its functions require.
 */
#ifndef SWEEP_EXTENSION_H
#define SWEEP_EXTENSION_H

#include "access/htup.h"
#include "access/tupdesc.h"
#include "fmgr.h"
#include "nodes/execnodes.h"

/*
 * Finds the extension and locks it, shared, until the transaction ends. False when this database has none
 * (any more). Raises LOCK_NOT_AVAILABLE while another transaction drops or updates it, and an error when the library does not fit.
 */
extern bool sweep_extension_lock(void);

/* The extension of this database. */
typedef struct SweepExtension
{
	Oid			id;
	Oid			schema;
	Oid			owner;
	Oid			batch_type;		/* sweep.batch */
	Oid			run_table;		/* sweep.run_live */
	Oid			begun_sequence; /* sweep.run_begun_seq */
	bool		fits;			/* the library can use its objects */
} SweepExtension;

/* Finds it without a lock, in a function that a session calls; false when this database has none. */
extern bool sweep_extension_find(void);

/* Whether it is still what was found: its interface has not changed. Looks nothing up, and may be asked after an error. */
extern bool sweep_extension_is_unchanged(void);

/* Raises unless it was found, and its objects are those that the library was made for. */
extern void sweep_extension_require(bool found);

/*
 * Raises while the server is in recovery, and when there is no extension that the library fits; the name is that of the SQL function,
 * with its parentheses.
 */
extern void sweep_require_usable(const char *name);

/* Raises an error inside a transaction block or a function: the procedure of that name commits. */
extern void sweep_require_no_block(FunctionCallInfo fcinfo, const char *name);

/* The extension that sweep_extension_lock() or sweep_extension_find() has found. */
extern const SweepExtension *sweep_extension(void);

/*
 * Takes over what another process of this database has found, which spares this one the search. To be called before the extension is
 * locked for the first time; the lock checks the result.
 */
extern void sweep_extension_assume(const SweepExtension *found);

/*
 * Raises unless a row begins with columns of these types: a value of another one would be taken for a pointer. Columns that were added behind
 * them, or dropped there again, do no harm.
 */
extern void sweep_row_check(TupleDesc columns, const Oid *types, int count);

/* A row of that many values; what was added behind them is NULL. */
extern HeapTuple sweep_row_form(TupleDesc columns, const Datum *values, const bool *nulls, int count);

/* The same, added to the result of a function. */
extern void sweep_row_put(ReturnSetInfo *result, Datum *values, bool *nulls, int count);

#endif							/* SWEEP_EXTENSION_H */
