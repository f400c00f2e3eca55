/*
 * fragment.c
 *		Checks that a text of a user is a whole part of a statement: a condition, or assignments.
 *
 * Called by the makers, and each time the statements of their jobs are generated. Parentheses around a text do not make it one
 * expression: "a) OR (b" or "a; DROP TABLE b". The text is therefore parsed alone. If it is a whole expression alone, it is also
 * one between parentheses, provided that the closing one is on a line of its own (after a comment). Only the parser reads the
 * text: no name is looked up, and no code of a user is executed.
 */
#include "postgres.h"

#include "catalog/objectaddress.h"
#include "fmgr.h"
#include "nodes/parsenodes.h"
#include "parser/parser.h"
#include "utils/array.h"
#include "utils/builtins.h"

#include "job/job_statement.h"

/* Text before and after assignments, which makes a WHERE, FROM or RETURNING in them a syntax error. */
#define SET_BEFORE "UPDATE t SET "
#define SET_AFTER "\nFROM f WHERE true RETURNING 1"

static bool is_expression(const SelectStmt *statement);

PG_FUNCTION_INFO_V1(sweep_fragment_check_condition);
PG_FUNCTION_INFO_V1(sweep_fragment_set_columns);

/* SQL: sweep._check_condition(condition text) RETURNS void: raises unless it is one expression without parameters */
Datum
sweep_fragment_check_condition(PG_FUNCTION_ARGS)
{
	char	   *condition = text_to_cstring(PG_GETARG_TEXT_PP(0));
	List	   *parsed = sweep_job_statement_parse_part(condition, RAW_PARSE_PLPGSQL_EXPR, condition, 0);
	Node	   *statement = linitial_node(RawStmt, parsed)->stmt;

	if (!IsA(statement, SelectStmt) || !is_expression(castNode(SelectStmt, statement)) || sweep_job_statement_has_parameter(statement, NULL))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("condition \"%s\" is not a single expression", condition),
				 errhint("Write what could stand alone behind WHERE, without parameters, for example: state = 'done'.")));
	PG_RETURN_VOID();
}

/* SQL: sweep._set_columns(assignments text) RETURNS text[]: the columns that are set; raises unless the text can stand after SET */
Datum
sweep_fragment_set_columns(PG_FUNCTION_ARGS)
{
	char	   *assignments = text_to_cstring(PG_GETARG_TEXT_PP(0));
	List	   *parsed = sweep_job_statement_parse_part(psprintf(SET_BEFORE "%s" SET_AFTER, assignments), RAW_PARSE_DEFAULT, assignments, strlen(SET_BEFORE));
	Node	   *statement = linitial_node(RawStmt, parsed)->stmt;
	List	   *columns = NIL;
	ListCell   *cell;

	if (list_length(parsed) != 1 || !IsA(statement, UpdateStmt) || sweep_job_statement_has_parameter(statement, NULL))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"%s\" is not what can stand behind SET", assignments),
				 errhint("Write columns and their values without parameters, for example: total = price * quantity.")));
	foreach(cell, castNode(UpdateStmt, statement)->targetList)
		columns = lappend(columns, lfirst_node(ResTarget, cell)->name);
	PG_RETURN_ARRAYTYPE_P(strlist_to_textarray(columns));
}

/* The parser reads a PL/pgSQL expression as a SELECT without the word SELECT. */
static bool
is_expression(const SelectStmt *statement)
{
	const ResTarget *target;

	if (list_length(statement->targetList) != 1 || statement->op != SETOP_NONE || statement->distinctClause != NIL ||
		statement->intoClause != NULL || statement->fromClause != NIL || statement->whereClause != NULL ||
		statement->groupClause != NIL || statement->havingClause != NULL || statement->windowClause != NIL ||
		statement->valuesLists != NIL || statement->sortClause != NIL || statement->limitOffset != NULL ||
		statement->limitCount != NULL || statement->lockingClause != NIL || statement->withClause != NULL)
		return false;
	target = linitial_node(ResTarget, statement->targetList);
	return target->name == NULL && target->indirection == NIL;
}
