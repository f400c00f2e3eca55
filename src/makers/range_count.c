/*
 * range_count.c
 *		Divides the table of a job with "parallel" into ranges when a run begins.
 *
 * Called as the buckets_function of the job: once before a run begins, then in each batch. The keys that divide the ranges are read as the
 * role of the job, because policies, conditions and index expressions are code of users; the engine stores the ranges.
 */
#include "postgres.h"

#include "executor/executor.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "base/sql.h"

static SweepStatement ranges_left_sql = {
	.text = "SELECT job, ranges, divides FROM sweep._ranges_left($1, $2)",
	.types = {INT8OID, OIDOID}};
static SweepStatement division_sql = {
	.text = "SELECT columns, query FROM sweep._division($1, $2, $3)",
	.types = {TEXTOID, JSONBOID, OIDOID}};
static SweepStatement keep_ranges_sql = {
	.text = "SELECT sweep._keep_ranges($1, $2, $3, $4)",
	.types = {TEXTOID, TEXTARRAYOID, JSONBOID, JSONBOID}};

static int32 divide(char *job, Datum args, Datum as_of);

PG_FUNCTION_INFO_V1(sweep_range_count);

/* SQL: sweep.range_count(b sweep.batch) RETURNS int */
Datum
sweep_range_count(PG_FUNCTION_ARGS)
{
	HeapTupleHeader batch = PG_GETARG_HEAPTUPLEHEADER(0);
	bool		nulls[3];
	Datum		args = GetAttributeByName(batch, "args", &nulls[0]);
	Datum		as_of = GetAttributeByName(batch, "as_of", &nulls[1]);
	Datum		values[] = {GetAttributeByName(batch, "run_id", &nulls[2]), ObjectIdGetDatum(GetUserId())};
	int32		count = 0;

	if (nulls[0] || nulls[1] || nulls[2])
		PG_RETURN_INT32(0);
	sweep_sql_begin_call();
	if (sweep_sql_execute(&ranges_left_sql, values, NULL) == 1 && !sweep_sql_is_null(1))
	{
		count = sweep_sql_int32(2);
		if (sweep_sql_bool(3))
			count = divide(sweep_sql_text(1, CurrentMemoryContext), args, as_of);
	}
	sweep_sql_end_call();
	PG_RETURN_INT32(count);
}

static int32
divide(char *job, Datum args, Datum as_of)
{
	Oid			types[] = {INT4OID, JSONBOID, TIMESTAMPTZOID};
	Datum		values[] = {CStringGetTextDatum(job), args, ObjectIdGetDatum(GetUserId())};
	Datum		kept[] = {values[0], (Datum) 0, (Datum) 0, (Datum) 0};
	char		nulls[] = "    ";
	SweepPlan  *query;

	(void) sweep_sql_execute(&division_sql, values, NULL);
	kept[1] = sweep_sql_copy(1, CurrentMemoryContext);
	/* Texts of the user in the query have as_of as $3, as in the statements of a batch. */
	query = sweep_sql_prepare(sweep_sql_text(2, CurrentMemoryContext), lengthof(types), types, PLANNED_EACH_TIME);
	(void) sweep_sql_execute_plan(query, (Datum[]) {(Datum) 0, (Datum) 0, as_of}, "nn ");
	for (int i = 2; i < (int) lengthof(kept); i++)
	{
		kept[i] = sweep_sql_copy(i - 1, CurrentMemoryContext);
		nulls[i] = sweep_sql_is_null(i - 1) ? 'n' : ' ';
	}
	sweep_sql_free_plan(query);
	(void) sweep_sql_execute(&keep_ranges_sql, kept, nulls);
	return sweep_sql_int32(1);
}
