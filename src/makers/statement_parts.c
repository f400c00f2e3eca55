/*
 * statement_parts.c
 *		Writes the parts of a DELETE or UPDATE as texts, from which the statements of batches are generated.
 *
 * Called by batched.c with the analysed query. PostgreSQL writes the texts, with schemas of names, types of literals and time zones. A part
 * is the difference between the text of the query and the text of the same query without that part. Thus keywords are not searched for in
 * text that a user has written. The alias of the changed table is its own name, as in the other statements of a batch.
 */
#include "postgres.h"

#include "catalog/catalog.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parse_coerce.h"
#include "parser/parsetree.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/ruleutils.h"

#include "base/compat_query.h"
#include "makers/statement_parts.h"

/* Parameter of the statements of a batch: as_of. */
#define AS_OF 3

/* The extent of a query that is written. */
typedef enum Extent
{
	TARGET,						/* the text before SET and USING */
	WITHOUT_SET,
	WITHOUT_CONDITION,
	WHOLE
} Extent;

static char *deparse(const Query *query, Node *quals, Extent extent);
static void check_target(const Query *query, const char *text);
static void refuse_form(void);
static const char *behind(const char *prefix, const char *text, const char *word);
static const char *before(const char *text, const char *end);
static Node *substitute(Node *node, void *context);
static Node *freeze_clock(Node *node, void *context);
static Node *frozen(const SQLValueFunction *function);

/* The whole statement keeps now(), as it is stored; in the parts it is a parameter. */
void
sweep_statement_write(Query *analysed, bool freezes, SweepStatementTexts *texts)
{
	const Query *query = freezes ? query_tree_mutator(analysed, freeze_clock, NULL, 0) : analysed;
	bool		is_update = query->commandType == CMD_UPDATE;
	char	   *without_condition = deparse(query, NULL, WITHOUT_CONDITION);
	char	   *target = deparse(query, NULL, TARGET);
	const char *source = behind(target, deparse(query, NULL, WITHOUT_SET), "");
	List	   *own = NIL;
	List	   *others = NIL;
	ListCell   *cell;

	check_target(query, target);
	foreach(cell, make_ands_implicit((Expr *) query->jointree->quals))
	{
		if (bms_nonempty_difference(pull_varnos_of_level(NULL, lfirst(cell), 0), bms_make_singleton(query->resultRelation)))
			others = lappend(others, lfirst(cell));
		else
			own = lappend(own, lfirst(cell));
	}
	texts->written = behind("", deparse(analysed, analysed->jointree->quals, WHOLE), "");
	texts->own = own == NIL ? NULL : behind(without_condition, deparse(query, (Node *) make_ands_explicit(own), WHOLE), "WHERE");
	texts->others = others == NIL ? NULL : behind(without_condition, deparse(query, (Node *) make_ands_explicit(others), WHOLE), "WHERE");
	texts->set = is_update ? before(behind(target, without_condition, ""), source) : NULL;
	texts->source = source == NULL ? NULL : behind(is_update ? "FROM" : "USING", source, "");
}

/* Refuses a clause between the table and SET, which a newer server version may have, since no part would contain it. */
static void
check_target(const Query *query, const char *text)
{
	Oid			relation = rt_fetch(query->resultRelation, query->rtable)->relid;
	Oid			schema = get_rel_namespace(relation);
	const char *name;

	/* Tables of these schemas are written without schema, and are refused elsewhere. */
	if (IsCatalogNamespace(schema) || isAnyTempNamespace(schema))
		return;
	name = quote_qualified_identifier(get_namespace_name(schema), get_rel_name(relation));
	name = psprintf(query->commandType == CMD_UPDATE ? "UPDATE %s SET" : "DELETE FROM %s", name);
	if (behind(name, text + strspn(text, " "), "") != NULL)
		refuse_form();
}

static void
refuse_form(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("the statement has a clause that is not possible in batches"),
			 errhint("Write DELETE FROM ... USING ... WHERE ... or UPDATE ... SET ... FROM ... WHERE ...")));
}

/* FROM is left out with the range table, which also describes the columns of joins. */
static char *
deparse(const Query *query, Node *quals, Extent extent)
{
	Query	   *copy = copyObject(unconstify(Query *, query));

	copy->jointree->quals = copyObject(quals);
	if (extent < WITHOUT_CONDITION)
		copy->targetList = NIL;
	if (extent < WITHOUT_SET)
	{
		copy->rtable = list_make1(rt_fetch(copy->resultRelation, copy->rtable));
		copy->resultRelation = 1;
		copy->jointree->fromlist = NIL;
	}
	return pg_get_querydef(copy, false);
}

/* The text after a prefix and a keyword; NULL when there is none. White space before a clause may differ. */
static const char *
behind(const char *prefix, const char *text, const char *word)
{
	size_t		length = strlen(prefix);

	while (length > 0 && prefix[length - 1] == ' ')
		length--;
	if (strncmp(text, prefix, length) != 0)
		refuse_form();
	text += length;
	text += strspn(text, " \n");
	if (*text == '\0')
		return NULL;
	if (strncmp(text, word, strlen(word)) != 0)
		refuse_form();
	text += strlen(word);
	return text + strspn(text, " \n");
}

/* The text without the given end and the white space before it. */
static const char *
before(const char *text, const char *end)
{
	size_t		length = strlen(text) - (end != NULL ? strlen(end) : 0);

	if (end != NULL && strcmp(text + length, end) != 0)
		refuse_form();
	while (length > 0 && strchr(" \n", text[length - 1]) != NULL)
		length--;
	return pnstrdup(text, length);
}

bool
sweep_statement_falsifies(const Query *query)
{
	Node	   *condition;
	Bitmapset  *columns = NULL;
	ListCell   *cell;

	if (query->commandType != CMD_UPDATE || query->jointree->quals == NULL)
		return false;
	foreach(cell, query->targetList)
	{
		const TargetEntry *entry = lfirst_node(TargetEntry, cell);

		/* The column is set twice: elements of an array, or fields of a composite. */
		if (!entry->resjunk && bms_is_member(entry->resno, columns))
			return false;
		columns = bms_add_member(columns, entry->resno);
	}
	condition = substitute(copyObject(query->jointree->quals), unconstify(Query *, query));
	condition = (Node *) canonicalize_qual((Expr *) eval_const_expressions(NULL, condition), false);
	return condition != NULL && IsA(condition, Const) && (castNode(Const, condition)->constisnull || !DatumGetBool(castNode(Const, condition)->constvalue));
}

/* Sub-selects are not changed: they do not become constants anyway. */
static Node *
substitute(Node *node, void *context)
{
	Query	   *query = context;

	if (node == NULL || IsA(node, Query))
		return node;
	if (IsA(node, Var) && castNode(Var, node)->varno == query->resultRelation && castNode(Var, node)->varlevelsup == 0)
	{
		ListCell   *cell;

		foreach(cell, query->targetList)
		{
			const TargetEntry *entry = lfirst_node(TargetEntry, cell);

			if (!entry->resjunk && entry->resno == castNode(Var, node)->varattno)
				return (Node *) copyObject(entry->expr);
		}
		return node;
	}
	return expression_tree_mutator(node, substitute, context);
}

static Node *
freeze_clock(Node *node, void *context)
{
	if (node == NULL)
		return NULL;
	if (IsA(node, Query))
		return (Node *) query_tree_mutator(castNode(Query, node), freeze_clock, context, 0);
	if (IsA(node, SQLValueFunction))
		return frozen(castNode(SQLValueFunction, node));
	if (IsA(node, FuncExpr))
	{
		Oid			function = castNode(FuncExpr, node)->funcid;

		if (function == F_NOW || function == F_TRANSACTION_TIMESTAMP || function == F_STATEMENT_TIMESTAMP)
			return frozen(&(SQLValueFunction) {.type = TIMESTAMPTZOID, .typmod = -1});
		/* With one argument, to the beginning of the day. */
		if (function == F_AGE_TIMESTAMPTZ || function == F_AGE_TIMESTAMP)
		{
			Oid			type = function == F_AGE_TIMESTAMPTZ ? TIMESTAMPTZOID : TIMESTAMPOID;
			Node	   *today = coerce_to_target_type(NULL, frozen(&(SQLValueFunction) {.type = DATEOID, .typmod = -1}), DATEOID, type, -1, COERCION_EXPLICIT, COERCE_EXPLICIT_CAST, -1);

			return (Node *) makeFuncExpr(type == TIMESTAMPTZOID ? F_AGE_TIMESTAMPTZ_TIMESTAMPTZ : F_AGE_TIMESTAMP_TIMESTAMP, INTERVALOID,
										 list_make2(today, freeze_clock(linitial(castNode(FuncExpr, node)->args), context)), InvalidOid, InvalidOid, COERCE_EXPLICIT_CALL);
		}
	}
	return expression_tree_mutator(node, freeze_clock, context);
}

/* current_user and other names stay the same during a run. */
static Node *
frozen(const SQLValueFunction *function)
{
	Param	   *as_of = makeNode(Param);

	if (function->type == NAMEOID)
		return (Node *) copyObject(unconstify(SQLValueFunction *, function));
	as_of->paramkind = PARAM_EXTERN;
	as_of->paramid = AS_OF;
	as_of->paramtype = TIMESTAMPTZOID;
	as_of->paramtypmod = -1;
	as_of->location = -1;
	return coerce_to_target_type(NULL, (Node *) as_of, TIMESTAMPTZOID, function->type, function->typmod, COERCION_EXPLICIT, COERCE_EXPLICIT_CAST, -1);
}
