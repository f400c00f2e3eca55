/*
 * caller.c
 *		The dispatcher behind the public functions that write.
 *
 * Tables belong to the owner of the extension, and who may do what depends on who asks. SECURITY
 * DEFINER would run the implementation as the owner but hide the asker: inside it, current_user is the
 * owner, and session-level identities can be those of somebody whom a view, a trigger or an index
 * expression of the real caller happens to act for. So the public function is this one. It finds its
 * namesake with a leading underscore in the same schema, switches to the owner of that, and passes the
 * role that called, truly known only here, as the first argument.
 *
 * What goes wrong is told in the words of the implementation, without the lines of CONTEXT that would say
 * where in it: they are of use to nobody who has not written it.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_proc.h"
#include "fmgr.h"
#include "funcapi.h"
#include "parser/parse_func.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "base/door.h"
#include "base/primary.h"
#include "base/sql.h"

/* Kept in fn_extra for the calls of one query. */
typedef struct Implementation
{
	FmgrInfo	function;
	Oid			owner;
} Implementation;

/* A call, while an error of it is without context. */
typedef struct Call
{
	FunctionCallInfo fcinfo;
	Implementation *implementation;
	Oid			caller;
	Datum		result;
} Call;

static Implementation *find_implementation(FmgrInfo *dispatcher);
static void call_implementation(void *arg);

PG_FUNCTION_INFO_V1(sweep_caller_dispatch);

Datum
sweep_caller_dispatch(PG_FUNCTION_ARGS)
{
	Call		call = {.fcinfo = fcinfo, .implementation = fcinfo->flinfo->fn_extra};
	SweepDoor	door;

	if (call.implementation == NULL)
		call.implementation = fcinfo->flinfo->fn_extra = find_implementation(fcinfo->flinfo);

	sweep_door_enter_engine(&door, call.implementation->owner);
	call.caller = door.user;
	sweep_sql_hide_context(call_implementation, &call);
	sweep_door_leave_engine(&door);
	return call.result;
}

static Implementation *
find_implementation(FmgrInfo *dispatcher)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(dispatcher->fn_oid));
	Form_pg_proc form;
	Oid			types[FUNC_MAX_ARGS];
	List	   *name;
	Implementation *found = MemoryContextAllocZero(dispatcher->fn_mcxt, sizeof(Implementation));
	Oid			function;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", dispatcher->fn_oid);
	form = (Form_pg_proc) GETSTRUCT(tuple);
	/* What only reads is declared as stable. */
	if (form->provolatile == PROVOLATILE_VOLATILE)
		sweep_primary_require(psprintf("%s.%s()", get_namespace_name(form->pronamespace), NameStr(form->proname)));
	if (form->pronargs >= FUNC_MAX_ARGS)
		elog(ERROR, "function %u has too many arguments", dispatcher->fn_oid);
	types[0] = OIDOID;
	memcpy(&types[1], form->proargtypes.values, form->pronargs * sizeof(Oid));
	name = list_make2(makeString(get_namespace_name(form->pronamespace)),
					  makeString(psprintf("_%s", NameStr(form->proname))));
	function = LookupFuncName(name, form->pronargs + 1, types, false);
	ReleaseSysCache(tuple);

	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", function);
	found->owner = ((Form_pg_proc) GETSTRUCT(tuple))->proowner;
	ReleaseSysCache(tuple);
	fmgr_info_cxt(function, &found->function, dispatcher->fn_mcxt);
	return found;
}

static void
call_implementation(void *arg)
{
	Call	   *call = arg;
	FunctionCallInfo fcinfo = call->fcinfo;

	LOCAL_FCINFO(inner, FUNC_MAX_ARGS);

	InitFunctionCallInfoData(*inner, &call->implementation->function, fcinfo->nargs + 1, fcinfo->fncollation,
							 NULL, fcinfo->resultinfo);
	inner->args[0].value = ObjectIdGetDatum(call->caller);
	inner->args[0].isnull = false;
	memcpy(&inner->args[1], fcinfo->args, fcinfo->nargs * sizeof(NullableDatum));
	call->result = FunctionCallInvoke(inner);
	fcinfo->isnull = inner->isnull;
}
