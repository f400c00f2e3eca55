/*
 * detail.c
 *		Merging of the details that steps report.
 *
 * Called once per batch that reports any, by batch.c. In C rather than in SQL because it lies between the
 * step and the commit of every batch.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "utils/fmgrprotos.h"

#include "base/compat_value.h"
#include "base/detail.h"

static bool add_in_place(JsonbContainer *sum, JsonbContainer *part);
static bool add_value(JsonbValue *old, const JsonbValue *new);
static void push_merged(JsonbInState *state, JsonbContainer *total, JsonbContainer *part);
static void push_pair(JsonbInState *state, JsonbValue *key, JsonbValue *value);
static void push_combined(JsonbInState *state, JsonbValue *key, JsonbValue *old, JsonbValue *new);
static Numeric add_numbers(const JsonbValue *left, const JsonbValue *right);
static void push_elements(JsonbInState *state, JsonbValue *array, int *count);
static bool is_array(const JsonbValue *value);
static bool is_object(const JsonbValue *value);

Jsonb *
sweep_detail_merge(Jsonb *total, Jsonb *part)
{
	JsonbInState state = {0};
	Jsonb	   *sum;

	if (part != NULL && !JB_ROOT_IS_OBJECT(part))
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("detail of a batch must be a JSON object"),
				 errhint("Return an object such as {\"deleted\": 100} in the detail of sweep.progress.")));
	if (part == NULL || total == NULL)
		return part != NULL ? part : total;
	sum = DatumGetJsonbPCopy(JsonbPGetDatum(total));
	if (add_in_place(&sum->root, &part->root))
		return sum;
	push_merged(&state, &total->root, &part->root);
	return JsonbValueToJsonb(state.result);
}

/*
 * The usual report of a batch in a long run: known keys, numbers whose sum is as long as before, full
 * arrays. A new object takes ten times as long. False for any other report, with sums that are not complete.
 */
static bool
add_in_place(JsonbContainer *sum, JsonbContainer *part)
{
	JsonbIterator *iterator = JsonbIteratorInit(part);
	JsonbValue	key;
	JsonbValue	value;

	check_stack_depth();
	(void) JsonbIteratorNext(&iterator, &value, true);
	while (JsonbIteratorNext(&iterator, &key, true) == WJB_KEY)
	{
		JsonbValue *old = findJsonbValueFromContainer(sum, JB_FOBJECT, &key);

		(void) JsonbIteratorNext(&iterator, &value, true);
		if (old == NULL || !add_value(old, &value))
			return false;
	}
	return true;
}

/* Numbers and strings that were looked up point to where they are in the whole. */
static bool
add_value(JsonbValue *old, const JsonbValue *new)
{
	Numeric		sum;

	if (is_object(old) && is_object(new))
		return add_in_place(old->val.binary.data, new->val.binary.data);
	if (is_array(old) && is_array(new))
		return JsonContainerSize(old->val.binary.data) >= SWEEP_DETAIL_MAX_ELEMENTS;
	if (old->type == jbvString && new->type == jbvString)
		return old->val.string.len == new->val.string.len && memcmp(old->val.string.val, new->val.string.val, new->val.string.len) == 0;
	if (old->type != jbvNumeric || new->type != jbvNumeric)
		return false;
	sum = add_numbers(old, new);
	if (VARSIZE_ANY(sum) != VARSIZE_ANY(old->val.numeric))
		return false;
	memcpy(old->val.numeric, sum, VARSIZE_ANY(sum));
	return true;
}

static void
push_merged(JsonbInState *state, JsonbContainer *total, JsonbContainer *part)
{
	JsonbIterator *iterator = JsonbIteratorInit(total);
	JsonbValue	key;
	JsonbValue	value;

	check_stack_depth();
	sweep_push_jsonb_value(state, WJB_BEGIN_OBJECT, NULL);
	(void) JsonbIteratorNext(&iterator, &value, true);
	while (JsonbIteratorNext(&iterator, &key, true) == WJB_KEY)
	{
		JsonbValue *other = findJsonbValueFromContainer(part, JB_FOBJECT, &key);

		(void) JsonbIteratorNext(&iterator, &value, true);
		if (other == NULL)
			push_pair(state, &key, &value);
		else
			push_combined(state, &key, &value, other);
	}
	iterator = JsonbIteratorInit(part);
	(void) JsonbIteratorNext(&iterator, &value, true);
	while (JsonbIteratorNext(&iterator, &key, true) == WJB_KEY)
	{
		(void) JsonbIteratorNext(&iterator, &value, true);
		if (findJsonbValueFromContainer(total, JB_FOBJECT, &key) == NULL)
			push_pair(state, &key, &value);
	}
	sweep_push_jsonb_value(state, WJB_END_OBJECT, NULL);
}

static void
push_pair(JsonbInState *state, JsonbValue *key, JsonbValue *value)
{
	sweep_push_jsonb_value(state, WJB_KEY, key);
	sweep_push_jsonb_value(state, WJB_VALUE, value);
}

static void
push_combined(JsonbInState *state, JsonbValue *key, JsonbValue *old, JsonbValue *new)
{
	if (old->type == jbvNumeric && new->type == jbvNumeric)
	{
		JsonbValue	sum;

		sum.type = jbvNumeric;
		sum.val.numeric = add_numbers(old, new);
		push_pair(state, key, &sum);
	}
	else if (is_object(old) && is_object(new))
	{
		sweep_push_jsonb_value(state, WJB_KEY, key);
		push_merged(state, old->val.binary.data, new->val.binary.data);
	}
	else if (is_array(old) && is_array(new))
	{
		int			count = 0;

		sweep_push_jsonb_value(state, WJB_KEY, key);
		sweep_push_jsonb_value(state, WJB_BEGIN_ARRAY, NULL);
		push_elements(state, old, &count);
		push_elements(state, new, &count);
		sweep_push_jsonb_value(state, WJB_END_ARRAY, NULL);
	}
	else
		push_pair(state, key, new);
}

/* A sum out of range leaves the number as it is. */
static Numeric
add_numbers(const JsonbValue *left, const JsonbValue *right)
{
	Numeric		sum = sweep_numeric_add(left->val.numeric, right->val.numeric);

	return sum != NULL ? sum : left->val.numeric;
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

/* Nested values come as binary ones from an iterator that skips them and from a look-up by key. */
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
