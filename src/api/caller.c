/*
 * caller.c
 *		The dispatcher behind the public functions that write.
 *
 * Tables belong to the owner of the extension, and the calling role decides which rights apply. SECURITY DEFINER would run the
 * implementation as the owner but hide the caller: current_user is then the owner, and session_user may be a role that executes a
 * view, a trigger or an index expression of the real caller. Therefore the C code of each public function is this dispatcher. It
 * finds the function of the same name with a leading underscore in the same schema, switches to the owner of that function, and
 * passes the calling role as the first argument. The other arguments follow unchanged. When the implementation takes a row as its
 * second argument, arguments with name and type of a column of the row are passed in the row. Thus only the table and the public
 * function have to list the settings of a job.
 *
 * The search_path and the formats of the caller are saved, for names and values in its texts; the implementation has its own.
 *
 * An error of the implementation is raised without its CONTEXT, which is of no use to the caller.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/namespace.h"
#include "catalog/objectaddress.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "parser/parse_expr.h"
#include "parser/parse_func.h"
#include "utils/array.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/typcache.h"
#include "utils/varlena.h"

#include "base/door.h"
#include "base/extension.h"
#include "base/txn.h"

/* Kept in fn_extra for the calls of one query. */
typedef struct Implementation
{
	FmgrInfo	function;
	Oid			owner;
	TupleDesc	row;			/* of its second argument; NULL = none */
	int		   *columns;		/* the argument for each column of the row; -1 = none */
} Implementation;

/* A call whose errors are raised without context. */
typedef struct Call
{
	FunctionCallInfo fcinfo;
	Implementation *implementation;
	Oid			caller;
	Datum		result;
} Call;

/* How values are converted from and to text. */
typedef struct Formats
{
	int			date_style;
	int			date_order;
	int			interval_style;
	bool		null_equals;
	bool		array_nulls;
} Formats;

/* The search_path and the formats of the call in progress, or of the last one. */
static char *caller_path = NULL;
static Formats caller_formats;

static void keep_path(const char *path);
static void find_implementation(void *arg);
static void match_row(Implementation *found, Oid row_type, HeapTuple function, MemoryContext context);
static void call_implementation(void *arg);
static Datum row_of_arguments(const Implementation *implementation, FunctionCallInfo fcinfo, bool *taken);

PG_FUNCTION_INFO_V1(sweep_caller_dispatch);
PG_FUNCTION_INFO_V1(sweep_caller_search_path);
PG_FUNCTION_INFO_V1(sweep_caller_formats);

Datum
sweep_caller_dispatch(PG_FUNCTION_ARGS)
{
	Call		call = {.fcinfo = fcinfo, .implementation = fcinfo->flinfo->fn_extra};
	SweepDoor	door;
	char	   *outer_path = caller_path != NULL ? pstrdup(caller_path) : NULL;
	Formats		outer_formats = caller_formats;

	if (call.implementation == NULL)
		sweep_txn_hide_context(find_implementation, &call);

	keep_path(namespace_search_path);
	caller_formats = (Formats) {DateStyle, DateOrder, IntervalStyle, Transform_null_equals, Array_nulls};
	sweep_door_enter_engine(&door, call.implementation->owner);
	call.caller = door.user;
	sweep_txn_hide_context(call_implementation, &call);
	sweep_door_leave(&door);
	if (outer_path != NULL)
		keep_path(outer_path);
	caller_formats = outer_formats;
	return call.result;
}

/* The text is reallocated in place, because nothing frees it after an error. */
static void
keep_path(const char *path)
{
	Size		size = strlen(path) + 1;

	caller_path = caller_path == NULL ? MemoryContextAlloc(TopMemoryContext, size) : repalloc(caller_path, size);
	memcpy(caller_path, path, size);
}

/* SQL: sweep._caller_search_path() RETURNS text[]: the names as they are written, for example "$user" */
Datum
sweep_caller_search_path(PG_FUNCTION_ARGS)
{
	List	   *names;

	if (caller_path == NULL || !SplitIdentifierString(pstrdup(caller_path), ',', &names))
		names = NIL;
	PG_RETURN_ARRAYTYPE_P(strlist_to_textarray(names));
}

/* SQL: sweep._caller_formats() RETURNS text[]: names and values of settings in turns, for example {DateStyle,"ISO, MDY",IntervalStyle,postgres} */
Datum
sweep_caller_formats(PG_FUNCTION_ARGS)
{
	static const char *const date_styles[] = {[USE_POSTGRES_DATES] = "Postgres", [USE_ISO_DATES] = "ISO", [USE_SQL_DATES] = "SQL", [USE_GERMAN_DATES] = "German"};
	static const char *const date_orders[] = {[DATEORDER_YMD] = "YMD", [DATEORDER_DMY] = "DMY", [DATEORDER_MDY] = "MDY"};
	static const char *const interval_styles[] = {
		[INTSTYLE_POSTGRES] = "postgres", [INTSTYLE_POSTGRES_VERBOSE] = "postgres_verbose", [INTSTYLE_SQL_STANDARD] = "sql_standard", [INTSTYLE_ISO_8601] = "iso_8601"
	};
	List	   *pairs = list_make2("DateStyle", psprintf("%s, %s", date_styles[caller_formats.date_style], date_orders[caller_formats.date_order]));

	pairs = lappend(lappend(pairs, "IntervalStyle"), unconstify(char *, interval_styles[caller_formats.interval_style]));
	pairs = lappend(lappend(pairs, "transform_null_equals"), caller_formats.null_equals ? "on" : "off");
	pairs = lappend(lappend(pairs, "array_nulls"), caller_formats.array_nulls ? "on" : "off");
	PG_RETURN_ARRAYTYPE_P(strlist_to_textarray(pairs));
}

static void
find_implementation(void *arg)
{
	Call	   *call = arg;
	FmgrInfo   *dispatcher = call->fcinfo->flinfo;
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(dispatcher->fn_oid));
	Form_pg_proc form;
	Oid			types[FUNC_MAX_ARGS];
	List	   *name;
	char	   *schema;
	Implementation *found = MemoryContextAllocZero(dispatcher->fn_mcxt, sizeof(Implementation));
	Oid			function;
	HeapTuple	inner;
	Form_pg_proc inner_form;

	/* The extension may have been dropped since the statement was analysed. */
	schema = HeapTupleIsValid(tuple) ? get_namespace_name(((Form_pg_proc) GETSTRUCT(tuple))->pronamespace) : NULL;
	if (schema == NULL)
		sweep_extension_require(false);
	form = (Form_pg_proc) GETSTRUCT(tuple);
	/* A function that only reads is STABLE, or has a name with an underscore and is called by a view. */
	if (form->provolatile == PROVOLATILE_VOLATILE && NameStr(form->proname)[0] != '_')
		sweep_require_usable(psprintf("%s.%s()", schema, NameStr(form->proname)));
	if (form->pronargs >= FUNC_MAX_ARGS)
		elog(ERROR, "function %u has too many arguments", dispatcher->fn_oid);
	types[0] = OIDOID;
	memcpy(&types[1], form->proargtypes.values, form->pronargs * sizeof(Oid));
	name = list_make2(makeString(schema), makeString(psprintf("_%s", NameStr(form->proname))));
	function = LookupFuncName(name, form->pronargs + 1, types, true);
	if (!OidIsValid(function))
		function = LookupFuncName(name, -1, types, false);

	inner = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	if (!HeapTupleIsValid(inner))
		elog(ERROR, "cache lookup failed for function %u", function);
	inner_form = (Form_pg_proc) GETSTRUCT(inner);
	found->owner = inner_form->proowner;
	if (inner_form->pronargs >= 2 && inner_form->pronargs <= form->pronargs)
		match_row(found, inner_form->proargtypes.values[1], tuple, dispatcher->fn_mcxt);
	ReleaseSysCache(inner);
	ReleaseSysCache(tuple);
	fmgr_info_cxt(function, &found->function, dispatcher->fn_mcxt);
	call->implementation = dispatcher->fn_extra = found;
}

static void
match_row(Implementation *found, Oid row_type, HeapTuple function, MemoryContext context)
{
	MemoryContext old = MemoryContextSwitchTo(context);
	Oid		   *types;
	char	  **names;
	char	   *modes;
	int			count = get_func_arg_info(function, &types, &names, &modes);

	found->row = lookup_rowtype_tupdesc_copy(row_type, -1);
	found->columns = palloc(sizeof(int) * found->row->natts);
	for (int column = 0; column < found->row->natts; column++)
	{
		Form_pg_attribute attribute = TupleDescAttr(found->row, column);

		found->columns[column] = -1;
		for (int i = 0; i < count && !attribute->attisdropped; i++)
		{
			if (types[i] == attribute->atttypid && strcmp(names[i], NameStr(attribute->attname)) == 0)
				found->columns[column] = i;
		}
	}
	MemoryContextSwitchTo(old);
}

static void
call_implementation(void *arg)
{
	Call	   *call = arg;
	FunctionCallInfo fcinfo = call->fcinfo;
	bool		taken[FUNC_MAX_ARGS] = {false};
	int			count = 0;

	LOCAL_FCINFO(inner, FUNC_MAX_ARGS);

	inner->args[count++] = (NullableDatum) {.value = ObjectIdGetDatum(call->caller)};
	if (call->implementation->row != NULL)
		inner->args[count++] = (NullableDatum) {.value = row_of_arguments(call->implementation, fcinfo, taken)};
	for (int i = 0; i < fcinfo->nargs; i++)
	{
		if (!taken[i])
			inner->args[count++] = fcinfo->args[i];
	}
	if (count != call->implementation->function.fn_nargs)
		elog(ERROR, "function %u has other arguments than its implementation", fcinfo->flinfo->fn_oid);
	InitFunctionCallInfoData(*inner, &call->implementation->function, count, fcinfo->fncollation, NULL, fcinfo->resultinfo);
	call->result = FunctionCallInvoke(inner);
	fcinfo->isnull = inner->isnull;
}

static Datum
row_of_arguments(const Implementation *implementation, FunctionCallInfo fcinfo, bool *taken)
{
	int			width = implementation->row->natts;
	Datum	   *values = palloc0(sizeof(Datum) * width);
	bool	   *nulls = palloc(sizeof(bool) * width);

	for (int column = 0; column < width; column++)
	{
		int			i = implementation->columns[column];

		nulls[column] = i < 0 || fcinfo->args[i].isnull;
		if (i < 0)
			continue;
		values[column] = fcinfo->args[i].value;
		taken[i] = true;
	}
	return HeapTupleGetDatum(heap_form_tuple(implementation->row, values, nulls));
}
