/*
 * step.c
 *		Builds the one statement of the engine that is not constant, and calls it.
 *
 * A step is named by text in sweep.job, because a reg* column would keep pg_upgrade from working. It is
 * looked up as a function of exactly one sweep.batch, and the call is made from the names of that
 * function, never from the text. A batch_sql is the job's own statement; it was checked to be a single
 * one that changes or reads rows.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "nodes/parsenodes.h"
#include "parser/analyze.h"
#include "parser/parse_func.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

#include "compat.h"
#include "sql.h"
#include "step.h"

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
	char	   *text;
	bool		is_statement;
	SweepPlan  *plan;
	TupleDesc	batch_desc;
};

static char *step_text(const char *step);
static Datum batch_datum(SweepStep *step, const SweepBatch *batch);
static void place_error(void *source);
static void read_progress(SweepProgress *progress, uint64 rows, MemoryContext context);

PG_FUNCTION_INFO_V1(sweep_step_check_batch_sql);

SweepStep *
sweep_step_prepare(MemoryContext context, const char *step, const char *batch_sql)
{
	MemoryContext old = MemoryContextSwitchTo(context);
	SweepStep  *prepared = palloc0(sizeof(SweepStep));
	Oid			batch_type = sweep_sql_batch_type();

	prepared->is_statement = step == NULL;
	prepared->text = step != NULL ? step_text(step) : pstrdup(batch_sql);
	prepared->batch_desc = lookup_rowtype_tupdesc_copy(batch_type, -1);
	BlessTupleDesc(prepared->batch_desc);
	if (prepared->is_statement)
		prepared->plan = sweep_sql_prepare(prepared->text, 2, (Oid[]) {INT4OID, batch_type});
	else
		prepared->plan = sweep_sql_prepare(prepared->text, 1, &batch_type);
	MemoryContextSwitchTo(old);
	return prepared;
}

void
sweep_step_call(SweepStep *step, const SweepBatch *batch, SweepProgress *progress, MemoryContext context)
{
	Datum		datum = batch_datum(step, batch);
	uint64		rows;

	memset(progress, 0, sizeof(*progress));
	if (step->is_statement)
	{
		Datum		values[] = {Int32GetDatum(batch->size), datum};

		progress->rows = (int64) sweep_sql_execute_plan(step->plan, values, NULL);
		return;
	}
	rows = sweep_sql_execute_plan(step->plan, &datum, NULL);
	read_progress(progress, rows, context);
}

const char *
sweep_step_text(const SweepStep *step)
{
	return step->text;
}

static char *
step_text(const char *step)
{
	List	   *names = sweep_qualified_name_list(step);
	Oid			batch_type = sweep_sql_batch_type();
	Oid			function = LookupFuncName(names, 1, &batch_type, false);

	return psprintf("SELECT * FROM %s($1)",
					quote_qualified_identifier(get_namespace_name(get_func_namespace(function)),
											   get_func_name(function)));
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
	return HeapTupleGetDatum(heap_form_tuple(step->batch_desc, values, nulls));
}

static void
read_progress(SweepProgress *progress, uint64 rows, MemoryContext context)
{
	if (rows != 1 || sweep_sql_is_null(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("step returned no number of rows"),
				 errhint("Return a sweep.progress whose rows is the number of rows handled, 0 when nothing is left.")));
	progress->rows = sweep_sql_int64(1);
	if (progress->rows < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("step returned %lld rows", (long long) progress->rows),
				 errhint("The rows of sweep.progress must be zero or more.")));
	progress->cursor = sweep_sql_jsonb(2, context);
	progress->detail = sweep_sql_jsonb(3, context);
}

/* SQL: sweep._check_batch_sql(batch_sql text) RETURNS void; names are looked up as in a run */
Datum
sweep_step_check_batch_sql(PG_FUNCTION_ARGS)
{
	char	   *source = text_to_cstring(PG_GETARG_TEXT_PP(0));
	ErrorContextCallback callback = {error_context_stack, place_error, source};
	List	   *statements;
	RawStmt    *raw;
	Oid			types[2] = {INT4OID, InvalidOid};

	error_context_stack = &callback;
	statements = pg_parse_query(source);
	raw = list_length(statements) == 1 ? linitial_node(RawStmt, statements) : NULL;
	if (raw == NULL ||
		!(IsA(raw->stmt, SelectStmt) || IsA(raw->stmt, InsertStmt) || IsA(raw->stmt, UpdateStmt) ||
		  IsA(raw->stmt, DeleteStmt) || IsA(raw->stmt, MergeStmt)))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("batch_sql \"%s\" is not a single SELECT, INSERT, UPDATE, DELETE or MERGE", source),
				 errhint("Its row count is the progress of a batch; for anything else write a step function.")));
	if (!sweep_sql_open_gate())
		elog(ERROR, "extension pg_sweep does not exist");
	types[1] = sweep_sql_batch_type();
	(void) parse_analyze_fixedparams(raw, source, types, 2, NULL);
	error_context_stack = callback.previous;
	PG_RETURN_VOID();
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
