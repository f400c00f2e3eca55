/*
 * detail.c
 *		Merging of the details that steps report.
 *
 * Called by batch.c once per batch that reports a detail. It is in C because it is executed between the step and the
 * commit of every batch.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "utils/fmgrprotos.h"

#include "base/compat_value.h"
#include "base/detail.h"

static void push_merged(JsonbInState *state, JsonbContainer *total, JsonbContainer *part);
static void push_combined(JsonbInState *state, JsonbValue *old, JsonbValue *new);
static void push_elements(JsonbInState *state, JsonbValue *array, int *count);
static bool is_array(const JsonbValue *value);
static bool is_object(const JsonbValue *value);

Jsonb *
sweep_detail_merge(Jsonb *total, Jsonb *part, MemoryContext context)
{
	JsonbInState state = {0};
	MemoryContext old = MemoryContextSwitchTo(context);
	Jsonb	   *merged;

	if (!JB_ROOT_IS_OBJECT(part))
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("detail of a batch must be a JSON object"),
				 errhint("Return an object such as {\"deleted\": 100} in the detail of sweep.progress.")));
	if (total != NULL)
		push_merged(&state, &total->root, &part->root);
	merged = total != NULL ? JsonbValueToJsonb(state.result) : DatumGetJsonbPCopy(JsonbPGetDatum(part));
	MemoryContextSwitchTo(old);
	return merged;
}

/* The later one of two members with the same key stays: what a key of the part has become comes behind what it was. */
static void
push_merged(JsonbInState *state, JsonbContainer *total, JsonbContainer *part)
{
	JsonbContainer *containers[] = {total, part};

	check_stack_depth();
	sweep_push_jsonb_value(state, WJB_BEGIN_OBJECT, NULL);
	for (size_t i = 0; i < lengthof(containers); i++)
	{
		JsonbIterator *iterator = JsonbIteratorInit(containers[i]);
		JsonbValue	key;
		JsonbValue	value;

		(void) JsonbIteratorNext(&iterator, &value, true);
		while (JsonbIteratorNext(&iterator, &key, true) == WJB_KEY)
		{
			JsonbValue *old = containers[i] == total ? NULL : findJsonbValueFromContainer(total, JB_FOBJECT, &key);

			(void) JsonbIteratorNext(&iterator, &value, true);
			sweep_push_jsonb_value(state, WJB_KEY, &key);
			if (old == NULL)
				sweep_push_jsonb_value(state, WJB_VALUE, &value);
			else
				push_combined(state, old, &value);
		}
	}
	sweep_push_jsonb_value(state, WJB_END_OBJECT, NULL);
}

/* A sum out of range leaves the number as it is. */
static void
push_combined(JsonbInState *state, JsonbValue *old, JsonbValue *new)
{
	if (old->type == jbvNumeric && new->type == jbvNumeric)
	{
		Numeric		sum = sweep_numeric_add(old->val.numeric, new->val.numeric);

		sweep_push_jsonb_value(state, WJB_VALUE, sum == NULL ? old : &(JsonbValue) {.type = jbvNumeric, .val.numeric = sum});
	}
	else if (is_object(old) && is_object(new))
		push_merged(state, old->val.binary.data, new->val.binary.data);
	else if (is_array(old) && is_array(new))
	{
		int			count = 0;

		sweep_push_jsonb_value(state, WJB_BEGIN_ARRAY, NULL);
		push_elements(state, old, &count);
		push_elements(state, new, &count);
		sweep_push_jsonb_value(state, WJB_END_ARRAY, NULL);
	}
	else
		sweep_push_jsonb_value(state, WJB_VALUE, new);
}

static void
push_elements(JsonbInState *state, JsonbValue *array, int *count)
{
	JsonbIterator *iterator = JsonbIteratorInit(array->val.binary.data);
	JsonbValue	element;

	(void) JsonbIteratorNext(&iterator, &element, true);
	while (*count < SWEEP_DETAIL_MAX_ELEMENTS && JsonbIteratorNext(&iterator, &element, true) == WJB_ELEM)
	{
		sweep_push_jsonb_value(state, WJB_ELEM, &element);
		(*count)++;
	}
}

/* An iterator that skips nested values, and a look-up by key, return them as binary values. */
static bool
is_array(const JsonbValue *value)
{
	return value->type == jbvBinary && JsonContainerIsArray(value->val.binary.data) &&
		!JsonContainerIsScalar(value->val.binary.data);
}

static bool
is_object(const JsonbValue *value)
{
	return value->type == jbvBinary && JsonContainerIsObject(value->val.binary.data);
}

Jsonb *
sweep_detail_read(const char *json)
{
	return DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(json)));
}
