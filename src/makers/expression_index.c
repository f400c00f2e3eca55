/*
 * expression_index.c
 *		The index that begins with an expression of a user.
 *
 * Called by SQL when a retention goes by an expression, for its job and at the start of each run. Two texts mean the same when PostgreSQL makes
 * the same expression of them, as its planner does when it looks for an index. The name of a column is one, too, in quotes for example.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "fmgr.h"
#include "nodes/nodeFuncs.h"
#include "nodes/parsenodes.h"
#include "optimizer/optimizer.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/relcache.h"

#include "job/job_statement.h"

typedef struct Search
{
	Oid			relation;
	Node	   *expression;
	Oid			index;			/* InvalidOid = none */
} Search;

static void find_work(void *arg);
static bool begins_with(Oid index, const Node *expression);

PG_FUNCTION_INFO_V1(sweep_expression_index);

/* SQL: sweep._expression_index(role oid, relation regclass, expression text, settings jsonb) RETURNS oid */
Datum
sweep_expression_index(PG_FUNCTION_ARGS)
{
	Search		search = {.relation = PG_GETARG_OID(1)};
	char	   *source = psprintf("SELECT (%s\n) FROM %s", text_to_cstring(PG_GETARG_TEXT_PP(2)),
								  quote_qualified_identifier(get_namespace_name(get_rel_namespace(search.relation)), get_rel_name(search.relation)));
	RawStmt    *raw;
	Query	   *query;

	if (!sweep_job_statement_parse(source, &raw))
		PG_RETURN_NULL();
	query = sweep_job_statement_analyse(PG_GETARG_OID(0), source, PG_GETARG_JSONB_P(3), raw, false);
	search.expression = (Node *) linitial_node(TargetEntry, query->targetList)->expr;
	sweep_job_statement_visit(PG_GETARG_OID(0), PG_GETARG_JSONB_P(3), find_work, &search);
	if (!OidIsValid(search.index))
		PG_RETURN_NULL();
	PG_RETURN_OID(search.index);
}

/* As the role: to simplify the expression is to call what is IMMUTABLE in it. */
static void
find_work(void *arg)
{
	Search	   *search = arg;
	Node	   *expression = eval_const_expressions(NULL, search->expression);
	Relation	relation = table_open(search->relation, AccessShareLock);
	const ListCell *cell;

	fix_opfuncids(expression);
	foreach(cell, RelationGetIndexList(relation))
	{
		if (!OidIsValid(search->index) && begins_with(lfirst_oid(cell), expression))
			search->index = lfirst_oid(cell);
	}
	table_close(relation, NoLock);
}

static bool
begins_with(Oid oid, const Node *expression)
{
	Relation	index = index_open(oid, AccessShareLock);
	AttrNumber	column = index->rd_index->indkey.values[0];
	bool		begins = column == 0 ? equal(linitial(RelationGetIndexExpressions(index)), expression) :
		IsA(expression, Var) && ((const Var *) expression)->varattno == column;

	begins = begins && index->rd_index->indisvalid;

	index_close(index, NoLock);
	return begins;
}
