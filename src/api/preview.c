/*
 * preview.c
 *		sweep.preview: one batch of a job, rolled back, with the plans of its statements.
 *
 * The call of a step has no plan, so executor hooks catch the statements inside it as they end. The first preview of a
 * process installs the hooks; they are idle otherwise.
 *
 * A statement is identified by its text. A statement of the job has its plan, in the order of the first execution, and the
 * plan of the slowest execution. A statement of a trigger or a foreign key has one line: a batch of 1000 rows may execute
 * thousands of them.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "commands/explain.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "fmgr.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "parser/scansup.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"

#include "base/compat_query.h"
#include "base/extension.h"
#include "base/txn.h"
#include "base/worker.h"
#include "engine/definition.h"
#include "engine/environment.h"
#include "engine/items.h"
#include "makers/range_statements.h"
#include "engine/run_state.h"
#include "pure/loop.h"

/* Maximum number of texts, of the job's statements and of nested ones; further executions are counted. */
#define MAX_STATEMENTS 50

/* Maximum length of a nested statement's text. */
#define MAX_LINE_BYTES 240

typedef struct Statement
{
	char	   *text;
	bool		nested;			/* in a trigger, a foreign key or a function with the rights of another role */
	int64		calls;			/* executions that ended */
	double		total_ms;
	double		slowest_ms;
	char	   *plan;			/* of the slowest execution; NULL when nested */
} Statement;

typedef struct Preview
{
	text	   *name;
	Jsonb	   *args;
	SweepRun   *run;
	Jsonb	   *cursor;
	int64		rows;
	bool		drained;
	MemoryContext context;
	int			trigger_depth;	/* at the call of sweep.preview */
	List	   *statements;
	int			count[2];		/* number of statements: of the job, nested */
	int			left_out;		/* number of executions without an entry in "statements" */
} Preview;

/* The preview whose statements the hooks catch; NULL = none. */
static Preview *catching = NULL;
static ExecutorStart_hook_type previous_start_hook = NULL;
static ExecutorEnd_hook_type previous_end_hook = NULL;

static void install_hooks(void);
static void catch_start(QueryDesc *query, int flags);
static void catch_end(QueryDesc *query);
static int	trigger_depth(void);
static Statement *find_statement(Preview *preview, QueryDesc *query);
static char *role_text(void);
static char *statement_text(QueryDesc *query, bool nested);
static char *explain(QueryDesc *query);
static void read_work(void *arg);
static void step_work(void *arg);
static char *preview_plan(const Preview *preview);
static char *preview_notes(const Preview *preview, const char *plan);

PG_FUNCTION_INFO_V1(sweep_preview);

/* SQL: sweep.preview(name text, args jsonb, OUT rows, OUT cursor, OUT plan, OUT notes) */
Datum
sweep_preview(PG_FUNCTION_ARGS)
{
	Preview		preview = {.context = CurrentMemoryContext};
	SweepSlot	slot;
	TupleDesc	desc;
	Datum		values[4];
	bool		nulls[4] = {0};
	ErrorData  *error;
	char	   *plan;

	sweep_require_usable("sweep.preview()");
	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("name and args of sweep.preview must not be null")));
	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	memset(&slot, 0, sizeof(slot));
	preview.run = sweep_run_create(CurrentMemoryContext, &slot);
	preview.trigger_depth = trigger_depth();
	preview.name = PG_GETARG_TEXT_PP(0);
	preview.args = PG_GETARG_JSONB_P(1);
	error = sweep_txn_savepoint(read_work, &preview, false);
	if (error != NULL)
		ReThrowError(error);
	sweep_run_check_role(preview.run);
	if (preview.run->sql != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("job \"%s\" cannot be previewed", preview.run->job),
				 errdetail("It has sql, which commits by itself: what it has done cannot be rolled back."),
				 errhint("SELECT sweep.start(%s) runs it in the background.", quote_literal_cstr(preview.run->job))));
	install_hooks();
	error = sweep_txn_savepoint(step_work, &preview, false);
	catching = NULL;
	sweep_step_free(preview.run->step);
	sweep_step_free(preview.run->pick);
	if (error != NULL)
		ReThrowError(error);

	values[0] = Int64GetDatum(preview.rows);
	values[1] = preview.cursor ? JsonbPGetDatum(preview.cursor) : (Datum) 0;
	nulls[1] = preview.cursor == NULL;
	plan = preview_plan(&preview);
	values[2] = CStringGetTextDatum(plan);
	values[3] = CStringGetTextDatum(preview_notes(&preview, plan));
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls));
}

static void
read_work(void *arg)
{
	Preview    *preview = arg;

	sweep_extension_require(sweep_extension_lock());
	sweep_definition_read_job(preview->run, preview->name, preview->args);
}

static void
step_work(void *arg)
{
	Preview    *preview = arg;
	SweepRun   *run = preview->run;
	SweepLimits limits = sweep_run_limits(run);
	SweepLoop	loop;
	SweepProgress progress;
	bool		due = false;
	SweepBatch	batch = {.args = run->args, .as_of = run->as_of != 0 ? run->as_of : GetCurrentTimestamp()};

	sweep_loop_begin(&loop, &limits, 0);
	batch.size = sweep_loop_next_size(&loop);
	batch.buckets = run->bucket_count;
	sweep_worker_set_local();
	if (sweep_environment_is_needed(run))
		sweep_environment_set_local(run);
	run->step = sweep_step_prepare(preview->context, run->step_name, run->batch_sql);
	if (run->pick_name != NULL)
		run->pick = sweep_step_prepare_call(preview->context, run->pick_name);
	sweep_range_preparing = false;
	catching = preview;
	if (run->pick != NULL)
	{
		batch.item_count = sweep_step_pick(run->pick, &batch, &batch.items, preview->context);
		preview->drained = batch.items == NULL || batch.item_count == 0;
		if (preview->drained)
			return;
		preview->cursor = batch.items[batch.item_count - 1];
		run->has_quarantine = true;	/* not known here, so the table is read */
		catching = NULL;			/* not to catch a statement of the engine */
		batch.item_count = sweep_items_leave_out_quarantined(run, batch.items, batch.item_count, &due);
		catching = preview;
	}
	sweep_step_call(run->step, &batch, NULL, &progress, preview->context);
	preview->rows = progress.rows;
	if (run->pick == NULL)
	{
		preview->cursor = progress.cursor;
		preview->drained = progress.rows == 0;
	}
}

/* The statements of the job with their plans, then a line for each nested one. */
static char *
preview_plan(const Preview *preview)
{
	StringInfoData text;
	StringInfoData lines;
	ListCell   *cell;

	initStringInfo(&text);
	initStringInfo(&lines);
	foreach(cell, preview->statements)
	{
		const Statement *statement = lfirst(cell);

		if (statement->calls > 0 && statement->nested)
			appendStringInfo(&lines, INT64_FORMAT " %s, %.3f ms: %s\n", statement->calls, statement->calls == 1 ? "call" : "calls",
							 statement->total_ms, statement->text);
		if (statement->calls == 0 || statement->nested)
			continue;
		appendStringInfo(&text, "%s%s\n", text.len > 0 ? "\n" : "", statement->text);
		if (statement->calls > 1)
			appendStringInfo(&text, "(executed " INT64_FORMAT " times in %.3f ms; the slowest:)\n", statement->calls, statement->total_ms);
		appendStringInfoString(&text, statement->plan != NULL ? statement->plan : "");
	}
	if (lines.len > 0)
		appendStringInfo(&text, "%sWithin triggers, foreign keys and functions with the rights of others:\n%s", text.len > 0 ? "\n" : "", lines.data);
	return text.data;
}

static char *
preview_notes(const Preview *preview, const char *plan)
{
	StringInfoData notes;

	initStringInfo(&notes);
	if (preview->drained)
		appendStringInfoString(&notes, "Nothing is left to do: a run would drain with this batch.");
	else if (preview->rows >= preview->run->batch_size)
		appendStringInfoString(&notes, "The batch is full: a run would go on with another one.");
	else
		appendStringInfo(&notes, "The batch found fewer rows than the %d it may handle.", preview->run->batch_size);
	if (strstr(plan, "Seq Scan on") != NULL)
		appendStringInfoString(&notes, "\nA table is read from its start: look at \"Seq Scan\" in the plan.");
	if (preview->left_out > 0)
		appendStringInfo(&notes, ngettext("\n%d execution of further statements is left out.", "\n%d executions of further statements are left out.",
										  preview->left_out), preview->left_out);
	appendStringInfoString(&notes, "\nEverything was rolled back, except that sequences do not go back.");
	return notes.data;
}

static void
install_hooks(void)
{
	static bool installed = false;

	if (installed)
		return;
	previous_start_hook = ExecutorStart_hook;
	ExecutorStart_hook = catch_start;
	previous_end_hook = ExecutorEnd_hook;
	ExecutorEnd_hook = catch_end;
	installed = true;
}

static void
catch_start(QueryDesc *query, int flags)
{
	ExecutorStart_hook_type start = previous_start_hook ? previous_start_hook : standard_ExecutorStart;
	Statement  *statement = NULL;

	if (catching != NULL && !sweep_range_preparing && (flags & EXEC_FLAG_EXPLAIN_ONLY) == 0)
	{
		statement = find_statement(catching, query);
		if (statement == NULL)
			catching->left_out++;
	}
	if (statement != NULL && !statement->nested)
		query->instrument_options |= INSTRUMENT_ROWS | INSTRUMENT_TIMER | INSTRUMENT_BUFFERS;
	if (statement != NULL)
		sweep_start_timed_query(start, query, flags);
	else
		start(query, flags);
}

static void
catch_end(QueryDesc *query)
{
	/* A query that began before the preview has no timing. */
	if (catching != NULL && !sweep_range_preparing && sweep_query_is_timed(query))
	{
		Statement  *statement = find_statement(catching, query);

		if (statement != NULL)
		{
			double		ms = sweep_query_ms(query);

			statement->calls++;
			statement->total_ms += ms;
			if (!statement->nested && query->planstate->instrument != NULL &&
				(statement->plan == NULL || ms > statement->slowest_ms))
			{
				statement->plan = MemoryContextStrdup(catching->context, explain(query));
				statement->slowest_ms = ms;
			}
		}
	}
	if (previous_end_hook)
		previous_end_hook(query);
	else
		standard_ExecutorEnd(query);
}

/* The check of a foreign key is a trigger. */
static int
trigger_depth(void)
{
	return DatumGetInt32(DirectFunctionCall1(pg_trigger_depth, (Datum) 0));
}

/* The entry of the statement, added if it is new; NULL when there are too many. */
static Statement *
find_statement(Preview *preview, QueryDesc *query)
{
	bool		foreign = GetUserId() != preview->run->run_as;
	bool		nested = foreign || trigger_depth() > preview->trigger_depth;
	char	   *text = foreign ? role_text() : statement_text(query, nested);
	Statement  *statement;
	MemoryContext old;
	ListCell   *cell;

	foreach(cell, preview->statements)
	{
		statement = lfirst(cell);
		if (statement->nested == nested && strcmp(statement->text, text) == 0)
		{
			pfree(text);
			return statement;
		}
	}
	if (preview->count[nested] >= MAX_STATEMENTS)
		return NULL;
	preview->count[nested]++;
	old = MemoryContextSwitchTo(preview->context);
	statement = palloc0(sizeof(Statement));
	statement->text = pstrdup(text);
	statement->nested = nested;
	preview->statements = lappend(preview->statements, statement);
	MemoryContextSwitchTo(old);
	return statement;
}

/* The statements of a function that runs as another role are hidden: only their time is shown. */
static char *
role_text(void)
{
	char	   *name = GetUserNameFromId(GetUserId(), true);

	return psprintf("(statements with the rights of role \"%s\")", name != NULL ? name : "");
}

/* The source may have several statements, like the body of an SQL function. A nested statement is shown in one line. */
static char *
statement_text(QueryDesc *query, bool nested)
{
	const char *source = query->sourceText;
	int			length = strlen(source);
	int			used = 0;
	char	   *text;

	/* In a BEGIN ATOMIC body the location of a statement is not a position in the source. */
	if (query->plannedstmt->stmt_location > 0 && query->plannedstmt->stmt_location < length)
	{
		source += query->plannedstmt->stmt_location;
		length -= query->plannedstmt->stmt_location;
	}
	if (query->plannedstmt->stmt_len > 0)
		length = Min(length, query->plannedstmt->stmt_len);
	for (; length > 0 && scanner_isspace(*source); length--)
		source++;
	while (length > 0 && scanner_isspace(source[length - 1]))
		length--;
	text = pnstrdup(source, length);
	if (!nested)
		return text;
	for (const char *from = text; *from != '\0'; from++)
	{
		if (!scanner_isspace(*from))
			text[used++] = *from;
		else if (text[used - 1] != ' ')
			text[used++] = ' ';
	}
	text[used] = '\0';
	if (used > MAX_LINE_BYTES)
		memcpy(text + pg_mbcliplen(text, used, MAX_LINE_BYTES - 3), "...", sizeof("..."));
	return text;
}

static char *
explain(QueryDesc *query)
{
	MemoryContext old = MemoryContextSwitchTo(query->estate->es_query_cxt);
	ExplainState *state = NewExplainState();

	state->analyze = true;
	state->buffers = true;
	state->timing = true;
	state->format = EXPLAIN_FORMAT_TEXT;
	ExplainBeginOutput(state);
	ExplainPrintPlan(state, query);
	ExplainPrintTriggers(state, query);
	ExplainEndOutput(state);
	MemoryContextSwitchTo(old);
	return state->str->data;
}
