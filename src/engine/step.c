/*
 * step.c
 *		Calls the functions of a job, or executes its statement.
 *
 * A step is named by text in sweep.job, because a reg* column would keep pg_upgrade from working. It is
 * looked up as a function of exactly one sweep.batch, and the call is made from what was found, never from
 * the text; see function.c. A batch_sql is the job's own statement; it was checked to be a single one that
 * changes or reads rows.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "nodes/nodeFuncs.h"
#include "nodes/parsenodes.h"
#include "parser/analyze.h"
#include "parser/parse_func.h"
#include "tcop/tcopprot.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

#include "base/compat.h"
#include "base/door.h"
#include "base/sql.h"
#include "engine/function.h"
#include "engine/step.h"

/* Columns of sweep.batch. */
enum
{
	BATCH_SIZE,
	BATCH_CURSOR,
	BATCH_ARGS,
	BATCH_AS_OF,
	BATCH_BUCKET,
	BATCH_BUCKETS,
	BATCH_ITEMS,
	BATCH_RUN_ID,
	BATCH_COLUMNS
};

struct SweepStep
{
	TupleDesc	batch_desc;
	SweepFunction *function;	/* returns one sweep.progress; NULL = anything else, by a plan */
	SweepPlan  *plan;
	SweepFunctionWatch watch;	/* the function that the plan calls; NULL as name = it is a batch_sql */
};

/* A batch_sql that is to be analysed. */
typedef struct Analysis
{
	const char *source;
	RawStmt    *raw;
} Analysis;

static SweepStep *prepare_progress(MemoryContext context, const char *name, int count);
static SweepStep *create_step(MemoryContext context);
static Datum items_datum(const SweepBatch *batch);
static Datum batch_datum(SweepStep *step, const SweepBatch *batch);
static bool uses_batch_size(Node *node, void *context);
static void analyse_work(void *arg);
static void place_error(void *source);

PG_FUNCTION_INFO_V1(sweep_step_check_batch_sql);

SweepStep *
sweep_step_prepare(MemoryContext context, const char *step, const char *batch_sql)
{
	SweepStep  *prepared;

	if (step != NULL)
		return prepare_progress(context, step, 1);
	prepared = create_step(context);
	prepared->plan = sweep_sql_prepare(batch_sql, 2, (Oid[]) {INT4OID, sweep_sql_extension()->batch_type}, false);
	return prepared;
}

SweepStep *
sweep_step_prepare_call(MemoryContext context, const char *name)
{
	SweepStep  *prepared = create_step(context);
	Oid			batch_type = sweep_sql_extension()->batch_type;
	Oid			function = LookupFuncName(sweep_qualified_name_list(name), 1, &batch_type, false);
	char	   *found = quote_qualified_identifier(get_namespace_name(get_func_namespace(function)), get_func_name(function));

	prepared->watch = (SweepFunctionWatch) {.name = MemoryContextStrdup(context, found), .argument = batch_type};
	sweep_function_check(&prepared->watch);
	prepared->plan = sweep_sql_prepare(psprintf("SELECT * FROM %s($1)", found), 1, &batch_type, false);
	return prepared;
}

SweepStep *
sweep_step_prepare_rescue(MemoryContext context, const char *name)
{
	return prepare_progress(context, name, 2);
}

int32
sweep_step_count(SweepStep *count, const SweepBatch *batch)
{
	Datum		datum = batch_datum(count, batch);
	uint64		rows;

	sweep_function_check(&count->watch);
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

	sweep_function_check(&pick->watch);
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
sweep_step_rescue(SweepStep *rescue, const SweepBatch *batch, Jsonb *error, SweepProgress *progress, MemoryContext context)
{
	NullableDatum arguments[] = {{.value = batch_datum(rescue, batch)}, {.value = JsonbPGetDatum(error)}};

	sweep_function_call(rescue->function, arguments, progress, context);
}

void
sweep_step_free(SweepStep *step)
{
	if (step != NULL && step->plan != NULL)
		sweep_sql_free_plan(step->plan);
	if (step != NULL)
		step->plan = NULL;
}

void
sweep_step_call(SweepStep *step, const SweepBatch *batch, SweepProgress *progress, MemoryContext context)
{
	Datum		datum = batch_datum(step, batch);

	if (step->function == NULL)
	{
		Datum		values[] = {Int32GetDatum(batch->size), datum};

		*progress = (SweepProgress) {.rows = (int64) sweep_sql_execute_plan(step->plan, values, NULL)};
	}
	else
		sweep_function_call(step->function, &(NullableDatum) {.value = datum}, progress, context);
}

static SweepStep *
prepare_progress(MemoryContext context, const char *name, int count)
{
	SweepStep  *prepared = create_step(context);

	prepared->function = sweep_function_find(context, name, count);
	return prepared;
}

static SweepStep *
create_step(MemoryContext context)
{
	MemoryContext old = MemoryContextSwitchTo(context);
	SweepStep  *step = palloc0(sizeof(SweepStep));

	step->batch_desc = lookup_rowtype_tupdesc_copy(sweep_sql_extension()->batch_type, -1);
	BlessTupleDesc(step->batch_desc);
	MemoryContextSwitchTo(old);
	return step;
}

static Datum
batch_datum(SweepStep *step, const SweepBatch *batch)
{
	Datum		values[BATCH_COLUMNS] = {0};
	bool		nulls[BATCH_COLUMNS];

	memset(nulls, true, sizeof(nulls));
	values[BATCH_SIZE] = Int32GetDatum(batch->size);
	nulls[BATCH_SIZE] = false;
	if (batch->cursor != NULL)
	{
		values[BATCH_CURSOR] = JsonbPGetDatum(batch->cursor);
		nulls[BATCH_CURSOR] = false;
	}
	if (batch->args != NULL)
	{
		values[BATCH_ARGS] = JsonbPGetDatum(batch->args);
		nulls[BATCH_ARGS] = false;
	}
	values[BATCH_AS_OF] = TimestampTzGetDatum(batch->as_of);
	nulls[BATCH_AS_OF] = false;
	values[BATCH_RUN_ID] = Int64GetDatum(batch->run_id);
	nulls[BATCH_RUN_ID] = false;
	if (batch->buckets > 0)
	{
		values[BATCH_BUCKET] = Int32GetDatum(batch->bucket);
		values[BATCH_BUCKETS] = Int32GetDatum(batch->buckets);
		nulls[BATCH_BUCKET] = nulls[BATCH_BUCKETS] = false;
	}
	if (batch->items != NULL)
	{
		values[BATCH_ITEMS] = items_datum(batch);
		nulls[BATCH_ITEMS] = false;
	}
	return HeapTupleGetDatum(heap_form_tuple(step->batch_desc, values, nulls));
}

static Datum
items_datum(const SweepBatch *batch)
{
	Datum	   *elements = palloc(sizeof(Datum) * Max(batch->item_count, 1));

	for (int i = 0; i < batch->item_count; i++)
		elements[i] = JsonbPGetDatum(batch->items[i]);
	return PointerGetDatum(construct_array(elements, batch->item_count, JSONBOID, -1, false, TYPALIGN_INT));
}

/*
 * SQL: sweep._check_batch_sql(role oid, batch_sql text) RETURNS void
 *
 * Names are looked up as in a run. Analysis executes code of users, the constraint of a domain for one, and
 * is called from within a function of the owner of the extension, which goes on afterwards: see door.c.
 */
Datum
sweep_step_check_batch_sql(PG_FUNCTION_ARGS)
{
	Oid			role = PG_GETARG_OID(0);
	char	   *source = text_to_cstring(PG_GETARG_TEXT_PP(1));
	ErrorContextCallback callback = {error_context_stack, place_error, source};
	List	   *statements;
	Analysis	analysis = {source, NULL};

	error_context_stack = &callback;
	statements = pg_parse_query(source);
	analysis.raw = list_length(statements) == 1 ? linitial_node(RawStmt, statements) : NULL;
	if (analysis.raw == NULL ||
		!(IsA(analysis.raw->stmt, SelectStmt) || IsA(analysis.raw->stmt, InsertStmt) || IsA(analysis.raw->stmt, UpdateStmt) ||
		  IsA(analysis.raw->stmt, DeleteStmt) || IsA(analysis.raw->stmt, MergeStmt)))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("batch_sql \"%s\" is not a single SELECT, INSERT, UPDATE, DELETE or MERGE", source),
				 errhint("Its row count is the progress of a batch; for anything else write a step function.")));
	if (!IsA(analysis.raw->stmt, SelectStmt) && !uses_batch_size(analysis.raw->stmt, NULL))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("batch_sql \"%s\" does not use $1, the batch size", source),
				 errhint("It is executed again and again, each time for one batch: limit it by $1, for example "
						 "WHERE id IN (SELECT id FROM ... LIMIT $1).")));
	if (!sweep_sql_open_gate())
		elog(ERROR, "extension pg_sweep does not exist");
	sweep_door_visit_user(role, analyse_work, &analysis);
	error_context_stack = callback.previous;
	PG_RETURN_VOID();
}

/* In the text as it stands: what a rule or a view adds has no parameters. */
static bool
uses_batch_size(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, ParamRef))
		return castNode(ParamRef, node)->number == 1;
	return raw_expression_tree_walker(node, uses_batch_size, context);
}

static void
analyse_work(void *arg)
{
	const Analysis *analysis = arg;
	Oid			types[2] = {INT4OID, sweep_sql_extension()->batch_type};

	(void) parse_analyze_fixedparams(analysis->raw, analysis->source, types, 2, NULL);
}

/* The position of a syntax error is one in the text of the job, not in the statement that creates it. */
static void
place_error(void *source)
{
	int			position = geterrposition();

	if (position > 0)
	{
		errposition(0);
		internalerrposition(position);
		internalerrquery((const char *) source);
	}
}
