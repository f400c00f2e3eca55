/*
 * detail.c
 *		Merging of the details that steps report.
 *
 * Called once per batch that reports any, by run.c. In C rather than in SQL because it lies between the
 * step and the commit of every batch.
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/numeric.h"

#include "detail.h"

static void push_pair(JsonbParseState **state, JsonbValue *key, JsonbValue *value);
static void push_combined(JsonbParseState **state, JsonbValue *key, JsonbValue *old, JsonbValue *new);
static void push_elements(JsonbParseState **state, JsonbValue *array, int *count);
static bool is_array(const JsonbValue *value);

Jsonb *
sweep_detail_merge(Jsonb *total, Jsonb *part)
{
	JsonbParseState *state = NULL;
	JsonbIterator *iterator;
	JsonbValue	key;
	JsonbValue	value;

	if (part != NULL && !JB_ROOT_IS_OBJECT(part))
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("detail of a batch must be a JSON object"),
				 errhint("Return an object such as {\"deleted\": 100} in the detail of sweep.progress.")));
	if (part == NULL || total == NULL)
		return part != NULL ? part : total;

	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	iterator = JsonbIteratorInit(&total->root);
	(void) JsonbIteratorNext(&iterator, &value, true);
	while (JsonbIteratorNext(&iterator, &key, true) == WJB_KEY)
	{
		JsonbValue *other = findJsonbValueFromContainer(&part->root, JB_FOBJECT, &key);

		(void) JsonbIteratorNext(&iterator, &value, true);
		if (other == NULL)
			push_pair(&state, &key, &value);
		else
			push_combined(&state, &key, &value, other);
	}
	iterator = JsonbIteratorInit(&part->root);
	(void) JsonbIteratorNext(&iterator, &value, true);
	while (JsonbIteratorNext(&iterator, &key, true) == WJB_KEY)
	{
		(void) JsonbIteratorNext(&iterator, &value, true);
		if (findJsonbValueFromContainer(&total->root, JB_FOBJECT, &key) == NULL)
			push_pair(&state, &key, &value);
	}
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
}

static void
push_pair(JsonbParseState **state, JsonbValue *key, JsonbValue *value)
{
	pushJsonbValue(state, WJB_KEY, key);
	pushJsonbValue(state, WJB_VALUE, value);
}

static void
push_combined(JsonbParseState **state, JsonbValue *key, JsonbValue *old, JsonbValue *new)
{
	if (old->type == jbvNumeric && new->type == jbvNumeric)
	{
		JsonbValue	sum;

		sum.type = jbvNumeric;
		sum.val.numeric = DatumGetNumeric(DirectFunctionCall2(numeric_add,
															  NumericGetDatum(old->val.numeric),
															  NumericGetDatum(new->val.numeric)));
		push_pair(state, key, &sum);
	}
	else if (is_array(old) && is_array(new))
	{
		int			count = 0;

		pushJsonbValue(state, WJB_KEY, key);
		pushJsonbValue(state, WJB_BEGIN_ARRAY, NULL);
		push_elements(state, old, &count);
		push_elements(state, new, &count);
		pushJsonbValue(state, WJB_END_ARRAY, NULL);
	}
	else
		push_pair(state, key, new);
}

static void
push_elements(JsonbParseState **state, JsonbValue *array, int *count)
{
	JsonbIterator *iterator = JsonbIteratorInit(array->val.binary.data);
	JsonbValue	element;

	(void) JsonbIteratorNext(&iterator, &element, true);
	while (*count < SWEEP_DETAIL_MAX_ELEMENTS && JsonbIteratorNext(&iterator, &element, true) == WJB_ELEM)
	{
		pushJsonbValue(state, WJB_ELEM, &element);
		(*count)++;
	}
}

/* Nested values come as binary ones from an iterator that skips them and from a look-up by key. */
static bool
is_array(const JsonbValue *value)
{
	return value->type == jbvBinary && JsonContainerIsArray(value->val.binary.data) &&
		!JsonContainerIsScalar(value->val.binary.data);
}
