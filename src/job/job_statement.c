/*
 * job_statement.c
 *		Parses, checks and analyses the statements of a job.
 *
 * Called when a job is created or changed, for the checks that cannot be made in SQL: batch_sql must be one statement, and the statements
 * of sql must be executable in the background. engine/script.c checks the statements of sql again when it executes them. Also called for
 * statements that makers build from a text.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "nodes/nodeFuncs.h"
#include "parser/analyze.h"
#include "parser/scansup.h"
#include "rewrite/rewriteHandler.h"
#include "utils/builtins.h"
#include "utils/guc.h"

#include "base/compat_query.h"
#include "base/extension.h"
#include "job/job_statement.h"

/* The position of a user's text within the parsed text. */
typedef struct Place
{
	const char *text;
	int			offset;
} Place;

/* The hint for a batch_sql that is not the statement of a batch. */
#define EXECUTED_ONCE "What is to be executed once per run is the sql of a job: sweep.create_job(name, schedule, sql)."

static void refuse_statement(const char *source, const RawStmt *statement);
static void follow_block(const RawStmt *statement, const RawStmt **block);
static int	place_of(const char *source, const RawStmt *statement);
static bool changes_rows(const Node *statement);
static bool uses_batch_size(Node *node, void *context);
static void place_error(void *arg);

PG_FUNCTION_INFO_V1(sweep_definition_check_sql);
PG_FUNCTION_INFO_V1(sweep_definition_check_batch_sql);

/* SQL: sweep._check_sql(sql text) RETURNS void. No names are looked up, so this executes no code of users. */
Datum
sweep_definition_check_sql(PG_FUNCTION_ARGS)
{
	(void) sweep_job_statement_parse_all(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	PG_RETURN_VOID();
}

List *
sweep_job_statement_parse_all(const char *source)
{
	ErrorContextCallback callback = {error_context_stack, place_error, &(Place) {source, 0}};
	List	   *statements;
	const RawStmt *block = NULL;
	ListCell   *cell;

	error_context_stack = &callback;
	statements = sweep_job_statement_parse_part(source, RAW_PARSE_DEFAULT, source, 0);
	if (statements == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("sql \"%s\" has no statement", source),
				 errhint("Write one or more statements, separated by semicolons.")));
	foreach(cell, statements)
	{
		refuse_statement(source, lfirst_node(RawStmt, cell));
		follow_block(lfirst_node(RawStmt, cell), &block);
	}
	if (block != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("sql ends within a transaction block"),
				 errhint("COMMIT is missing: without it nothing of the block would stay."),
				 errposition(place_of(source, block))));
	error_context_stack = callback.previous;
	return statements;
}

/* Refuses statements that need a client. */
static void
refuse_statement(const char *source, const RawStmt *statement)
{
	const char *refused = NULL;

	if (IsA(statement->stmt, CopyStmt) && castNode(CopyStmt, statement->stmt)->filename == NULL)
		refused = castNode(CopyStmt, statement->stmt)->is_from ? "COPY FROM STDIN" : "COPY TO STDOUT";
	if (IsA(statement->stmt, ListenStmt))
		refused = "LISTEN";
	if (refused != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("%s is not possible in the sql of a job", refused),
				 errdetail("It is executed in the background, where there is no client."),
				 IsA(statement->stmt, ListenStmt) ? 0 : errhint("COPY with a file or PROGRAM of the server, or INSERT, can be used."),
				 errposition(place_of(source, statement))));
}

/* Sets *block to the statement that has begun the present transaction block, NULL outside of one. Only transaction statements change it. */
static void
follow_block(const RawStmt *statement, const RawStmt **block)
{
	const TransactionStmt *control;

	if (!IsA(statement->stmt, TransactionStmt))
		return;
	control = castNode(TransactionStmt, statement->stmt);
	if (control->kind == TRANS_STMT_BEGIN || control->kind == TRANS_STMT_START)
		*block = *block != NULL ? *block : statement;
	else if (control->kind == TRANS_STMT_COMMIT || control->kind == TRANS_STMT_ROLLBACK)
		*block = control->chain && *block != NULL ? statement : NULL;
	else if (control->kind == TRANS_STMT_PREPARE)
		*block = NULL;
}

/* The position of a statement for errposition(): counted in characters from 1, after leading white space. */
static int
place_of(const char *source, const RawStmt *statement)
{
	int			start = sweep_job_statement_start(source, statement);

	return pg_mbstrlen_with_len(source, start) + 1;
}

int
sweep_job_statement_start(const char *source, const RawStmt *statement)
{
	int			start = statement->stmt_location;

	while (scanner_isspace(source[start]))
		start++;
	return start;
}

/* SQL: sweep._check_batch_sql(role oid, batch_sql text, settings jsonb) RETURNS void */
Datum
sweep_definition_check_batch_sql(PG_FUNCTION_ARGS)
{
	Oid			role = PG_GETARG_OID(0);
	char	   *source = text_to_cstring(PG_GETARG_TEXT_PP(1));
	RawStmt    *raw;

	sweep_extension_require(sweep_extension_find());
	if (!sweep_job_statement_parse(source, &raw) ||
		!(IsA(raw->stmt, SelectStmt) || IsA(raw->stmt, InsertStmt) || IsA(raw->stmt, UpdateStmt) ||
		  IsA(raw->stmt, DeleteStmt) || IsA(raw->stmt, MergeStmt)))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("batch_sql \"%s\" is not a single INSERT, UPDATE, DELETE or MERGE", source),
				 errhint("Its row count is the progress of a batch. " EXECUTED_ONCE)));
	if (!changes_rows(raw->stmt))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("batch_sql \"%s\" is a plain SELECT", source),
				 errdetail("It would be executed again and again: its row count does not say that something is done."),
				 errhint(EXECUTED_ONCE)));
	if (!uses_batch_size(raw->stmt, NULL))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("batch_sql \"%s\" does not use $1, the batch size", source),
				 errhint("It is executed again and again, each time for one batch: limit it by $1, for example "
						 "WHERE id IN (SELECT id FROM ... LIMIT $1). " EXECUTED_ONCE)));
	(void) sweep_job_statement_analyse(role, source, PG_GETARG_JSONB_P(2), raw, true);
	PG_RETURN_VOID();
}

/* A SELECT may change rows in its WITH, which PostgreSQL allows at the top level only. */
static bool
changes_rows(const Node *statement)
{
	const WithClause *with;
	const ListCell *cell;

	if (!IsA(statement, SelectStmt))
		return true;
	with = castNode(SelectStmt, unconstify(Node *, statement))->withClause;
	foreach(cell, with != NULL ? with->ctes : NIL)
	{
		if (!IsA(lfirst_node(CommonTableExpr, cell)->ctequery, SelectStmt))
			return true;
	}
	return false;
}

/* Checks the text as written: queries that a rule or a view adds have no parameters. */
static bool
uses_batch_size(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, ParamRef))
		return castNode(ParamRef, node)->number == 1;
	return raw_expression_tree_walker(node, uses_batch_size, context);
}

bool
sweep_job_statement_parse(const char *source, RawStmt **raw)
{
	List	   *statements = sweep_job_statement_parse_part(source, RAW_PARSE_DEFAULT, source, 0);

	*raw = statements != NIL ? linitial_node(RawStmt, statements) : NULL;
	return list_length(statements) == 1;
}

/* Parses as if standard_conforming_strings were on, so that a text always has the same statements. */
List *
sweep_job_statement_parse_part(const char *text, RawParseMode mode, const char *part, int offset)
{
	ErrorContextCallback callback = {error_context_stack, place_error, &(Place) {part, offset}};
	int			nest_level = sweep_door_enter_literals();
	List	   *parsed;

	error_context_stack = &callback;
	parsed = raw_parser(text, mode);
	error_context_stack = callback.previous;
	sweep_door_leave_literals(nest_level);
	return parsed;
}

bool
sweep_job_statement_has_parameter(Node *node, void *context)
{
	return node != NULL && (IsA(node, ParamRef) || raw_expression_tree_walker(node, sweep_job_statement_has_parameter, context));
}

/*
 * Names and literals have the same meaning as in a run. Analysis and planning may execute code of users, for example the constraint of a
 * domain, and are called within a function of the owner of the extension, which goes on afterwards: see door.c.
 */
void
sweep_job_statement_enter(SweepDoor *door, Oid role, Jsonb *settings)
{
	JsonbIterator *iterator = JsonbIteratorInit(&settings->root);
	JsonbIteratorToken token;
	JsonbValue	key;
	JsonbValue	value;

	sweep_extension_require(sweep_extension_lock());
	sweep_door_enter_user(door, role);
	while ((token = JsonbIteratorNext(&iterator, &key, true)) != WJB_DONE)
	{
		char	   *name;
		char	   *text;

		if (token != WJB_KEY)
			continue;
		(void) JsonbIteratorNext(&iterator, &value, true);
		name = pnstrdup(key.val.string.val, key.val.string.len);
		text = pnstrdup(value.val.string.val, value.val.string.len);
		/* A worker has no temporary objects, so pg_temp comes last in this session, too. */
		if (strcmp(name, "search_path") == 0)
			text = psprintf("%s%spg_temp", text, text[0] != '\0' ? ", " : "");
		(void) set_config_option(name, text, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	}
}

Query *
sweep_job_statement_analyse(Oid role, const char *source, Jsonb *settings, RawStmt *raw, bool has_size)
{
	ErrorContextCallback callback = {NULL, place_error, &(Place) {source, 0}};
	SweepDoor	door;
	Oid			types[2];
	int			first = has_size ? 0 : 1;
	Query	   *query;

	sweep_job_statement_enter(&door, role, settings);
	types[0] = INT4OID;
	types[1] = sweep_extension()->batch_type;
	callback.previous = error_context_stack;
	error_context_stack = &callback;
	query = parse_analyze_fixedparams(raw, source, types + first, 2 - first, NULL);
	/* Raises the errors that PostgreSQL raises only before execution: for rules, and values of generated columns. */
	if (has_size)
		(void) QueryRewrite(copyObject(query));
	sweep_door_leave(&door);
	return query;
}

/* Sets the position of a syntax error to that in the user's text, instead of that in the statement which creates the job or contains the text. */
static void
place_error(void *arg)
{
	const Place *place = arg;
	int			position = geterrposition() - place->offset;

	if (geterrposition() <= 0)
		return;
	errposition(0);
	internalerrposition(Max(1, Min(position, (int) strlen(place->text) + 1)));
	internalerrquery(place->text);
}
