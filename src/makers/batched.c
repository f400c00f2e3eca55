/*
 * batched.c
 *		Reads a DELETE or UPDATE that is to be executed in batches, and refuses what can never be done in batches.
 *
 * Called by batched.sql when a job is created, and each time the statements of the job are generated, because its owner may have altered the
 * text. PostgreSQL analyses the statement, as the role of the job; statement_parts.c writes the parts of the result as texts.
 *
 * Analysis, constant folding and the output of values may execute code of users; all of it is therefore done through door.c.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_class.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "nodes/nodeFuncs.h"
#include "parser/parsetree.h"
#include "rewrite/rewriteHandler.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"

#include "base/compat_query.h"
#include "job/job_statement.h"
#include "makers/statement_parts.h"

/* Columns of the result. */
enum
{
	PART_WORD,
	PART_TARGET,
	PART_STATEMENT,
	PART_SET,
	PART_SOURCE,
	PART_OWN,
	PART_OTHERS,
	PART_SETS,
	PART_READS,
	PART_IS_LIMITED,
	PART_FALSIFIES,
	PART_COUNT
};

typedef struct Parts
{
	Oid			role;
	const char *source;
	Jsonb	   *settings;
	bool		freezes;		/* now() and the like become a parameter */
	RawStmt    *raw;
	Query	   *query;
	Datum		values[PART_COUNT];
	bool		nulls[PART_COUNT];
} Parts;

typedef struct Relations
{
	const RangeTblEntry *target;
	List	   *oids;			/* of the other tables */
	bool		is_limited;		/* a sub-select has a LIMIT */
	bool		is_sampled;		/* one of them has TABLESAMPLE */
} Relations;

static RawStmt *parse(const char *source);
static void refuse_command(const char *source, const Node *statement, bool is_one);
static void take_apart(Parts *parts);
static void refuse_clauses(const Query *query);
static void refuse_clause(const char *clause, const char *hint);
static bool find_of_session(Node *node, void *found);
static const char *name_of_session(Oid function);
static void refuse_volatile(const Query *query);
static bool find_volatile(Node *node, void *context);
static bool find_volatile_alone(Node *node, void *context);
static bool has_outer(Node *node, void *context);
static bool is_volatile(Oid function, void *context);
static void set_text(Parts *parts, int part, const char *text);
static Datum set_columns(const Query *query);
static Datum find_relations(const Query *query, Relations *relations);
static bool look_for_relation(Node *node, void *context);

PG_FUNCTION_INFO_V1(sweep_batched_parts);

/* SQL: sweep._batched_parts(role oid, statement text, settings jsonb, freezes boolean, OUT ...) */
Datum
sweep_batched_parts(PG_FUNCTION_ARGS)
{
	Parts		parts = {.role = PG_GETARG_OID(0), .source = text_to_cstring(PG_GETARG_TEXT_PP(1)), .settings = PG_GETARG_JSONB_P(2),
		.freezes = PG_GETARG_BOOL(3)};
	SweepDoor	door;
	TupleDesc	type;

	if (get_call_result_type(fcinfo, NULL, &type) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	parts.raw = parse(parts.source);
	sweep_door_enter_user(&door, parts.role);
	take_apart(&parts);
	sweep_door_leave(&door);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(type), parts.values, parts.nulls)));
}

static RawStmt *
parse(const char *source)
{
	RawStmt    *raw;
	bool		is_one = sweep_job_statement_parse(source, &raw);

	if (!is_one || !(IsA(raw->stmt, DeleteStmt) || IsA(raw->stmt, UpdateStmt)))
		refuse_command(source, raw != NULL ? raw->stmt : NULL, is_one);
	if (sweep_job_statement_has_parameter(raw->stmt, NULL))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_PARAMETER),
				 errmsg("the statement has parameters"),
				 errhint("Write the values themselves, for example with format('... WHERE id < %%L', value).")));
	if (!(IsA(raw->stmt, DeleteStmt) ? castNode(DeleteStmt, raw->stmt)->relation : castNode(UpdateStmt, raw->stmt)->relation)->inh)
		refuse_clause("ONLY", "Leave it out. A table from which others inherit cannot be gone through by an index.");
	return raw;
}

static void
refuse_command(const char *source, const Node *statement, bool is_one)
{
	const char *hint = "Write one DELETE FROM ... WHERE ... or UPDATE ... SET ... WHERE ...";

	if (statement != NULL && !is_one)
		hint = "Call sweep.batched for each statement. The next one may be begun when sweep.wait says that the one before has succeeded.";
	else if (statement != NULL && IsA(statement, InsertStmt))
		hint = "Rows are copied in batches by sweep.create_copy.";
	else if (statement != NULL && IsA(statement, MergeStmt))
		hint = "Write what it does as UPDATE ... FROM and DELETE ... USING, and call sweep.batched for each of them.";
	else if (statement != NULL && IsA(statement, TruncateStmt))
		hint = "TRUNCATE reads no rows: execute it by itself, or write DELETE FROM.";
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("\"%s\" is not a single DELETE or UPDATE", source),
			 errhint("%s", hint)));
}

static void
take_apart(Parts *parts)
{
	/* With these settings the text gives the same query when another session parses it. */
	static const char *const formats[][2] = {
		{"search_path", "pg_catalog, pg_temp"}, {"DateStyle", "ISO"}, {"IntervalStyle", "postgres"}, {"extra_float_digits", "3"},
	};
	RangeTblEntry *target;
	Relations	relations = {0};
	SweepStatementTexts texts;

	parts->query = sweep_job_statement_analyse(parts->role, parts->source, parts->settings, parts->raw, false);
	refuse_clauses(parts->query);
	refuse_volatile(parts->query);
	target = rt_fetch(parts->query->resultRelation, parts->query->rtable);
	/* Raises the errors that PostgreSQL raises only before execution. */
	if (target->relkind == RELKIND_RELATION || target->relkind == RELKIND_PARTITIONED_TABLE)
		(void) QueryRewrite(copyObject(parts->query));
	for (int i = 0; i < (int) lengthof(formats); i++)
		(void) set_config_option(formats[i][0], formats[i][1], PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	target->alias = NULL;
	relations.target = target;
	parts->values[PART_WORD] = CStringGetTextDatum(parts->query->commandType == CMD_DELETE ? "delete" : "update");
	parts->values[PART_TARGET] = ObjectIdGetDatum(target->relid);
	parts->values[PART_SETS] = set_columns(parts->query);
	parts->values[PART_READS] = find_relations(parts->query, &relations);
	if (relations.is_sampled)
		refuse_clause("TABLESAMPLE", "Each batch would see another sample: write one into a table first (CREATE TABLE ... AS SELECT ...).");
	parts->values[PART_IS_LIMITED] = BoolGetDatum(relations.is_limited);
	sweep_statement_write(parts->query, parts->freezes, &texts);
	set_text(parts, PART_STATEMENT, texts.written);
	set_text(parts, PART_SET, texts.set);
	set_text(parts, PART_SOURCE, texts.source);
	set_text(parts, PART_OWN, texts.own);
	set_text(parts, PART_OTHERS, texts.others);
	/* Last, because it executes functions of the statement, which may change settings. */
	parts->values[PART_FALSIFIES] = BoolGetDatum(sweep_statement_falsifies(parts->query));
}

static void
refuse_clauses(const Query *query)
{
	const char *of_session = NULL;

	if (query->returningList != NIL)
		refuse_clause("RETURNING", "Leave it out: there is nobody to return the rows to. The detail of the run says how many there were.");
	if (query->cteList != NIL)
		refuse_clause("WITH", "Write the query as a sub-select where its name is, or make a table of its result.");
	if (query->jointree->quals != NULL && IsA(query->jointree->quals, CurrentOfExpr))
		refuse_clause("WHERE CURRENT OF", "Write a condition. A cursor is of one session and ends with its transaction.");
	if (query_tree_walker(unconstify(Query *, query), find_of_session, &of_session, 0))
		refuse_clause(of_session, psprintf("Write the value itself, for example with format('... = %%L', %s). A job has a session of its own.", of_session));
}

/* Finds what has another value, or none, in the session of the job, so that other rows would meet the condition. */
static bool
find_of_session(Node *node, void *found)
{
	const char **name = found;

	if (node == NULL)
		return false;
	if (IsA(node, Query))
		return query_tree_walker(castNode(Query, node), find_of_session, found, 0);
	if (IsA(node, FuncExpr))
		*name = name_of_session(castNode(FuncExpr, node)->funcid);
	else if (IsA(node, SQLValueFunction) && castNode(SQLValueFunction, node)->op == SVFOP_SESSION_USER)
		*name = "session_user";
	else if (IsA(node, SQLValueFunction) && castNode(SQLValueFunction, node)->op == SVFOP_CURRENT_SCHEMA)
		*name = "current_schema";
	return *name != NULL || expression_tree_walker(node, find_of_session, found);
}

static const char *
name_of_session(Oid function)
{
	switch (function)
	{
		case F_CURRENT_SETTING_TEXT:
		case F_CURRENT_SETTING_TEXT_BOOL:
			return "current_setting(...)";
		case F_SESSION_USER:
			return "session_user";
		case F_CURRENT_SCHEMA:
		case F_CURRENT_SCHEMAS:
			return "current_schema";
		default:
			return NULL;
	}
}

static void
refuse_clause(const char *clause, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("%s is not possible in batches", clause),
			 errhint("%s", hint)));
}

/* In SET a volatile function is executed for each row, as in the whole statement, except in a sub-select that uses nothing of the row. */
static void
refuse_volatile(const Query *query)
{
	Oid			function = InvalidOid;

	if (expression_tree_walker((Node *) query->targetList, find_volatile_alone, &function))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("function %s is volatile, in a sub-select that is executed once: each batch would have a result of its own", format_procedure(function)),
				 errhint("Execute the function first and write its result, or write it without SELECT, if each row is to have another one.")));

	if (find_volatile((Node *) query->jointree, &function) || range_table_walker(query->rtable, find_volatile, &function, 0))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("function %s is volatile: a batch would not choose the rows that the statement would", format_procedure(function)),
				 errhint("Write now() for clock_timestamp(), execute the function first and write its result, or declare it STABLE "
						 "if it is. Only in SET may a function be volatile.")));
}

static bool
find_volatile(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (check_functions_in_node(node, is_volatile, context))
		return true;
	if (IsA(node, Query))
		return query_tree_walker(castNode(Query, node), find_volatile, context, 0);
	return expression_tree_walker(node, find_volatile, context);
}

static bool
find_volatile_alone(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Query))
		return (!has_outer(node, &(int) {0}) && find_volatile(node, context)) || query_tree_walker(castNode(Query, node), find_volatile_alone, context, 0);
	return expression_tree_walker(node, find_volatile_alone, context);
}

/* Whether a query uses columns of an outer query: then PostgreSQL executes it for each row. */
static bool
has_outer(Node *node, void *context)
{
	int		   *depth = context;
	bool		found;

	if (node == NULL)
		return false;
	if (IsA(node, Var))
		return (int) castNode(Var, node)->varlevelsup >= *depth;
	if (!IsA(node, Query))
		return expression_tree_walker(node, has_outer, context);
	(*depth)++;
	found = query_tree_walker(castNode(Query, node), has_outer, context, 0);
	(*depth)--;
	return found;
}

static bool
is_volatile(Oid function, void *context)
{
	Oid		   *found = context;

	*found = function;
	return func_volatile(function) == PROVOLATILE_VOLATILE;
}

static void
set_text(Parts *parts, int part, const char *text)
{
	parts->nulls[part] = text == NULL;
	if (text != NULL)
		parts->values[part] = CStringGetTextDatum(text);
}

static Datum
set_columns(const Query *query)
{
	Oid			relation = rt_fetch(query->resultRelation, query->rtable)->relid;
	ArrayBuildState *columns = initArrayResult(TEXTOID, CurrentMemoryContext, false);
	ListCell   *cell;

	foreach(cell, query->targetList)
	{
		const TargetEntry *entry = lfirst_node(TargetEntry, cell);

		if (!entry->resjunk)
			(void) accumArrayResult(columns, CStringGetTextDatum(get_attname(relation, entry->resno, false)), false, TEXTOID, CurrentMemoryContext);
	}
	return makeArrayResult(columns, CurrentMemoryContext);
}

static Datum
find_relations(const Query *query, Relations *relations)
{
	ArrayBuildState *oids = initArrayResult(OIDOID, CurrentMemoryContext, false);
	ListCell   *cell;

	(void) query_tree_walker(unconstify(Query *, query), look_for_relation, relations, QTW_EXAMINE_RTES_BEFORE);
	foreach(cell, relations->oids)
		(void) accumArrayResult(oids, ObjectIdGetDatum(lfirst_oid(cell)), false, OIDOID, CurrentMemoryContext);
	return makeArrayResult(oids, CurrentMemoryContext);
}

static bool
look_for_relation(Node *node, void *context)
{
	Relations  *relations = context;

	if (node == NULL)
		return false;
	if (IsA(node, RangeTblEntry))
	{
		const RangeTblEntry *entry = castNode(RangeTblEntry, node);

		if (entry->rtekind == RTE_RELATION && entry != relations->target)
			relations->oids = list_append_unique_oid(relations->oids, entry->relid);
		if (entry->tablesample != NULL)
			relations->is_sampled = true;
		return false;
	}
	if (IsA(node, Query))
	{
		if (castNode(Query, node)->limitCount != NULL)
			relations->is_limited = true;
		return query_tree_walker(castNode(Query, node), look_for_relation, context, QTW_EXAMINE_RTES_BEFORE);
	}
	return expression_tree_walker(node, look_for_relation, context);
}
