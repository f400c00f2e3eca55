/*
 * row_type.h
 *		Rows of the types of the extension, which a superuser can alter.
 */
#ifndef SWEEP_ROW_TYPE_H
#define SWEEP_ROW_TYPE_H

#include "access/htup.h"
#include "access/tupdesc.h"
#include "nodes/execnodes.h"

/*
 * Raises unless a row begins with columns of these types: a value of another one would be taken for a pointer. Columns that were added behind
 * them, or dropped there again, do no harm.
 */
extern void sweep_row_check(TupleDesc columns, const Oid *types, int count);

/* A row of that many values; what was added behind them is NULL. */
extern HeapTuple sweep_row_form(TupleDesc columns, const Datum *values, const bool *nulls, int count);

/* The same, added to the result of a function. */
extern void sweep_row_put(ReturnSetInfo *result, Datum *values, bool *nulls, int count);

#endif							/* SWEEP_ROW_TYPE_H */
