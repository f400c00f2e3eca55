/*
 * owner_plan.c
 *		Statements on one table that are executed as its owner.
 *
 * Called by reference.c, cascade.c and cascade_rows.c, inside the door, as the owner of a table. The statement names the table. When its plan
 * becomes invalid, the name is looked up again and may be another object by then: the owner of the schema can rename it, and create a schema of
 * the old name with a view in it, which would be executed as the owner of the table. The same is true of operators and casts of the key.
 *
 * Therefore the table is locked first, then the statement is analysed, and the result is checked. Nothing is executed or planned before
 * that, and while the locks are held, the plan does not become invalid again.
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_proc.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "storage/lmgr.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"

#include "base/role.h"
#include "makers/owner_plan.h"

typedef struct Search
{
	Oid			table;
	Oid			other;			/* a relation that is not the table; InvalidOid = none */
	Oid			function;		/* a function whose owner cannot become this role; InvalidOid = none */
} Search;

static void lock_table(Oid table, LOCKMODE lock, bool parts);
static void check(SweepPlan *plan, Oid table);
static bool find_strange(Node *node, void *search);
static bool is_strange(Oid function, void *search);

void
sweep_owner_plan(SweepPlan **plan, const char *text, int count, Oid *types, Oid table, LOCKMODE lock, bool anew)
{
	lock_table(table, lock, anew || *plan == NULL);
	while (*plan == NULL || !sweep_sql_is_valid(*plan))
	{
		SweepPlan  *old = *plan;
		SweepPlan  *made;

		*plan = NULL;
		sweep_sql_free_plan(old);
		made = sweep_sql_prepare(text, count, types, PLANNED_ONCE);
		check(made, table);
		*plan = made;
	}
}

static void
lock_table(Oid table, LOCKMODE lock, bool parts)
{
	LockRelationOid(table, lock);
	if (parts && get_rel_relkind(table) == RELKIND_PARTITIONED_TABLE)
		list_free(find_all_inheritors(table, lock, NULL));
	if (sweep_role_owning(RelationRelationId, table) != GetUserId())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the table with OID %u has been dropped, or given to another role", table),
				 errhint("Do it again.")));
}

/* The plan is freed before an error; otherwise it would stay in memory until the end of the session. */
static void
check(SweepPlan *plan, Oid table)
{
	Search		search = {.table = table};
	bool		found = false;
	ListCell   *cell;

	foreach(cell, sweep_sql_queries(plan))
	{
		const Query *query = lfirst_node(Query, cell);

		/* The actions of a rule were written by the owner of the table. */
		if (query->querySource != QSRC_ORIGINAL)
			continue;
		found = true;
		(void) find_strange(unconstify(Node *, (const Node *) query), &search);
	}
	if (found && !OidIsValid(search.other) && !OidIsValid(search.function))
		return;
	sweep_sql_free_plan(plan);
	if (OidIsValid(search.function))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("function %s would be executed as role \"%s\"", format_procedure(search.function), GetUserNameFromId(GetUserId(), false)),
				 errdetail("It compares keys of table \"%s\", which that role owns; the owner of the function could not become that role.", get_rel_name(table)),
				 errhint("Give the function to that role, or to a superuser.")));
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("table \"%s\" has another name than before, or a rule in its place", get_rel_name(table)),
			 errhint("Do it again.")));
}

/* If the name was a view, the view or its tables are in the rewritten query. */
static bool
find_strange(Node *node, void *context)
{
	Search	   *search = context;

	if (node == NULL)
		return false;
	if (check_functions_in_node(node, is_strange, search))
		return true;
	if (IsA(node, RangeTblEntry))
	{
		Oid			relation = castNode(RangeTblEntry, node)->relid;

		if (OidIsValid(relation) && relation != search->table)
			search->other = relation;
		return OidIsValid(search->other);
	}
	if (IsA(node, Query))
		return query_tree_walker(castNode(Query, node), find_strange, search, QTW_EXAMINE_RTES_BEFORE);
	return expression_tree_walker(node, find_strange, search);
}

static bool
is_strange(Oid function, void *context)
{
	Search	   *search = context;
	bool		strange = !sweep_role_can_become(sweep_role_owning(ProcedureRelationId, function), GetUserId());

	if (strange)
		search->function = function;
	return strange;
}
