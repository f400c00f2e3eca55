/*
 * key_cost.c
 *		The planner's estimate of the cost of reading the rows of a condition in the order of an index.
 *
 * Called by SQL when a job is created, to choose the index for its batches.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "fmgr.h"
#include "funcapi.h"
#include "nodes/makefuncs.h"
#include "nodes/plannodes.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/guc.h"

#include "base/compat_query.h"
#include "job/job_statement.h"

static const PlannedStmt *make_plan(const char *source);
static bool sorts(const Plan *plan);
static bool filters(const Plan *plan);
static bool has_keys(const Query *query);
static bool is_never_null(const Query *query, const Var *column);

PG_FUNCTION_INFO_V1(sweep_key_cost);

/*
 * SQL: sweep._key_cost(role oid, statement text, settings jsonb, OUT cost float8, OUT filters boolean); the statement is SELECT columns
 * FROM table WHERE condition ORDER BY columns
 */
Datum
sweep_key_cost(PG_FUNCTION_ARGS)
{
	const PlannedStmt *plan;
	SweepDoor	door;
	TupleDesc	desc;
	Datum		values[2] = {0};
	bool		nulls[2] = {true, true};

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	sweep_job_statement_enter(&door, PG_GETARG_OID(0), PG_GETARG_JSONB_P(2));
	plan = make_plan(text_to_cstring(PG_GETARG_TEXT_PP(1)));
	sweep_door_leave(&door);
	/* A plan that has to sort does not go by the index. */
	if (plan != NULL && !sorts(plan->planTree))
	{
		values[0] = Float8GetDatum(plan->planTree->total_cost);
		values[1] = BoolGetDatum(filters(plan->planTree));
		nulls[0] = nulls[1] = false;
	}
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls));
}

/* Allows only index scans; NULL when no index has all rows. A plan that has to sort does not use the order of the index. The door undoes the settings. */
static const PlannedStmt *
make_plan(const char *source)
{
	static const char *const off[] = {"enable_seqscan", "enable_bitmapscan", "enable_sort", "enable_incremental_sort", "max_parallel_workers_per_gather"};
	static const char *const on[] = {"enable_indexscan", "enable_indexonlyscan"};
	RawStmt    *raw;
	Query	   *query;

	if (!sweep_job_statement_parse(source, &raw))
		elog(ERROR, "\"%s\" is not one statement", source);
	query = linitial_node(Query, pg_analyze_and_rewrite_fixedparams(raw, source, NULL, 0, NULL));
	if (!has_keys(query))
		return NULL;
	for (int i = 0; i < (int) lengthof(off); i++)
		(void) set_config_option(off[i], "0", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	for (int i = 0; i < (int) lengthof(on); i++)
		(void) set_config_option(on[i], "1", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	return sweep_plan_query(query, source);
}

static const List *
parts_of(const Plan *plan)
{
	return IsA(plan, MergeAppend) ? ((const MergeAppend *) plan)->mergeplans : IsA(plan, Append) ? ((const Append *) plan)->appendplans : NIL;
}

/* Read from the plan, because the cost does not show it: that of a large table may be as high as the penalty for a disabled node. */
static bool
sorts(const Plan *plan)
{
	const ListCell *cell;

	if (IsA(plan, Sort) || IsA(plan, IncrementalSort))
		return true;
	foreach(cell, parts_of(plan))
	{
		if (sorts(lfirst(cell)))
			return true;
	}
	return plan->lefttree != NULL && sorts(plan->lefttree);
}

/* Whether a plan of index scans, on partitions or on one table, reads more rows than it returns. */
static bool
filters(const Plan *plan)
{
	const List *parts = parts_of(plan);
	const ListCell *cell;

	if (parts == NIL)
		return plan->qual != NIL || !(IsA(plan, IndexScan) || IsA(plan, IndexOnlyScan));
	foreach(cell, parts)
	{
		if (filters(lfirst(cell)))
			return true;
	}
	return false;
}

/* Whether all rows that meet the condition have no null in a column of the order; a row with a null is in no range. */
static bool
has_keys(const Query *query)
{
	ListCell   *cell;

	foreach(cell, query->sortClause)
	{
		const SortGroupClause *clause = lfirst(cell);
		const Node *column = get_sortgroupclause_expr(unconstify(SortGroupClause *, clause), query->targetList);

		if (!IsA(column, Var) || !is_never_null(query, (const Var *) column))
			return false;
	}
	return true;
}

static bool
is_never_null(const Query *query, const Var *column)
{
	NullTest   *test = makeNode(NullTest);
	Node	   *condition;

	if (sweep_column_never_null(rt_fetch(column->varno, query->rtable)->relid, column->varattno))
		return true;
	if (query->jointree->quals == NULL)
		return false;
	test->arg = (Expr *) copyObject(unconstify(Var *, column));
	test->nulltesttype = IS_NOT_NULL;
	condition = eval_const_expressions(NULL, copyObject(query->jointree->quals));
	condition = (Node *) canonicalize_qual((Expr *) condition, false);
	return predicate_implied_by(list_make1(test), make_ands_implicit((Expr *) condition), false);
}
