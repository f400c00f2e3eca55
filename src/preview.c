/*
 * preview.c
 *		sweep.preview: one batch of a job, rolled back, with the plans of its statements.
 *
 * The call of a step has no plan, so the statements inside of it are caught as they end, by executor hooks
 * that are installed by the first preview of a process and idle otherwise.
 */
#include "postgres.h"

#include "commands/explain.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "definition.h"
#include "items.h"
#include "loop.h"
#include "run.h"
#include "sql.h"

#define MOST_PLANS 50

typedef struct Preview
{
	SweepRun   *run;
	Jsonb	   *cursor;
	int64		rows;
	bool		drained;
	MemoryContext context;
	StringInfoData plan;
	int			plans;
	int			left_out;
} Preview;

/* The preview whose statements are being caught; NULL = none. */
static Preview *catching = NULL;
static ExecutorStart_hook_type previous_start_hook = NULL;
static ExecutorEnd_hook_type previous_end_hook = NULL;

static void install_hooks(void);
static void catch_start(QueryDesc *query, int flags);
static void catch_end(QueryDesc *query);
static void add_plan(Preview *preview, QueryDesc *query);
static void read_work(void *arg);
static void step_work(void *arg);
static char *preview_notes(const Preview *preview);

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
	Datum		request[2];
	void	   *arguments[2] = {&preview, request};
	ErrorData  *error;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("name and args of sweep.preview must not be null")));
	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	memset(&slot, 0, sizeof(slot));
	preview.run = sweep_run_create(CurrentMemoryContext, &slot);
	initStringInfo(&preview.plan);
	request[0] = PG_GETARG_DATUM(0);
	request[1] = JsonbPGetDatum(PG_GETARG_JSONB_P(1));
	error = sweep_sql_rehearse(read_work, arguments);
	if (error != NULL)
		ReThrowError(error);
	sweep_run_check_role(preview.run);
	install_hooks();
	error = sweep_sql_rehearse(step_work, &preview);
	catching = NULL;
	sweep_step_free(preview.run->step);
	sweep_step_free(preview.run->pick);
	if (error != NULL)
		ReThrowError(error);

	values[0] = Int64GetDatum(preview.rows);
	values[1] = preview.cursor ? JsonbPGetDatum(preview.cursor) : (Datum) 0;
	nulls[1] = preview.cursor == NULL;
	values[2] = CStringGetTextDatum(preview.plan.data);
	values[3] = CStringGetTextDatum(preview_notes(&preview));
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls));
}

static void
read_work(void *arg)
{
	Preview    *preview = ((void **) arg)[0];
	Datum	   *request = ((void **) arg)[1];

	if (!sweep_sql_open_gate())
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("extension pg_sweep does not exist")));
	sweep_run_check_args(DatumGetJsonbP(request[1]), TextDatumGetCString(request[0]));
	if (sweep_sql_execute(SWEEP_SQL_READ_JOB, request, NULL) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("job \"%s\" does not exist", TextDatumGetCString(request[0])),
				 errhint("The view sweep.jobs lists the jobs of this database.")));
	sweep_definition_read(preview->run, 1);
	sweep_run_fix_clock(preview->run);
}

static void
step_work(void *arg)
{
	Preview    *preview = arg;
	SweepRun   *run = preview->run;
	SweepLoop	loop;
	SweepProgress progress;
	bool		due = false;
	SweepBatch	batch = {.args = run->args, .as_of = run->as_of != 0 ? run->as_of : GetCurrentTimestamp()};

	sweep_loop_begin(&loop, &run->limits, 0);
	batch.size = sweep_loop_next_size(&loop);
	batch.buckets = run->buckets;
	sweep_run_set_environment();
	run->step = sweep_step_prepare(preview->context, run->step_name, run->batch_sql);
	if (run->pick_name != NULL)
		run->pick = sweep_step_prepare_call(preview->context, run->pick_name);
	catching = preview;
	if (run->pick != NULL)
	{
		batch.item_count = sweep_step_pick(run->pick, &batch, &batch.items, preview->context);
		preview->drained = batch.items == NULL || batch.item_count == 0;
		if (preview->drained)
			return;
		preview->cursor = batch.items[batch.item_count - 1];
		run->has_quarantine = true;	/* not known here: look */
		batch.item_count = sweep_items_leave_out_quarantined(run, batch.items, batch.item_count, &due);
	}
	sweep_step_call(run->step, &batch, &progress, preview->context);
	preview->rows = progress.rows;
	if (run->pick == NULL)
	{
		preview->cursor = progress.cursor;
		preview->drained = progress.rows == 0;
	}
}

static char *
preview_notes(const Preview *preview)
{
	StringInfoData notes;

	initStringInfo(&notes);
	if (preview->drained)
		appendStringInfoString(&notes, "Nothing is left to do: a run would drain with this batch.");
	else if (preview->rows >= preview->run->limits.batch_size)
		appendStringInfoString(&notes, "The batch is full: a run would go on with another one.");
	else
		appendStringInfo(&notes, "The batch found fewer than the %d rows it may handle.", preview->run->limits.batch_size);
	if (strstr(preview->plan.data, "Seq Scan on") != NULL)
		appendStringInfoString(&notes, "\nA table is read from its start: look at \"Seq Scan\" in the plan.");
	if (preview->left_out > 0)
		appendStringInfo(&notes, "\nThe plans of %d further statements are left out.", preview->left_out);
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
	/* What a function of somebody else executes with that one's rights is not shown. */
	if (catching != NULL && GetUserId() == catching->run->run_as && (flags & EXEC_FLAG_EXPLAIN_ONLY) == 0)
		query->instrument_options |= INSTRUMENT_ROWS | INSTRUMENT_TIMER | INSTRUMENT_BUFFERS;
	if (previous_start_hook)
		previous_start_hook(query, flags);
	else
		standard_ExecutorStart(query, flags);
}

static void
catch_end(QueryDesc *query)
{
	if (catching != NULL && GetUserId() == catching->run->run_as && query->planstate != NULL && query->planstate->instrument != NULL)
		add_plan(catching, query);
	if (previous_end_hook)
		previous_end_hook(query);
	else
		standard_ExecutorEnd(query);
}

static void
add_plan(Preview *preview, QueryDesc *query)
{
	MemoryContext old;
	ExplainState *state;

	if (preview->plans >= MOST_PLANS)
	{
		preview->left_out++;
		return;
	}
	old = MemoryContextSwitchTo(query->estate->es_query_cxt);
	state = NewExplainState();
	state->analyze = true;
	state->buffers = true;
	state->timing = true;
	state->format = EXPLAIN_FORMAT_TEXT;
	ExplainBeginOutput(state);
	ExplainPrintPlan(state, query);
	ExplainPrintTriggers(state, query);
	ExplainEndOutput(state);
	if (preview->plans > 0)
		appendStringInfoChar(&preview->plan, '\n');
	appendStringInfo(&preview->plan, "%s\n%s", query->sourceText, state->str->data);
	preview->plans++;
	MemoryContextSwitchTo(old);
}
