/*
 * compat_value.h
 *		Differences between server versions, see compat.h: values of jsonb and numeric.
 */
#ifndef SWEEP_COMPAT_VALUE_H
#define SWEEP_COMPAT_VALUE_H

#include "utils/jsonb.h"
#include "utils/numeric.h"
#if PG_VERSION_NUM >= 190000
#include "nodes/miscnodes.h"
#endif

/* 19: building a jsonb uses a state of its own type, which holds the result. */
#if PG_VERSION_NUM < 190000
typedef struct JsonbInState
{
	JsonbValue *result;
	JsonbParseState *parseState;
} JsonbInState;
#endif

static inline void
sweep_push_jsonb_value(JsonbInState *state, JsonbIteratorToken token, JsonbValue *value)
{
#if PG_VERSION_NUM >= 190000
	pushJsonbValue(state, token, value);
#else
	state->result = pushJsonbValue(&state->parseState, token, value);
#endif
}

/* The sum, or NULL when it is out of range. */
static inline Numeric
sweep_numeric_add(Numeric left, Numeric right)
{
#if PG_VERSION_NUM >= 190000
	ErrorSaveContext context = {.type = T_ErrorSaveContext};

	return numeric_add_safe(left, right, (Node *) &context);
#else
	bool		overflow = false;
	Numeric		sum = numeric_add_opt_error(left, right, &overflow);

	return overflow ? NULL : sum;
#endif
}

#endif							/* SWEEP_COMPAT_VALUE_H */
