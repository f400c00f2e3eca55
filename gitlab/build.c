/*
 * build.c
 *		The step of the jobs for GitLab's stuck builds, for a batch of one build. The module consists of this file and message.c.
 *
 * These jobs commit each build on its own. A step in PL/pgSQL prepares each of its expressions again in every transaction, which
 * took as long as the engine and the commit together. This file therefore updates a single build by a statement that is prepared
 * once, with the args of the job as constants. A batch of several builds, or a build that has changed since it was picked, is
 * left to sweep_gitlab.drop_stuck_builds_in_batch. ci_stuck_builds.sql describes the rules, and when a build is stuck.
 *
 * The module uses the SQL functions of pg_sweep, with the rights of the role of the job, and no symbol of its library, so that it
 * can be loaded before pg_sweep. This is its only file that uses SPI.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/value.h"
#include "parser/parse_func.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "base/compat.h"
#include "message.h"

PG_MODULE_MAGIC;

#define SCHEMA "sweep_gitlab"

/* Defined in schema.sql. The name is changed when this library no longer works with older objects. */
#define INTERFACE_TYPE "_interface_1"

/* The tables that say which builds wait for a runner, and which have one. */
static const char *const queue_tables[] = {"ci_pending_builds", "ci_running_builds"};

/* Parameters of the statement; the statements that delete from the tables above have only the first two. */
enum
{
	PARAM_ID,
	PARAM_PARTITION_ID,
	PARAM_LOCK_VERSION,
	PARAM_AT,
	PARAM_COUNT
};

/* The statement for the args of a job, and for the current table and extension. */
typedef struct Statement
{
	MemoryContext context;		/* has the members below; NULL = there is no statement */
	Jsonb	   *args;
	Oid			reason_type;	/* type of the column failure_reason; InvalidOid = there is no such column */
	Oid			queues[lengthof(queue_tables)]; /* InvalidOid = there is no such table */
	char	   *search_path;
	char	   *reason;			/* reason of the job, in the type of the column; NULL = none */
	char	   *stuck_in;		/* the status of stuck builds */
	SPIPlanPtr	plan;
	Oid			send;			/* sweep.send */
	SPIPlanPtr	leave[lengthof(queue_tables)];	/* deletes a build from that table; NULL = not needed yet */
} Statement;

static Statement statement;

/* Start of the transaction in which the statement is executed now, or was when an error was raised. */
static TimestampTz used_in = 0;

static void require_interface(void);
static Datum needed_attribute(HeapTupleHeader batch, const char *name);
static bool drop_build(const Jsonb *args, const Jsonb *item, TimestampTz as_of);
static void choose_statement(const Jsonb *args);
static void begin_statement(const Jsonb *args);
static bool is_as_prepared(const Jsonb *args);
static Oid	type_of_reason(const Jsonb *args);
static Oid	find_table(const Jsonb *args, const char *name);
static void prepare_statement(const Jsonb *args);
static SPIPlanPtr prepare(const char *text, int count, Oid *types);
static uint64 execute(SPIPlanPtr plan, Datum *values);
static int64 column(int number, bool *is_null);
static void leave_queues(const Jsonb *args, Datum *values);
static void free_plans(void);
static void log_build(const Jsonb *item, const char *runner);
static int64 drop_in_batch(const Jsonb *args, HeapTupleHeader batch);
static char *member(const Jsonb *object, const char *key);
static char *needed(const Jsonb *object, const char *key, bool is_args);
static char *table_name(const Jsonb *args);

PG_FUNCTION_INFO_V1(sweep_gitlab_drop_builds);

/* SQL: sweep_gitlab.drop_stuck_builds(b sweep.batch) RETURNS sweep.progress */
Datum
sweep_gitlab_drop_builds(PG_FUNCTION_ARGS)
{
	HeapTupleHeader batch = PG_GETARG_HEAPTUPLEHEADER(0);
	Jsonb	   *args = DatumGetJsonbP(needed_attribute(batch, "args"));
	ArrayType  *items = DatumGetArrayTypeP(needed_attribute(batch, "items"));
	TimestampTz as_of = DatumGetTimestampTz(needed_attribute(batch, "as_of"));
	Datum	   *elements;
	int			count;
	bool		written = false;
	int64		rows;
	TupleDesc	progress;

	require_interface();
	deconstruct_array(items, JSONBOID, -1, false, TYPALIGN_INT, &elements, NULL, &count);
	(void) SPI_connect();
	/* A trigger of the table could call this function again while the statement is executed. */
	if (count == 1 && used_in != GetCurrentTransactionStartTimestamp())
	{
		used_in = GetCurrentTransactionStartTimestamp();
		written = drop_build(args, DatumGetJsonbP(elements[0]), as_of);
		used_in = 0;
	}
	rows = written ? 1 : drop_in_batch(args, batch);
	(void) SPI_finish();
	if (get_call_result_type(fcinfo, NULL, &progress) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "sweep.progress is not a composite type");
	return HeapTupleGetDatum(heap_form_tuple(progress, (Datum[]) {Int64GetDatum(rows), 0, 0}, (bool[]) {false, true, true}));
}

/* Raises an error unless library and objects fit together: an upgrade replaces one after the other. */
static void
require_interface(void)
{
	if (!SearchSysCacheExists2(TYPENAMENSP, CStringGetDatum(INTERFACE_TYPE), ObjectIdGetDatum(get_namespace_oid(SCHEMA, false))))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("library pg_sweep_gitlab %s does not fit the extension in this database", SWEEP_VERSION),
				 errhint("Install the files of the newest version, restart the server, and execute ALTER EXTENSION pg_sweep_gitlab UPDATE.")));
}

static Datum
needed_attribute(HeapTupleHeader batch, const char *name)
{
	bool		is_null;
	Datum		value = GetAttributeByName(batch, name, &is_null);

	if (is_null)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s of the batch must not be null", name)));
	return value;
}

/* False when the build has changed since it was picked, or is no longer stuck. */
static bool
drop_build(const Jsonb *args, const Jsonb *item, TimestampTz as_of)
{
	int			nest_level = NewGUCNestLevel();
	Datum		values[PARAM_COUNT];
	int64		id;
	char	   *runner;
	bool		no_runner;
	bool		no_pipeline;
	bool		no_project;
	bool		is_null;
	int64		runner_id;
	int64		pipeline_id;
	int64		project_id;

	choose_statement(args);
	values[PARAM_ID] = DirectFunctionCall1(int8in, CStringGetDatum(needed(item, "id", false)));
	values[PARAM_PARTITION_ID] = DirectFunctionCall1(int8in, CStringGetDatum(needed(item, "partition_id", false)));
	values[PARAM_LOCK_VERSION] = DirectFunctionCall1(int4in, CStringGetDatum(needed(item, "lock_version", false)));
	values[PARAM_AT] = TimestampGetDatum((Timestamp) as_of);
	if (execute(statement.plan, values) == 0)
	{
		AtEOXact_GUC(true, nest_level);
		return false;
	}
	/* A rule has replaced the statement by several, the last of which returns nothing. */
	if (SPI_tuptable == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" has a rule that returns no row for a build that is updated", table_name(args))));
	runner_id = column(1, &no_runner);
	pipeline_id = column(2, &no_pipeline);
	project_id = column(3, &no_project);
	if (column(4, &is_null) != 0)
		leave_queues(args, values);
	AtEOXact_GUC(true, nest_level);
	id = DatumGetInt64(values[PARAM_ID]);
	runner = no_runner ? "none" : psprintf("%lld", (long long) runner_id);
	/* The key is the pipeline: it waits only once, however many of its builds were dropped. */
	if (!no_pipeline)
		sweep_gitlab_send(statement.send, "ci_pipeline_process", sweep_gitlab_payload("pipeline_id", pipeline_id, NULL, 0), pipeline_id);
	sweep_gitlab_send(statement.send, "ci_build_finished",
					  sweep_gitlab_payload("build_id", id, no_project ? NULL : "project_id", project_id), id);
	log_build(item, runner);
	return true;
}

/*
 * Also sets the search_path, which the caller resets, because triggers of the table may use names without schema. Sequential
 * scans are off: the tables of queues may be small when the statement is planned, and grow later.
 */
static void
choose_statement(const Jsonb *args)
{
	if (statement.plan == NULL || VARSIZE(args) != VARSIZE(statement.args) || memcmp(args, statement.args, VARSIZE(args)) != 0)
		begin_statement(args);
	set_config_option("search_path", statement.search_path, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	set_config_option("enable_seqscan", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	if (statement.plan != NULL && !is_as_prepared(args))
		free_plans();
	if (statement.plan == NULL)
		prepare_statement(args);
}

static void
begin_statement(const Jsonb *args)
{
	MemoryContext old;

	free_plans();
	if (statement.context != NULL)
		MemoryContextDelete(statement.context);
	memset(&statement, 0, sizeof(statement));
	statement.context = AllocSetContextCreate(TopMemoryContext, "pg_sweep_gitlab statement for stuck builds", ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(statement.context);
	statement.args = DatumGetJsonbPCopy(JsonbPGetDatum(args));
	statement.search_path = psprintf("pg_catalog, %s, pg_temp", quote_identifier(needed(args, "schema", true)));
	statement.stuck_in = needed(args, "status", true);
	MemoryContextSwitchTo(old);
}

static bool
is_as_prepared(const Jsonb *args)
{
	for (int i = 0; i < (int) lengthof(queue_tables); i++)
		if (find_table(args, queue_tables[i]) != statement.queues[i])
			return false;
	return type_of_reason(args) == statement.reason_type && SearchSysCacheExists1(PROCOID, ObjectIdGetDatum(statement.send));
}

/* The type of a column: a number or a name, depending on the GitLab; invalid when there is no such table or column. */
static Oid
type_of_reason(const Jsonb *args)
{
	Oid			relation = find_table(args, table_name(args));

	return OidIsValid(relation) ? get_atttype(relation, get_attnum(relation, "failure_reason")) : InvalidOid;
}

static Oid
find_table(const Jsonb *args, const char *name)
{
	return get_relname_relid(name, get_namespace_oid(needed(args, "schema", true), false));
}

/* The text of the statement is made by SQL, see sweep_gitlab.build_statement. */
static void
prepare_statement(const Jsonb *args)
{
	Datum		names[lengthof(queue_tables)];
	int			count = 0;
	const char *reason;
	Datum		values[3] = {JsonbPGetDatum(args)};

	(void) needed(args, "final_status", true);
	statement.reason_type = type_of_reason(args);
	reason = member(args, statement.reason_type == TEXTOID || statement.reason_type == VARCHAROID ? "failure_reason_name" : "failure_reason");
	statement.reason = reason == NULL ? NULL : MemoryContextStrdup(statement.context, reason);
	for (int i = 0; i < (int) lengthof(queue_tables); i++)
	{
		statement.queues[i] = find_table(args, queue_tables[i]);
		if (OidIsValid(statement.queues[i]))
			names[count++] = CStringGetTextDatum(queue_tables[i]);
	}
	values[1] = reason == NULL ? (Datum) 0 : CStringGetTextDatum(reason);
	values[2] = PointerGetDatum(construct_array(names, count, TEXTOID, -1, false, TYPALIGN_INT));
	if (SPI_execute_with_args("SELECT " SCHEMA ".build_statement($1, $2, $3)", lengthof(values), (Oid[]) {JSONBOID, TEXTOID, TEXTARRAYOID}, values,
							  reason == NULL ? " n " : NULL, true, 1) != SPI_OK_SELECT)
		elog(ERROR, "the statement for a build could not be made");
	statement.send = sweep_gitlab_find_send();
	statement.plan = prepare(SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1), PARAM_COUNT, (Oid[]) {INT8OID, INT8OID, INT4OID, TIMESTAMPOID});
}

/* Prepares a statement as the current user, with a generic plan, which is kept until it is freed. */
static SPIPlanPtr
prepare(const char *text, int count, Oid *types)
{
	SPIPlanPtr	plan = SPI_prepare_cursor(text, count, types, CURSOR_OPT_GENERIC_PLAN);

	if (plan == NULL || SPI_keepplan(plan) != 0)
		elog(ERROR, "could not prepare \"%s\": %s", text, SPI_result_code_string(SPI_result));
	return plan;
}

/* Returns the number of changed rows. */
static uint64
execute(SPIPlanPtr plan, Datum *values)
{
	int			result = SPI_execute_plan(plan, values, NULL, false, 0);

	if (result < 0)
		elog(ERROR, "could not execute a statement: %s", SPI_result_code_string(result));
	return SPI_processed;
}

/* A column of the changed row, as returned by the statement. */
static int64
column(int number, bool *is_null)
{
	return DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, number, is_null));
}

/* Deletes the build from the tables of builds that wait for a runner or have one. */
static void
leave_queues(const Jsonb *args, Datum *values)
{
	for (int i = 0; i < (int) lengthof(queue_tables); i++)
	{
		if (!OidIsValid(statement.queues[i]))
			continue;
		if (statement.leave[i] == NULL)
			statement.leave[i] = prepare(psprintf("DELETE FROM %s AS q WHERE q.build_id = $1 AND q.partition_id = $2",
												  quote_qualified_identifier(needed(args, "schema", true), queue_tables[i])),
										 2, (Oid[]) {INT8OID, INT8OID});
		(void) execute(statement.leave[i], values);
	}
}

static void
free_plans(void)
{
	if (statement.plan != NULL)
		(void) SPI_freeplan(statement.plan);
	statement.plan = NULL;
	for (int i = 0; i < (int) lengthof(queue_tables); i++)
	{
		if (statement.leave[i] != NULL)
			(void) SPI_freeplan(statement.leave[i]);
		statement.leave[i] = NULL;
	}
}

static void
log_build(const Jsonb *item, const char *runner)
{
	const char *wanted = GetConfigOption("pg_sweep.log_batches", true, false);

	if (wanted == NULL || strcmp(wanted, "items") != 0)
		return;
	ereport(LOG,
			(errmsg("Dropping outdated build: build_id %s, runner_id %s, status %s, failure_reason %s", needed(item, "id", false), runner,
					statement.stuck_in, statement.reason == NULL ? "none" : statement.reason)));
}

/* Handles several builds, or one that has changed. */
static int64
drop_in_batch(const Jsonb *args, HeapTupleHeader batch)
{
	bool		older = strcmp(table_name(args), "ci_builds") == 0;
	char	   *name = older ? "drop_stuck_ci_builds_in_batch" : "drop_stuck_builds_in_batch";
	Oid			type = HeapTupleHeaderGetTypeId(batch);
	Oid			function = LookupFuncName(list_make2(makeString(SCHEMA), makeString(name)), 1, &type, false);

	(void) needed(args, "final_status", true);
	sweep_check_execute(function, name);
	return DatumGetInt64(OidFunctionCall1(function, HeapTupleHeaderGetDatum(batch)));
}

/* A member of an object, as text; NULL when there is none. */
static char *
member(const Jsonb *object, const char *key)
{
	JsonbValue	buffer;
	JsonbValue *value = NULL;

	if (JB_ROOT_IS_OBJECT(object))
		value = getKeyJsonValueFromContainer((JsonbContainer *) &object->root, key, strlen(key), &buffer);
	if (value == NULL || value->type == jbvNull)
		return NULL;
	switch (value->type)
	{
		case jbvString:
			return pnstrdup(value->val.string.val, value->val.string.len);
		case jbvNumeric:
			return DatumGetCString(DirectFunctionCall1(numeric_out, NumericGetDatum(value->val.numeric)));
		case jbvBool:
			return value->val.boolean ? "true" : "false";
		default:
			return JsonbToCString(NULL, value->val.binary.data, value->val.binary.len);
	}
}

/* The value of a key that must be there. A missing arg ends the run; a missing key of an item fails only that item. */
static char *
needed(const Jsonb *object, const char *key, bool is_args)
{
	char	   *text = member(object, key);

	if (text == NULL)
		ereport(ERROR,
				(errcode(is_args ? ERRCODE_UNDEFINED_PARAMETER : ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s no \"%s\"", is_args ? "args have" : "item has", key),
				 errdetail("Instead there is %s.", JsonbToCString(NULL, (JsonbContainer *) &object->root, VARSIZE(object))),
				 is_args ? errhint("sweep_gitlab.install() creates the job with all that it needs.") : 0));
	return text;
}

static char *
table_name(const Jsonb *args)
{
	char	   *name = needed(args, "table", true);

	if (strcmp(name, "p_ci_builds") != 0 && strcmp(name, "ci_builds") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_PARAMETER),
				 errmsg("\"%s\" is no table of builds", name),
				 errhint("The table is \"p_ci_builds\", or \"ci_builds\" in an older GitLab.")));
	return name;
}
