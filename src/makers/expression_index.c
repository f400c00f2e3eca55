/*
 * expression_index.c
 *		Finds the index that begins with an expression of a user.
 *
 * Called by SQL when the age of a retention is an expression, when its job is created and at the start of each run. Two texts are taken for the
 * same if PostgreSQL simplifies them to the same expression, as its planner does to find an index. The name of a column in quotes is an expression, too.
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

static bool begins_with(Oid index, const Node *expression);

PG_FUNCTION_INFO_V1(sweep_expression_index);

/* SQL: sweep._expression_index(role oid, relation regclass, expression text, settings jsonb) RETURNS oid */
Datum
sweep_expression_index(PG_FUNCTION_ARGS)
{
	Oid			table = PG_GETARG_OID(1);
	char	   *source = psprintf("SELECT (%s\n) FROM %s", text_to_cstring(PG_GETARG_TEXT_PP(2)),
								  quote_qualified_identifier(get_namespace_name(get_rel_namespace(table)), get_rel_name(table)));
	RawStmt    *raw;
	Query	   *query;
	Node	   *expression;
	SweepDoor	door;
	Relation	relation;
	Oid			found = InvalidOid;
	const ListCell *cell;

	if (!sweep_job_statement_parse(source, &raw))
		PG_RETURN_NULL();
	query = sweep_job_statement_analyse(PG_GETARG_OID(0), source, PG_GETARG_JSONB_P(3), raw, false);
	/* As the role of the job: simplifying the expression calls IMMUTABLE functions in it. */
	sweep_job_statement_enter(&door, PG_GETARG_OID(0), PG_GETARG_JSONB_P(3));
	expression = eval_const_expressions(NULL, (Node *) linitial_node(TargetEntry, query->targetList)->expr);
	fix_opfuncids(expression);
	relation = table_open(table, AccessShareLock);
	foreach(cell, RelationGetIndexList(relation))
	{
		if (!OidIsValid(found) && begins_with(lfirst_oid(cell), expression))
			found = lfirst_oid(cell);
	}
	table_close(relation, NoLock);
	sweep_door_leave(&door);
	if (!OidIsValid(found))
		PG_RETURN_NULL();
	PG_RETURN_OID(found);
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
