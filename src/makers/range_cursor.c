/*
 * range_cursor.c
 *		Cursor and detail of a batch that is a range of keys: JSON objects.
 *
 * Called by ranges.c, sweep_range_read_value by SQL.
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"

#include "makers/range_cursor.h"

PG_FUNCTION_INFO_V1(sweep_range_read_value);

Jsonb *
sweep_range_merge(Jsonb *a, Jsonb *b)
{
	if (a == NULL || b == NULL)
		return a == NULL ? b : a;
	return DatumGetJsonbP(DirectFunctionCall2(jsonb_concat, JsonbPGetDatum(a), JsonbPGetDatum(b)));
}

Jsonb *
sweep_range_without(Jsonb *object, const char *key)
{
	return DatumGetJsonbP(DirectFunctionCall2(jsonb_delete, JsonbPGetDatum(object), CStringGetTextDatum(key)));
}

/* Only objects are searched: in an array the search would read beyond its end, and the step may be called with any jsonb as args. */
JsonbValue *
sweep_range_value(const Jsonb *object, const char *key, JsonbValue *buffer)
{
	if (object == NULL || !JB_ROOT_IS_OBJECT(object))
		return NULL;
	return getKeyJsonValueFromContainer(unconstify(JsonbContainer *, &object->root), key, strlen(key), buffer);
}

char *
sweep_range_text(const Jsonb *object, const char *key)
{
	JsonbValue	buffer;
	JsonbValue *value = sweep_range_value(object, key, &buffer);

	return value != NULL && value->type == jbvString ? pnstrdup(value->val.string.val, value->val.string.len) : NULL;
}

int64
sweep_range_number(const Jsonb *object, const char *key, int64 otherwise)
{
	JsonbValue	buffer;
	JsonbValue *value = sweep_range_value(object, key, &buffer);

	return value != NULL && value->type == jbvNumeric ? DatumGetInt64(DirectFunctionCall1(numeric_int8, NumericGetDatum(value->val.numeric))) : otherwise;
}

/* SQL: sweep._read_value(value text, type anyelement) RETURNS anyelement. A cast to a type that is known only here cannot be written in SQL. */
Datum
sweep_range_read_value(PG_FUNCTION_ARGS)
{
	Oid			input;
	Oid			parameter;

	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	getTypeInputInfo(get_fn_expr_argtype(fcinfo->flinfo, 1), &input, &parameter);
	PG_RETURN_DATUM(OidInputFunctionCall(input, text_to_cstring(PG_GETARG_TEXT_PP(0)), parameter, -1));
}
