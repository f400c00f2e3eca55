/*
 * build.c
 *		The step of GitLab's stuck builds, as far as it is about one build.
 *
 * These jobs commit each build on its own, and a step in PL/pgSQL prepares every expression it has anew in
 * each transaction: that took as long as the engine and the commit together. So one build is written from
 * here, by a statement that is prepared once and has the args of the job in it as constants. A batch of
 * several builds, and one that has changed since it was picked, is left to
 * sweep.gitlab_drop_stuck_builds_in_batch; what is done, and why, is described in install/gitlab/ci_stuck_builds.sql.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "funcapi.h"
#include "nodes/value.h"
#include "parser/parse_func.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/compat.h"
#include "base/settings.h"
#include "base/sql.h"
#include "queue/queue.h"

/* The tables that say which builds wait for a runner, and which have one. */
static const char *const queue_tables[] = {"ci_pending_builds", "ci_running_builds"};

/* Parameters of the statement; those of bounds follow. */
enum
{
	PARAM_ID,
	PARAM_PARTITION_ID,
	PARAM_LOCK_VERSION,
	PARAM_AT,
	PARAM_STATUS,
	PARAM_BOUNDS
};

/* A build is stuck when these are older. */
static const struct
{
	const char *arg;
	const char *column;
	Oid			type;
}			bounds[] = {
	{"created_older_than", "created_at", TIMESTAMPOID},
	{"updated_older_than", "updated_at", TIMESTAMPOID},
	{"scheduled_older_than", "scheduled_at", TIMESTAMPTZOID}
};

/* The statement for the args of a job, and for the table as it is. */
typedef struct Statement
{
	MemoryContext context;		/* of all that follows; NULL: there is none */
	Jsonb	   *args;
	Oid			reason_type;	/* of the column failure_reason; invalid when there is no such column */
	Oid			queues[lengthof(queue_tables)]; /* invalid where there is no such table */
	char	   *search_path;
	char	   *reason;			/* of the job, as the column has it; NULL: none */
	Datum		stuck_in;		/* status that builds are stuck in; text */
	SweepPlan  *plan;
	SweepPlan  *leave[lengthof(queue_tables)];	/* deletes a build from there; NULL: was not needed yet */
	int			bound_count;
	Interval   *older_than[lengthof(bounds)];
} Statement;

static Statement statement;

/* Start of the transaction in which it is being used; of one that is over after an error. */
static TimestampTz used_in = 0;

static Datum needed_attribute(HeapTupleHeader batch, const char *name);
static bool drop_build(const Jsonb *args, const Jsonb *item, TimestampTz as_of);
static void choose_statement(const Jsonb *args);
static void begin_statement(const Jsonb *args);
static bool is_as_prepared(const Jsonb *args);
static Oid	type_of_reason(const Jsonb *args);
static Oid	find_table(const Jsonb *args, const char *name);
static void prepare_statement(const Jsonb *args);
static void append_outcome(StringInfo text, const Jsonb *args);
static void append_bounds(StringInfo text, const Jsonb *args, Oid *types);
static void append_queues(StringInfo text, const Jsonb *args);
static void leave_queues(const Jsonb *args, Datum *values);
static void free_plans(void);
static void send_message(const char *queue, const char *name, int64 id, const char *other_name, int64 other);
static void push_number(JsonbParseState **state, const char *name, int64 number);
static void log_build(const Jsonb *item, const char *runner);
static int64 drop_in_batch(const Jsonb *args, Datum batch);
static char *member(const Jsonb *object, const char *key);
static char *needed(const Jsonb *object, const char *key, bool is_args);
static char *table_name(const Jsonb *args);

PG_FUNCTION_INFO_V1(sweep_gitlab_drop_builds);

/* SQL: sweep.gitlab_drop_stuck_builds(b sweep.batch) RETURNS sweep.progress */
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

	deconstruct_array(items, JSONBOID, -1, false, TYPALIGN_INT, &elements, NULL, &count);
	sweep_sql_begin_call();
	/* A trigger of the table could come here again while the statement is executed. */
	if (count == 1 && used_in != GetCurrentTransactionStartTimestamp())
	{
		used_in = GetCurrentTransactionStartTimestamp();
		written = drop_build(args, DatumGetJsonbP(elements[0]), as_of);
		used_in = 0;
	}
	rows = written ? 1 : drop_in_batch(args, HeapTupleHeaderGetDatum(batch));
	sweep_sql_end_call();
	if (get_call_result_type(fcinfo, NULL, &progress) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "sweep.progress is not a composite type");
	return HeapTupleGetDatum(heap_form_tuple(progress, (Datum[]) {Int64GetDatum(rows), 0, 0}, (bool[]) {false, true, true}));
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

/* False when it is not as it was picked, or no longer stuck. */
static bool
drop_build(const Jsonb *args, const Jsonb *item, TimestampTz as_of)
{
	int			nest_level = NewGUCNestLevel();
	Datum		values[PARAM_BOUNDS + lengthof(bounds)];
	bool		has_pipeline;
	int64		pipeline_id;
	bool		has_project;
	int64		project_id;
	char	   *runner;

	choose_statement(args);
	values[PARAM_ID] = DirectFunctionCall1(int8in, CStringGetDatum(needed(item, "id", false)));
	values[PARAM_PARTITION_ID] = DirectFunctionCall1(int8in, CStringGetDatum(needed(item, "partition_id", false)));
	values[PARAM_LOCK_VERSION] = DirectFunctionCall1(int4in, CStringGetDatum(needed(item, "lock_version", false)));
	/* In UTC a timestamp with and one without time zone are the same number. */
	values[PARAM_AT] = TimestampGetDatum((Timestamp) as_of);
	values[PARAM_STATUS] = statement.stuck_in;
	for (int i = 0; i < statement.bound_count; i++)
		values[PARAM_BOUNDS + i] = DirectFunctionCall2(timestamp_mi_interval, values[PARAM_AT], IntervalPGetDatum(statement.older_than[i]));
	if (sweep_sql_execute_plan(statement.plan, values, NULL) == 0)
	{
		AtEOXact_GUC(true, nest_level);
		return false;
	}
	runner = sweep_sql_is_null(1) ? "none" : psprintf("%lld", (long long) sweep_sql_int64(1));
	has_pipeline = !sweep_sql_is_null(2);
	pipeline_id = sweep_sql_int64(2);
	has_project = !sweep_sql_is_null(3);
	project_id = sweep_sql_int64(3);
	if (sweep_sql_bool(4))
		leave_queues(args, values);
	AtEOXact_GUC(true, nest_level);
	/* A pipeline waits once, however many of its builds were dropped. */
	if (has_pipeline)
		send_message("ci_pipeline_process", "pipeline_id", pipeline_id, NULL, 0);
	send_message("ci_build_finished", "build_id", DatumGetInt64(values[PARAM_ID]), has_project ? "project_id" : NULL, project_id);
	if (sweep_log_batches == LOG_BATCHES_ITEMS)
		log_build(item, runner);
	return true;
}

/*
 * Sets the search_path as well, until its caller ends that: triggers of the table may name others without the schema.
 * The tables of queues are small when the statement is planned, and need not stay so.
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
	statement.context = AllocSetContextCreate(TopMemoryContext, "pg_sweep statement for stuck builds", ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(statement.context);
	statement.args = DatumGetJsonbPCopy(JsonbPGetDatum(args));
	statement.search_path = psprintf("pg_catalog, %s, pg_temp", quote_identifier(needed(args, "schema", true)));
	statement.stuck_in = CStringGetTextDatum(needed(args, "status", true));
	MemoryContextSwitchTo(old);
}

static bool
is_as_prepared(const Jsonb *args)
{
	for (int i = 0; i < (int) lengthof(queue_tables); i++)
		if (find_table(args, queue_tables[i]) != statement.queues[i])
			return false;
	return type_of_reason(args) == statement.reason_type;
}

/* A number or a name, as the GitLab has it; invalid when there is no such table or column. */
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

/*
 * Returns runner, pipeline and project of the build, and whether it is in a table of queues: to look there
 * costs next to nothing, to delete nothing as much as the rest of the statement.
 */
static void
prepare_statement(const Jsonb *args)
{
	Oid			types[PARAM_BOUNDS + lengthof(bounds)] = {INT8OID, INT8OID, INT4OID, TIMESTAMPOID, TEXTOID};
	StringInfoData text;

	initStringInfo(&text);
	appendStringInfo(&text, "UPDATE %s AS p SET ",
					 quote_qualified_identifier(needed(args, "schema", true), table_name(args)));
	append_outcome(&text, args);
	appendStringInfoString(&text, "finished_at = $4, updated_at = $4, scheduled_at = NULL, lock_version = p.lock_version + 1, "
						   "processed = p.retried IS TRUE WHERE p.id = $1 AND p.partition_id = $2 AND p.lock_version = $3 "
						   "AND p.type::text = 'Ci::Build'::text AND p.status::text = $5");
	append_bounds(&text, args, types);
	appendStringInfoString(&text, " RETURNING p.runner_id::bigint, p.commit_id::bigint, p.project_id::bigint, false");
	append_queues(&text, args);
	statement.plan = sweep_sql_prepare(text.data, PARAM_BOUNDS + statement.bound_count, types, true);
}

static void
append_outcome(StringInfo text, const Jsonb *args)
{
	const char *outcome = needed(args, "final_status", true);
	bool		named;
	char	   *reason;

	statement.reason_type = type_of_reason(args);
	named = statement.reason_type == TEXTOID || statement.reason_type == VARCHAROID;
	reason = member(args, named ? "failure_reason_name" : "failure_reason");
	statement.reason = reason == NULL ? NULL : MemoryContextStrdup(statement.context, reason);
	appendStringInfo(text, "status = %s, ", quote_literal_cstr(outcome));
	if (strcmp(outcome, "failed") == 0)
		appendStringInfo(text, "failure_reason = %s, ", reason == NULL ? "NULL" : quote_literal_cstr(reason));
}

static void
append_bounds(StringInfo text, const Jsonb *args, Oid *types)
{
	MemoryContext old = MemoryContextSwitchTo(statement.context);

	statement.bound_count = 0;
	for (int i = 0; i < (int) lengthof(bounds); i++)
	{
		const char *older_than = member(args, bounds[i].arg);
		Datum		interval;

		if (older_than == NULL)
			continue;
		interval = DirectFunctionCall3(interval_in, CStringGetDatum(older_than), ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1));
		types[PARAM_BOUNDS + statement.bound_count] = bounds[i].type;
		statement.older_than[statement.bound_count++] = DatumGetIntervalP(interval);
		appendStringInfo(text, " AND p.%s < $%d", bounds[i].column, PARAM_BOUNDS + statement.bound_count);
	}
	MemoryContextSwitchTo(old);
}

static void
append_queues(StringInfo text, const Jsonb *args)
{
	for (int i = 0; i < (int) lengthof(queue_tables); i++)
	{
		statement.queues[i] = find_table(args, queue_tables[i]);
		if (OidIsValid(statement.queues[i]))
			appendStringInfo(text, " OR EXISTS (SELECT FROM %s AS q WHERE q.build_id = $1 AND q.partition_id = $2)",
							 quote_qualified_identifier(needed(args, "schema", true), queue_tables[i]));
	}
}

/* A build that no longer waits for a runner, or no longer has one, leaves the tables that say so. */
static void
leave_queues(const Jsonb *args, Datum *values)
{
	for (int i = 0; i < (int) lengthof(queue_tables); i++)
	{
		if (!OidIsValid(statement.queues[i]))
			continue;
		if (statement.leave[i] == NULL)
			statement.leave[i] = sweep_sql_prepare(psprintf("DELETE FROM %s AS q WHERE q.build_id = $1 AND q.partition_id = $2",
															quote_qualified_identifier(needed(args, "schema", true), queue_tables[i])),
												   2, (Oid[]) {INT8OID, INT8OID}, true);
		(void) sweep_sql_execute_plan(statement.leave[i], values, NULL);
	}
}

static void
free_plans(void)
{
	if (statement.plan != NULL)
		sweep_sql_free_plan(statement.plan);
	statement.plan = NULL;
	for (int i = 0; i < (int) lengthof(queue_tables); i++)
	{
		if (statement.leave[i] != NULL)
			sweep_sql_free_plan(statement.leave[i]);
		statement.leave[i] = NULL;
	}
}

/* The message says what the id is of, and with other_name one thing more; its key is the id. */
static void
send_message(const char *queue, const char *name, int64 id, const char *other_name, int64 other)
{
	LOCAL_FCINFO(call, 6);
	JsonbParseState *state = NULL;

	(void) pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	push_number(&state, name, id);
	if (other_name != NULL)
		push_number(&state, other_name, other);
	InitFunctionCallInfoData(*call, NULL, 6, InvalidOid, NULL, NULL);
	for (int i = 0; i < 6; i++)
		call->args[i].isnull = i > 2;
	call->args[0].value = CStringGetTextDatum(queue);
	call->args[1].value = JsonbPGetDatum(JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL)));
	call->args[2].value = CStringGetTextDatum(psprintf("%lld", (long long) id));
	(void) sweep_queue_send(call);
}

static void
push_number(JsonbParseState **state, const char *name, int64 number)
{
	JsonbValue	key = {.type = jbvString, .val.string = {.len = (int) strlen(name), .val = unconstify(char *, name)}};
	JsonbValue	value = {.type = jbvNumeric, .val.numeric = int64_to_numeric(number)};

	(void) pushJsonbValue(state, WJB_KEY, &key);
	(void) pushJsonbValue(state, WJB_VALUE, &value);
}

static void
log_build(const Jsonb *item, const char *runner)
{
	ereport(LOG,
			(errmsg("Dropping outdated build: build_id %s, runner_id %s, status %s, failure_reason %s", needed(item, "id", false), runner,
					TextDatumGetCString(statement.stuck_in), statement.reason == NULL ? "none" : statement.reason)));
}

/* Several builds, or one that has changed. */
static int64
drop_in_batch(const Jsonb *args, Datum batch)
{
	bool		older = strcmp(table_name(args), "ci_builds") == 0;
	char	   *name = older ? "gitlab_drop_stuck_ci_builds_in_batch" : "gitlab_drop_stuck_builds_in_batch";
	Oid			function = LookupFuncName(list_make2(makeString("sweep"), makeString(name)), 1, &sweep_sql_extension()->batch_type, false);

	(void) needed(args, "final_status", true);
	sweep_check_execute(function, name);
	return DatumGetInt64(OidFunctionCall1(function, batch));
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

/* What the args lack is no fault of any build: the run ends. What an item lacks ends that item alone. */
static char *
needed(const Jsonb *object, const char *key, bool is_args)
{
	char	   *text = member(object, key);

	if (text == NULL)
		ereport(ERROR,
				(errcode(is_args ? ERRCODE_UNDEFINED_PARAMETER : ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s no \"%s\"", is_args ? "args have" : "item has", key),
				 errdetail("Instead there is %s.", JsonbToCString(NULL, (JsonbContainer *) &object->root, VARSIZE(object))),
				 is_args ? errhint("sweep.install_gitlab() creates the job with all that it needs.") : 0));
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
