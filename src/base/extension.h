/*
 * extension.h
 *		The extension itself: whether this database has it, the OIDs of its objects, and the requirements of its functions.
 */
#ifndef SWEEP_EXTENSION_H
#define SWEEP_EXTENSION_H

#include "access/htup.h"
#include "access/tupdesc.h"
#include "fmgr.h"
#include "nodes/execnodes.h"

/*
 * Finds the extension and locks it, shared, until the transaction ends. False when this database does not have it (any more).
 * Raises LOCK_NOT_AVAILABLE while another transaction drops or updates it, and an error when the library does not fit.
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

/* Finds it without a lock, in a function that a session calls; false when this database does not have it. */
extern bool sweep_extension_find(void);

/* Whether its interface has not changed since it was found. Looks nothing up, so it may be called after an error. */
extern bool sweep_extension_is_unchanged(void);

/* Raises unless the extension was found and this library fits its objects. */
extern void sweep_extension_require(bool found);

/*
 * Raises while the server is in recovery, and unless this database has the extension and the library fits it. name: the SQL function
 * with its parentheses, for the message.
 */
extern void sweep_require_usable(const char *name);

/* Raises an error inside a transaction block or a function, because the procedure of that name commits. */
extern void sweep_require_no_block(FunctionCallInfo fcinfo, const char *name);

/* The extension that sweep_extension_lock() or sweep_extension_find() has found. */
extern const SweepExtension *sweep_extension(void);

/*
 * Takes over the result of another process of this database, which saves the search. Called before the extension is locked for the
 * first time; the lock checks the result.
 */
extern void sweep_extension_assume(const SweepExtension *found);

/*
 * Raises unless a row begins with columns of these types, because a value of another type might be taken for a pointer. Further columns after
 * them, also dropped ones, are allowed.
 */
extern void sweep_row_check(TupleDesc columns, const Oid *types, int count);

/* Makes a row of these values; columns that were added after them are NULL. */
extern HeapTuple sweep_row_form(TupleDesc columns, const Datum *values, const bool *nulls, int count);

/* The same, added to the result of a function. */
extern void sweep_row_put(ReturnSetInfo *result, Datum *values, bool *nulls, int count);

#endif							/* SWEEP_EXTENSION_H */
