/*
 * message.c
 *		Sending messages from a step in C.
 *
 * Called by build.c for each build. sweep.send sends them, with the rights of the role of the job. The function is looked up
 * once, and JSON is built directly instead of being parsed: together this saves a seventh of the time of sending.
 */
#include "postgres.h"

#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/value.h"
#include "parser/parse_func.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/numeric.h"

#include "base/compat.h"
#include "base/compat_value.h"
#include "message.h"

/* The statement that calls sweep.send. */
#define SEND_ARGUMENTS 6

static void push_member(JsonbInState *state, const char *name, int64 id);

Oid
sweep_gitlab_find_send(void)
{
	static const Oid types[SEND_ARGUMENTS] = {TEXTOID, JSONBOID, TEXTOID, INTERVALOID, INT4OID, JSONBOID};

	return LookupFuncName(list_make2(makeString("sweep"), makeString("send")), SEND_ARGUMENTS, types, false);
}

void
sweep_gitlab_send(Oid send, const char *queue, const Jsonb *payload, int64 key)
{
	FmgrInfo	function;

	LOCAL_FCINFO(call, SEND_ARGUMENTS);

	sweep_check_execute(send, "send");
	fmgr_info(send, &function);
	InitFunctionCallInfoData(*call, &function, SEND_ARGUMENTS, InvalidOid, NULL, NULL);
	for (int i = 0; i < SEND_ARGUMENTS; i++)
		call->args[i].isnull = i > 2;
	call->args[0].value = CStringGetTextDatum(queue);
	call->args[1].value = JsonbPGetDatum(payload);
	call->args[2].value = CStringGetTextDatum(psprintf("%lld", (long long) key));
	(void) FunctionCallInvoke(call);
}

const Jsonb *
sweep_gitlab_payload(const char *name, int64 id, const char *other_name, int64 other_id)
{
	JsonbInState state = {0};

	sweep_push_jsonb_value(&state, WJB_BEGIN_OBJECT, NULL);
	push_member(&state, name, id);
	if (other_name != NULL)
		push_member(&state, other_name, other_id);
	sweep_push_jsonb_value(&state, WJB_END_OBJECT, NULL);
	return JsonbValueToJsonb(state.result);
}

static void
push_member(JsonbInState *state, const char *name, int64 id)
{
	JsonbValue	key = {.type = jbvString, .val.string = {.val = unconstify(char *, name), .len = (int) strlen(name)}};
	JsonbValue	value = {.type = jbvNumeric, .val.numeric = int64_to_numeric(id)};

	sweep_push_jsonb_value(state, WJB_KEY, &key);
	sweep_push_jsonb_value(state, WJB_VALUE, &value);
}
