/*
 * function.c
 *		The call of a function of a job that returns one sweep.progress.
 *
 * Called by step.c for steps and rescue functions. There is no statement around the call: to start and end
 * its executor would take as long as a small step itself, and in a fresh process it would have to be planned
 * first. What a statement does for a function is done here: a snapshot of its own, the right to execute,
 * statistics. It is looked up again whenever some function was changed, so a run notices in its next batch
 * what has become of its step.
 *
 * Whoever owns a function decides what it does, and replaces it at will. So the owner of each function that a
 * job or a consumer names must be somebody who could become its role anyhow. That is looked at here whenever
 * the function is looked up, and again when functions, roles or memberships have changed; never for each batch.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "parser/parse_func.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "base/compat.h"
#include "base/role.h"
#include "base/sql.h"
#include "engine/function.h"

/* Columns of sweep.progress. */
enum
{
	PROGRESS_ROWS,
	PROGRESS_CURSOR,
	PROGRESS_DETAIL,
	PROGRESS_COLUMNS
};

struct SweepFunction
{
	char	   *name;
	int			argument_count;
	uint64		found_at;		/* function_changes when it was looked up; 0 = not yet */
	FmgrInfo	info;			/* of what was found */
	MemoryContext info_context; /* what it has compiled or read from the catalogue */
};

/* Counts what may have changed, moved or renamed a function, or what its owner is. */
static uint64 function_changes = 0;

static void watch_changes(void);
static void note_change(Datum arg, int cache, uint32 hash);
static void find(SweepFunction *function);
static Oid	function_owner(Oid function);
static bool is_trusted(Oid owner, Oid role);
static void check_owner(Oid function, const char *name);
static void read_progress(SweepProgress *progress, Datum result, MemoryContext context);

PG_FUNCTION_INFO_V1(sweep_function_is_trusted);

SweepFunction *
sweep_function_find(MemoryContext context, const char *name, int argument_count)
{
	SweepFunction *function = MemoryContextAllocZero(context, sizeof(SweepFunction));

	watch_changes();
	function->name = MemoryContextStrdup(context, name);
	function->argument_count = argument_count;
	function->info_context = AllocSetContextCreate(context, "pg_sweep function", ALLOCSET_SMALL_SIZES);
	find(function);
	return function;
}

void
sweep_function_call(SweepFunction *function, const NullableDatum *arguments, SweepProgress *progress, MemoryContext context)
{
	LOCAL_FCINFO(call, 2);
	PgStat_FunctionCallUsage usage;
	uint64		found_at;
	Datum		result;

	find(function);
	sweep_check_execute(function->info.fn_oid, function->name);
	InvokeFunctionExecuteHook(function->info.fn_oid);
	InitFunctionCallInfoData(*call, &function->info, function->argument_count, InvalidOid, NULL, NULL);
	memcpy(call->args, arguments, function->argument_count * sizeof(NullableDatum));

	/* It sees what was done before it in this transaction, and what others have committed until now. */
	CommandCounterIncrement();
	PushActiveSnapshot(GetTransactionSnapshot());
	pgstat_init_function_usage(call, &usage);
	/* After an error it is made anew: nobody promises that what it keeps between calls is fit for another one. */
	found_at = function->found_at;
	function->found_at = 0;
	result = FunctionCallInvoke(call);
	function->found_at = found_at;
	pgstat_end_function_usage(&usage, true);
	PopActiveSnapshot();
	CommandCounterIncrement();
	read_progress(progress, call->isnull ? (Datum) 0 : result, context);
}

void
sweep_function_check(SweepFunctionWatch *watch)
{
	uint64		changes;
	Oid			found;

	watch_changes();
	changes = function_changes;
	if (watch->checked_at == changes)
		return;
	/* One that is no longer there is left to the statement that calls it. */
	found = LookupFuncName(sweep_qualified_name_list(watch->name), 1, &watch->argument, true);
	if (OidIsValid(found))
		check_owner(found, watch->name);
	watch->checked_at = changes;
}

/* SQL: sweep._is_trusted(function regprocedure, role text) RETURNS boolean: never NULL */
Datum
sweep_function_is_trusted(PG_FUNCTION_ARGS)
{
	Oid			role = PG_ARGISNULL(1) ? InvalidOid : sweep_role_find(text_to_cstring(PG_GETARG_TEXT_PP(1)));
	Oid			owner = PG_ARGISNULL(0) ? InvalidOid : function_owner(PG_GETARG_OID(0));

	PG_RETURN_BOOL(OidIsValid(owner) && sweep_sql_find_extension() && is_trusted(owner, role));
}

static void
watch_changes(void)
{
	static const int caches[] = {PROCOID, NAMESPACEOID, AUTHOID, AUTHMEMROLEMEM};

	if (function_changes != 0)
		return;
	for (size_t i = 0; i < lengthof(caches); i++)
		CacheRegisterSyscacheCallback(caches[i], note_change, 0);
	function_changes = 1;
}

static void
note_change(Datum arg, int cache, uint32 hash)
{
	function_changes++;
}

static void
find(SweepFunction *function)
{
	Oid			types[] = {sweep_sql_extension()->batch_type, JSONBOID};
	uint64		changes = function_changes;
	Oid			schema;
	Oid			found;

	if (function->found_at == changes)
		return;
	schema = get_namespace_oid("sweep", false);
	found = LookupFuncName(sweep_qualified_name_list(function->name), function->argument_count, types, false);
	if (get_func_prokind(found) != PROKIND_FUNCTION || get_func_retset(found) ||
		get_func_rettype(found) != GetSysCacheOid2(TYPENAMENSP, Anum_pg_type_oid, CStringGetDatum("progress"), ObjectIdGetDatum(schema)))
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("function %s does not return sweep.progress", function->name)));
	check_owner(found, function->name);
	MemoryContextReset(function->info_context);
	fmgr_info_cxt(found, &function->info, function->info_context);
	function->found_at = changes;
}

/* InvalidOid when there is no such function. */
static Oid
function_owner(Oid function)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Oid			owner = InvalidOid;

	if (HeapTupleIsValid(tuple))
	{
		owner = ((Form_pg_proc) GETSTRUCT(tuple))->proowner;
		ReleaseSysCache(tuple);
	}
	return owner;
}

/* The owner of the extension could do what he likes in any case. */
static bool
is_trusted(Oid owner, Oid role)
{
	return owner == sweep_sql_extension()->owner || sweep_role_can_become(owner, role);
}

static void
check_owner(Oid function, const char *name)
{
	Oid			owner = function_owner(function);
	const char *role = GetUserNameFromId(GetUserId(), true);

	if (is_trusted(owner, GetUserId()))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("function %s belongs to role \"%s\", which could not become role \"%s\"", name,
					GetUserNameFromId(owner, true), role),
			 errdetail("Its owner decides what is executed as that role."),
			 errhint("See ALTER FUNCTION ... OWNER TO, or grant membership in \"%s\" to its owner.", role)));
}

static void
read_progress(SweepProgress *progress, Datum result, MemoryContext context)
{
	Datum		values[PROGRESS_COLUMNS];
	bool		nulls[PROGRESS_COLUMNS] = {[PROGRESS_ROWS] = true};
	MemoryContext old;

	if (result != (Datum) 0)
	{
		HeapTupleHeader header = DatumGetHeapTupleHeader(result);

		for (int i = 0; i < PROGRESS_COLUMNS; i++)
			values[i] = GetAttributeByNum(header, (AttrNumber) (i + 1), &nulls[i]);
	}
	if (nulls[PROGRESS_ROWS])
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("step returned no number of rows"),
				 errhint("Return a sweep.progress whose rows is the number of rows handled, 0 when nothing is left.")));
	progress->rows = DatumGetInt64(values[PROGRESS_ROWS]);
	if (progress->rows < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("step returned %lld rows", (long long) progress->rows),
				 errhint("The rows of sweep.progress must be zero or more.")));
	old = MemoryContextSwitchTo(context);
	progress->cursor = nulls[PROGRESS_CURSOR] ? NULL : DatumGetJsonbPCopy(values[PROGRESS_CURSOR]);
	progress->detail = nulls[PROGRESS_DETAIL] ? NULL : DatumGetJsonbPCopy(values[PROGRESS_DETAIL]);
	MemoryContextSwitchTo(old);
}
