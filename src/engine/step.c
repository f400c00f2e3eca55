/*
 * step.c
 *		Calls the functions of a job, or executes its statement.
 *
 * Called by batch.c, items.c, preview.c, bucket_run.c and estimate.c; consumer.c has its handlers checked here. A step is named by
 * text in sweep.job, because a reg* column would keep pg_upgrade from working. It is looked up as a function with exactly one argument of
 * type sweep.batch, and the function that was found is called by its OID, never by the text. A batch_sql is a statement of the job, which
 * was checked to be a single one that changes or reads rows.
 *
 * A step or a rescue function is called without a statement: starting and ending its executor would take as long as a
 * small step itself, and a new process would have to plan it first. This file does what a statement would do for a
 * function: it takes a snapshot, checks the EXECUTE privilege and counts statistics. A function is looked up again
 * whenever any function has changed, so a run uses a changed step in its next batch.
 *
 * The owner of a function decides what it does, and may replace it at any time. The owner of each function that a job or a
 * consumer names must therefore be able to SET ROLE to the role of the job or consumer. This is checked whenever the
 * function is looked up, and again when functions, roles or memberships have changed, but not for each batch.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "parser/parse_func.h"
#include "pgstat.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

#include "base/compat.h"
#include "base/extension.h"
#include "base/role.h"
#include "base/sql.h"
#include "engine/step.h"

/* Columns of sweep.progress. */
enum
{
	PROGRESS_ROWS,
	PROGRESS_CURSOR,
	PROGRESS_DETAIL,
	PROGRESS_COLUMNS
};

const Oid	sweep_batch_types[BATCH_COLUMNS] = {INT4OID, JSONBOID, JSONBOID, TIMESTAMPTZOID, INT4OID, INT4OID, JSONBARRAYOID, INT8OID};
static const Oid progress_types[PROGRESS_COLUMNS] = {INT8OID, JSONBOID, JSONBOID};

/* A function that returns one sweep.progress. */
typedef struct Function
{
	char	   *name;
	int			argument_count;
	uint64		found_at;		/* function_changes when it was looked up; 0 = not yet */
	FmgrInfo	info;			/* of the function that was found */
	MemoryContext info_context; /* memory that the function keeps between calls */
} Function;

struct SweepStep
{
	TupleDesc	batch_desc;
	Function	function;		/* name NULL = executed by a plan */
	SweepPlan  *plan;
	SweepCallee callee;			/* function that the plan calls; name NULL = the plan is a batch_sql */
};

/* Number of changes that may concern a function, its name or its owner. */
static uint64 function_changes = 0;

static SweepStep *create_step(MemoryContext context);
static Datum batch_datum(SweepStep *step, const SweepBatch *batch);
static void call_function(Function *function, const NullableDatum *arguments, SweepProgress *progress, MemoryContext context);
static void read_progress(SweepProgress *progress, Datum result, MemoryContext context);
static void find(Function *function);
static void watch_changes(void);
static void note_change(Datum arg, int cache, uint32 hash);
static void check_owner(Oid function, const char *name);
static bool is_trusted(Oid owner, Oid role);

PG_FUNCTION_INFO_V1(sweep_step_is_trusted);

SweepStep *
sweep_step_prepare(MemoryContext context, const char *step, const char *batch_sql)
{
	SweepStep  *prepared;

	if (step != NULL)
		return sweep_step_prepare_function(context, step, 1);
	prepared = create_step(context);
	prepared->plan = sweep_sql_prepare(batch_sql, 2, (Oid[]) {INT4OID, sweep_extension()->batch_type}, PLANNED_AS_CHOSEN);
	return prepared;
}

SweepStep *
sweep_step_prepare_call(MemoryContext context, const char *name)
{
	SweepStep  *prepared = create_step(context);
	Oid			batch_type = sweep_extension()->batch_type;
	Oid			function = LookupFuncName(sweep_qualified_name_list(name), 1, &batch_type, false);
	char	   *found = sweep_step_function_name(function);

	prepared->callee = (SweepCallee) {.name = MemoryContextStrdup(context, found), .argument = batch_type};
	sweep_step_check_callee(&prepared->callee);
	prepared->plan = sweep_sql_prepare(psprintf("SELECT * FROM %s($1)", found), 1, &batch_type, PLANNED_AS_CHOSEN);
	return prepared;
}

SweepStep *
sweep_step_prepare_function(MemoryContext context, const char *name, int argument_count)
{
	SweepStep  *prepared = create_step(context);
	Function   *function = &prepared->function;

	watch_changes();
	function->name = MemoryContextStrdup(context, name);
	function->argument_count = argument_count;
	function->info_context = AllocSetContextCreate(context, "pg_sweep function", ALLOCSET_SMALL_SIZES);
	find(function);
	return prepared;
}

SweepStep *
sweep_step_prepare_question(MemoryContext context, const char *estimate)
{
	SweepStep  *prepared = create_step(context);

	prepared->plan = sweep_sql_prepare(estimate, 1, (Oid[]) {sweep_extension()->batch_type}, PLANNED_AS_CHOSEN);
	return prepared;
}

uint64
sweep_step_ask(SweepStep *question, const SweepBatch *batch)
{
	Datum		datum = batch_datum(question, batch);

	return sweep_sql_read(question->plan, &datum, 2);
}

int32
sweep_step_count(SweepStep *count, const SweepBatch *batch)
{
	Datum		datum = batch_datum(count, batch);
	uint64		rows;

	sweep_step_check_callee(&count->callee);
	rows = sweep_sql_execute_plan(count->plan, &datum, NULL);

	if (rows != 1 || sweep_sql_is_null(1) || sweep_sql_int32(1) < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("buckets_function returned no number of buckets"),
				 errhint("Return 0 when there is nothing to be done just now, else 1 or more.")));
	return sweep_sql_int32(1);
}

int
sweep_step_pick(SweepStep *pick, const SweepBatch *batch, Jsonb ***items, MemoryContext context)
{
	Datum		datum = batch_datum(pick, batch);
	uint64		count;

	sweep_step_check_callee(&pick->callee);
	count = sweep_sql_execute_plan(pick->plan, &datum, NULL);

	if (count > (uint64) batch->size)
		ereport(ERROR,
				(errcode(ERRCODE_CARDINALITY_VIOLATION),
				 errmsg("pick returned %llu items instead of at most %d", (unsigned long long) count, batch->size),
				 errhint("Use the size of the batch as its LIMIT.")));
	*items = MemoryContextAlloc(context, sizeof(Jsonb *) * (count + 1));
	for (uint64 i = 0; i < count; i++)
	{
		sweep_sql_row(i);
		(*items)[i] = sweep_sql_jsonb(1, context);
		if ((*items)[i] == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("pick returned an item that is null"),
					 errhint("Leave out the rows that have no item.")));
	}
	return (int) count;
}

void
sweep_step_call(SweepStep *step, const SweepBatch *batch, Jsonb *error, SweepProgress *progress, MemoryContext context)
{
	Datum		datum = batch_datum(step, batch);

	if (step->function.name == NULL)
	{
		Datum		values[] = {Int32GetDatum(batch->size), datum};

		*progress = (SweepProgress) {.rows = (int64) sweep_sql_execute_plan(step->plan, values, NULL)};
	}
	else
		call_function(&step->function, (NullableDatum[]) {{.value = datum}, {.value = PointerGetDatum(error)}}, progress, context);
}

void
sweep_step_free(SweepStep *step)
{
	if (step == NULL)
		return;
	sweep_sql_free_plan(step->plan);
	step->plan = NULL;
}

char *
sweep_step_function_name(Oid function)
{
	char	   *schema = get_namespace_name(get_func_namespace(function));
	char	   *name = get_func_name(function);

	if (schema == NULL || name == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("function with OID %u does not exist", function)));
	return quote_qualified_identifier(schema, name);
}

void
sweep_step_check_callee(SweepCallee *callee)
{
	uint64		changes;
	Oid			found;

	watch_changes();
	changes = function_changes;
	if (callee->checked_at == changes)
		return;
	/* If the function no longer exists, the statement that calls it raises the error. */
	found = LookupFuncName(sweep_qualified_name_list(callee->name), 1, &callee->argument, true);
	if (OidIsValid(found))
		check_owner(found, callee->name);
	callee->checked_at = changes;
}

/* SQL: sweep._is_trusted(function regprocedure, role text) RETURNS boolean: never NULL */
Datum
sweep_step_is_trusted(PG_FUNCTION_ARGS)
{
	Oid			role = PG_ARGISNULL(1) ? InvalidOid : sweep_role_find(text_to_cstring(PG_GETARG_TEXT_PP(1)));
	Oid			owner = PG_ARGISNULL(0) ? InvalidOid : sweep_role_owning(ProcedureRelationId, PG_GETARG_OID(0));

	PG_RETURN_BOOL(OidIsValid(owner) && sweep_extension_find() && is_trusted(owner, role));
}

static SweepStep *
create_step(MemoryContext context)
{
	MemoryContext old = MemoryContextSwitchTo(context);
	SweepStep  *step = palloc0(sizeof(SweepStep));

	step->batch_desc = lookup_rowtype_tupdesc_copy(sweep_extension()->batch_type, -1);
	sweep_row_check(step->batch_desc, sweep_batch_types, BATCH_COLUMNS);
	BlessTupleDesc(step->batch_desc);
	MemoryContextSwitchTo(old);
	return step;
}

static Datum
batch_datum(SweepStep *step, const SweepBatch *batch)
{
	Datum		values[BATCH_COLUMNS] = {
		[BATCH_SIZE] = Int32GetDatum(batch->size),
		[BATCH_CURSOR] = PointerGetDatum(batch->cursor),
		[BATCH_ARGS] = PointerGetDatum(batch->args),
		[BATCH_AS_OF] = TimestampTzGetDatum(batch->as_of),
		[BATCH_BUCKET] = Int32GetDatum(batch->bucket),
		[BATCH_BUCKETS] = Int32GetDatum(batch->buckets),
		[BATCH_ITEMS] = batch->items != NULL ? sweep_step_items(batch->items, batch->item_count) : (Datum) 0,
		[BATCH_RUN_ID] = Int64GetDatum(batch->run_id),
	};
	bool		nulls[BATCH_COLUMNS] = {
		[BATCH_CURSOR] = batch->cursor == NULL,
		[BATCH_ARGS] = batch->args == NULL,
		[BATCH_BUCKET] = batch->buckets == 0,
		[BATCH_BUCKETS] = batch->buckets == 0,
		[BATCH_ITEMS] = batch->items == NULL,
	};

	return HeapTupleGetDatum(sweep_row_form(step->batch_desc, values, nulls, BATCH_COLUMNS));
}

Datum
sweep_step_items(Jsonb **items, int count)
{
	Datum	   *elements = palloc(sizeof(Datum) * Max(count, 1));

	for (int i = 0; i < count; i++)
		elements[i] = JsonbPGetDatum(items[i]);
	return PointerGetDatum(construct_array(elements, count, JSONBOID, -1, false, TYPALIGN_INT));
}

static void
call_function(Function *function, const NullableDatum *arguments, SweepProgress *progress, MemoryContext context)
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

	/* The function sees earlier changes of this transaction, and all commits of other sessions until now. */
	CommandCounterIncrement();
	PushActiveSnapshot(GetTransactionSnapshot());
	pgstat_init_function_usage(call, &usage);
	/* After an error the function is looked up anew, because its state may not allow another call. */
	found_at = function->found_at;
	function->found_at = 0;
	result = FunctionCallInvoke(call);
	function->found_at = found_at;
	pgstat_end_function_usage(&usage, true);
	PopActiveSnapshot();
	CommandCounterIncrement();
	read_progress(progress, call->isnull ? (Datum) 0 : result, context);
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

static void
find(Function *function)
{
	Oid			types[] = {sweep_extension()->batch_type, JSONBOID};
	uint64		changes = function_changes;
	Oid			schema;
	Oid			found;
	TupleDesc	progress;

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
	progress = lookup_rowtype_tupdesc(get_func_rettype(found), -1);
	sweep_row_check(progress, progress_types, PROGRESS_COLUMNS);
	ReleaseTupleDesc(progress);
	MemoryContextReset(function->info_context);
	fmgr_info_cxt(found, &function->info, function->info_context);
	function->found_at = changes;
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
check_owner(Oid function, const char *name)
{
	Oid			owner = sweep_role_owning(ProcedureRelationId, function);
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

/* The owner of the extension is trusted: it has all rights of the engine already. */
static bool
is_trusted(Oid owner, Oid role)
{
	return owner == sweep_extension()->owner || sweep_role_can_become(owner, role);
}
