/*
 * row_type.c
 *		Rows of the types of the extension, which a superuser can alter.
 *
 * Called where such rows are made or read by the numbers of their columns: batches and their progress, messages.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

#include "base/row_type.h"

static void pad(TupleDesc columns, const Datum *values, const bool *nulls, int count, Datum **padded, bool **padded_nulls);

void
sweep_row_check(TupleDesc columns, const Oid *types, int count)
{
	for (int i = 0; i < count; i++)
	{
		if (i < columns->natts && TupleDescAttr(columns, i)->atttypid == types[i])
			continue;
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("type %s was altered", format_type_be(columns->tdtypeid)),
				 errdetail("Its attribute %d is not of type %s.", i + 1, format_type_be(types[i])),
				 errhint("Attributes can be added to it, but those of the extension must stay as they are.")));
	}
}

HeapTuple
sweep_row_form(TupleDesc columns, const Datum *values, const bool *nulls, int count)
{
	Datum	   *padded;
	bool	   *padded_nulls;

	pad(columns, values, nulls, count, &padded, &padded_nulls);
	return heap_form_tuple(columns, padded, padded_nulls);
}

void
sweep_row_put(ReturnSetInfo *result, Datum *values, bool *nulls, int count)
{
	if (result->setDesc->natts > count)
		pad(result->setDesc, values, nulls, count, &values, &nulls);
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

static void
pad(TupleDesc columns, const Datum *values, const bool *nulls, int count, Datum **padded, bool **padded_nulls)
{
	*padded = palloc0(sizeof(Datum) * columns->natts);
	*padded_nulls = palloc(sizeof(bool) * columns->natts);
	memcpy(*padded, values, sizeof(Datum) * count);
	memset(*padded_nulls, true, sizeof(bool) * columns->natts);
	memcpy(*padded_nulls, nulls, sizeof(bool) * count);
}
