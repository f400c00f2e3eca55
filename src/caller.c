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
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_proc.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "parser/parse_func.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

/* Kept in fn_extra for the calls of one query. */
typedef struct Implementation
{
	FmgrInfo	function;
	Oid			owner;
} Implementation;

static Implementation *find_implementation(FmgrInfo *dispatcher);
static Datum call_implementation(FunctionCallInfo fcinfo, Implementation *implementation, Oid caller);

PG_FUNCTION_INFO_V1(sweep_caller_dispatch);

Datum
sweep_caller_dispatch(PG_FUNCTION_ARGS)
{
	Implementation *implementation = fcinfo->flinfo->fn_extra;
	Oid			caller;
	int			security_context;
	Datum		result;

	if (implementation == NULL)
		implementation = fcinfo->flinfo->fn_extra = find_implementation(fcinfo->flinfo);

	/* An error restores both, with the (sub)transaction that it ends. */
	GetUserIdAndSecContext(&caller, &security_context);
	SetUserIdAndSecContext(implementation->owner, security_context | SECURITY_LOCAL_USERID_CHANGE);
	result = call_implementation(fcinfo, implementation, caller);
	SetUserIdAndSecContext(caller, security_context);
	return result;
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

static Datum
call_implementation(FunctionCallInfo fcinfo, Implementation *implementation, Oid caller)
{
	LOCAL_FCINFO(call, FUNC_MAX_ARGS);
	Datum		result;

	InitFunctionCallInfoData(*call, &implementation->function, fcinfo->nargs + 1, fcinfo->fncollation,
							 NULL, fcinfo->resultinfo);
	call->args[0].value = ObjectIdGetDatum(caller);
	call->args[0].isnull = false;
	memcpy(&call->args[1], fcinfo->args, fcinfo->nargs * sizeof(NullableDatum));
	result = FunctionCallInvoke(call);
	fcinfo->isnull = call->isnull;
	return result;
}
