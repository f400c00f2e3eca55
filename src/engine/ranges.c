/*
 * ranges.c
 *		The step of the jobs that sweep.create_retention, create_backfill and create_copy make: a range of keys per batch.
 *
 * Called by step.c as any other step, as the role of the job. What is particular about each of these jobs is the text
 * of its statements, which sweep._range_statements makes from the args, in SQL. It is C that executes them because in
 * PL/pgSQL a statement about a table that is named in the args is planned each time, which takes as long as a small batch.
 * The texts are made once per run and not once per job: a column, a partition or a foreign key that has come since is in
 * them. Plans are kept in the context of the call's FmgrInfo, which is that of the run.
 *
 * A batch, with the cursor {"after": key}: "edge" finds the last key of the next batch, "work" does what is behind the
 * cursor up to there. Deleting a range is cheaper than picking keys and deleting by them. When fewer rows are left than a
 * batch may have, "rest" finds the last of them. Rows of the same key cannot be told apart: where an edge falls between
 * two of them the batch ends "before" that key, or, when it begins with it, "pick" does as many of them as it may, and the
 * cursor stays.
 *
 * A cursor with "again" is that of a further pass: the "epilogue" has found rows that came behind the cursor, or could not be
 * done yet. How many passes have done nothing since is its value, so that the last of them can say so.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

#include "base/sql.h"
#include "engine/ranges.h"

/* The statements, in the order of the columns of sweep._range_statements; they have the same parameters. */
typedef enum RangeStatement
{
	RANGE_PROLOGUE,				/* (rows, cursor): before each batch; with rows it has been the batch */
	RANGE_EDGE,					/* (key): the last of the batch, and, where keys are not unique, the next one */
	RANGE_REST,					/* (key, rows): the last of those that are left */
	RANGE_BEFORE,				/* (key): the next smaller one */
	RANGE_WORK,
	RANGE_PICK,
	RANGE_EPILOGUE,				/* (bool): whether anything is left after all */
	RANGE_STATEMENT_COUNT
} RangeStatement;

/* How many passes may do nothing of what the epilogue says is left. */
#define MOST_VAIN_PASSES 3

/* Of a batch, of sweep.batch in this order. */
enum
{
	BATCH_SIZE = 1,
	BATCH_CURSOR,
	BATCH_ARGS,
	BATCH_AS_OF,
	BATCH_RUN_ID = 8
};

typedef struct Statements
{
	bool		made;
	char	   *texts[RANGE_STATEMENT_COUNT];	/* NULL = there is none */
	SweepPlan  *plans[RANGE_STATEMENT_COUNT];	/* NULL = not prepared yet */
	char	   *key;			/* the columns; a cursor of other ones is of no use */
	char	   *counter;		/* in the detail: what was done */
	char	   *rest_counter;	/* rows that were looked at and left as they are; NULL = not counted */
	bool		checked;		/* "work" returns how many rows it has done, and the key of one that it was in vain for */
	bool		restarts;		/* with a cursor of other columns; otherwise that is an error */
} Statements;

/* Of the first batch of a pass and of the next ones, in the first pass and in further ones. */
#define STATEMENTS_NEXT 1
#define STATEMENTS_AGAIN 2
#define STATEMENTS_KINDS 4

/* Kept between the calls of a run, in fn_extra. */
typedef struct Kept
{
	MemoryContextCallback callback;
	TupleDesc	progress;
	Jsonb	   *args;
	Statements	statements[STATEMENTS_KINDS];
} Kept;

typedef struct RangeBatch
{
	Kept	   *kept;
	FmgrInfo   *function;
	Statements *statements;		/* for the cursor */
	MemoryContext context;
	int32		size;
	Jsonb	   *cursor;			/* NULL = none */
	Jsonb	   *args;
	TimestampTz as_of;
	int64		run_id;
	Jsonb	   *upto;			/* the last key of the batch, as a cursor */
	int64		rows;			/* that were looked at */
	int64		done;
	Jsonb	   *detail;			/* NULL = none */
} RangeBatch;

bool		sweep_ranges_preparing = false;

static void read_batch(RangeBatch *batch, HeapTupleHeader header);
static Kept *find_kept(RangeBatch *batch);
static void forget_plans(void *kept);
static void choose_statements(RangeBatch *batch);
static Statements *find_statements(RangeBatch *batch, int kind);
static bool do_prologue(RangeBatch *batch);
static bool do_range(RangeBatch *batch);
static bool find_edge(RangeBatch *batch, bool *tied);
static void do_work(RangeBatch *batch, RangeStatement which);
static bool is_left(RangeBatch *batch);
static uint64 execute(RangeBatch *batch, RangeStatement which);
static void prepare(RangeBatch *batch, RangeStatement which);
static void plan_by_key(RangeBatch *batch, const RangeStatement *statements, int count);
static uint64 execute_by_key(RangeBatch *batch, RangeStatement which);
static JsonbValue *cursor_value(const RangeBatch *batch, const char *key, JsonbValue *buffer);
static Jsonb *merge(Jsonb *a, Jsonb *b);
static Jsonb *read_json(const char *text);

PG_FUNCTION_INFO_V1(sweep_ranges_step);

/* SQL: sweep.retention_step, sweep.backfill_step and sweep.copy_step (b sweep.batch) RETURNS sweep.progress */
Datum
sweep_ranges_step(PG_FUNCTION_ARGS)
{
	RangeBatch	batch = {.function = fcinfo->flinfo, .context = CurrentMemoryContext};
	Datum		values[3];
	bool		nulls[3] = {false};
	HeapTuple	progress;

	read_batch(&batch, PG_GETARG_HEAPTUPLEHEADER(0));
	batch.kept = find_kept(&batch);
	sweep_sql_begin_call();
	choose_statements(&batch);
	if (!do_prologue(&batch) && !do_range(&batch) && is_left(&batch))
		batch.rows = 1;

	values[0] = Int64GetDatum(batch.rows);
	values[1] = PointerGetDatum(batch.cursor);
	values[2] = PointerGetDatum(batch.detail);
	nulls[1] = batch.cursor == NULL;
	nulls[2] = batch.detail == NULL;
	(void) MemoryContextSwitchTo(batch.context);
	progress = heap_form_tuple(batch.kept->progress, values, nulls);
	sweep_sql_end_call();
	return HeapTupleGetDatum(progress);
}

static void
read_batch(RangeBatch *batch, HeapTupleHeader header)
{
	bool		nulls[BATCH_RUN_ID + 1] = {false};
	Datum		cursor = GetAttributeByNum(header, BATCH_CURSOR, &nulls[BATCH_CURSOR]);
	Datum		args = GetAttributeByNum(header, BATCH_ARGS, &nulls[BATCH_ARGS]);

	batch->size = DatumGetInt32(GetAttributeByNum(header, BATCH_SIZE, &nulls[BATCH_SIZE]));
	batch->as_of = DatumGetTimestampTz(GetAttributeByNum(header, BATCH_AS_OF, &nulls[BATCH_AS_OF]));
	batch->run_id = DatumGetInt64(GetAttributeByNum(header, BATCH_RUN_ID, &nulls[BATCH_RUN_ID]));
	if (nulls[BATCH_SIZE] || nulls[BATCH_ARGS] || nulls[BATCH_AS_OF] || nulls[BATCH_RUN_ID] || batch->size < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s is the step of a job and was not called by one", get_func_name(batch->function->fn_oid)),
				 errhint("A batch has a size, args, as_of and a run_id.")));
	batch->args = DatumGetJsonbP(args);
	/* What is no object is no cursor of ours. */
	if (!nulls[BATCH_CURSOR] && JB_ROOT_IS_OBJECT(DatumGetJsonbP(cursor)))
		batch->cursor = DatumGetJsonbP(cursor);
}

static Kept *
find_kept(RangeBatch *batch)
{
	Kept	   *kept = batch->function->fn_extra;
	MemoryContext old = MemoryContextSwitchTo(batch->function->fn_mcxt);

	if (kept == NULL)
	{
		kept = palloc0(sizeof(Kept));
		kept->progress = lookup_rowtype_tupdesc_copy(get_func_rettype(batch->function->fn_oid), -1);
		BlessTupleDesc(kept->progress);
		kept->callback.func = forget_plans;
		kept->callback.arg = kept;
		MemoryContextRegisterResetCallback(CurrentMemoryContext, &kept->callback);
		batch->function->fn_extra = kept;
	}
	if (kept->args == NULL || VARSIZE(kept->args) != VARSIZE(batch->args) ||
		memcmp(kept->args, batch->args, VARSIZE(batch->args)) != 0)
	{
		forget_plans(kept);
		memset(kept->statements, 0, sizeof(kept->statements));
		kept->args = DatumGetJsonbPCopy(JsonbPGetDatum(batch->args));
	}
	MemoryContextSwitchTo(old);
	return kept;
}

static void
forget_plans(void *arg)
{
	Kept	   *kept = arg;

	for (int kind = 0; kind < STATEMENTS_KINDS; kind++)
	{
		for (int i = 0; i < RANGE_STATEMENT_COUNT; i++)
		{
			if (kept->statements[kind].plans[i] != NULL)
				sweep_sql_free_plan(kept->statements[kind].plans[i]);
			kept->statements[kind].plans[i] = NULL;
		}
	}
}

/* A cursor of other columns than those that the rows are now in the order of is forgotten. */
static void
choose_statements(RangeBatch *batch)
{
	JsonbValue	buffer;
	JsonbValue *by;
	bool		next = cursor_value(batch, "after", &buffer) != NULL;
	bool		again = cursor_value(batch, "again", &buffer) != NULL;

	batch->statements = find_statements(batch, (next ? STATEMENTS_NEXT : 0) + (again ? STATEMENTS_AGAIN : 0));
	by = cursor_value(batch, "by", &buffer);
	if (!next || (by != NULL && by->type == jbvString && (size_t) by->val.string.len == strlen(batch->statements->key) &&
				  memcmp(by->val.string.val, batch->statements->key, by->val.string.len) == 0))
		return;
	if (!batch->statements->restarts)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the cursor is not one of \"%s\"", batch->statements->key),
				 errhint("Drop the job and create it anew: it cannot be known what was copied.")));
	batch->cursor = NULL;
	batch->statements = find_statements(batch, 0);
}

/* Made by the owner of the extension, of names that are looked up and quoted, and of texts that are checked. */
static Statements *
find_statements(RangeBatch *batch, int kind)
{
	Statements *found = &batch->kept->statements[kind];
	Datum		values[] = {
		CStringGetTextDatum(get_func_name(batch->function->fn_oid)),
		JsonbPGetDatum(batch->args),
		BoolGetDatum((kind & STATEMENTS_NEXT) != 0),
		BoolGetDatum((kind & STATEMENTS_AGAIN) != 0),
	};
	MemoryContext context = batch->function->fn_mcxt;
	int			column = 1;

	if (found->made)
		return found;
	sweep_ranges_preparing = true;
	(void) sweep_sql_execute(SWEEP_SQL_RANGE_STATEMENTS, values, NULL);
	sweep_ranges_preparing = false;
	for (int i = 0; i < RANGE_STATEMENT_COUNT; i++)
		found->texts[i] = sweep_sql_text(column++, context);
	found->key = sweep_sql_text(column++, context);
	found->counter = sweep_sql_text(column++, context);
	found->rest_counter = sweep_sql_text(column++, context);
	found->checked = sweep_sql_bool(column++);
	found->restarts = sweep_sql_bool(column++);
	found->made = true;
	return found;
}

/* True when it has done the batch by itself. */
static bool
do_prologue(RangeBatch *batch)
{
	bool		done;

	if (batch->statements->texts[RANGE_PROLOGUE] == NULL || execute(batch, RANGE_PROLOGUE) == 0)
		return false;
	done = !sweep_sql_is_null(1);
	if (done)
		batch->rows = sweep_sql_int64(1);
	batch->cursor = sweep_sql_jsonb(2, batch->context);
	batch->detail = sweep_sql_jsonb(3, batch->context);
	return done;
}

/* False when nothing is behind the cursor. */
static bool
do_range(RangeBatch *batch)
{
	bool		tied;
	JsonbValue	buffer;

	plan_by_key(batch, (const RangeStatement[]) {RANGE_EDGE, RANGE_WORK}, 2);
	if (!find_edge(batch, &tied))
		return false;
	do_work(batch, tied ? RANGE_PICK : RANGE_WORK);
	if (!tied || batch->done < batch->size)
		batch->cursor = batch->cursor == NULL ? batch->upto : merge(batch->cursor, batch->upto);
	/* A pass that has done something is followed by as many vain ones as the first. */
	if (batch->done > 0 && cursor_value(batch, "again", &buffer) != NULL)
		batch->cursor = merge(batch->cursor, read_json("{\"again\": 0}"));
	return true;
}

/* Finds the last key of the batch. Tied: the batch begins with it, and it is not that of the last row. */
static bool
find_edge(RangeBatch *batch, bool *tied)
{
	uint64		count = execute(batch, RANGE_EDGE);

	*tied = false;
	batch->rows = batch->size;
	if (count == 0)
	{
		if (execute_by_key(batch, RANGE_REST) == 0 || sweep_sql_is_null(1))
		{
			batch->rows = 0;
			return false;
		}
		batch->upto = sweep_sql_jsonb(1, batch->context);
		batch->rows = sweep_sql_int64(2);
		return true;
	}
	batch->upto = sweep_sql_jsonb(1, batch->context);
	if (count > 1)
	{
		Jsonb	   *next;

		sweep_sql_row(1);
		next = sweep_sql_jsonb(1, batch->context);
		if (VARSIZE(next) != VARSIZE(batch->upto) || memcmp(next, batch->upto, VARSIZE(next)) != 0)
			return true;
		/* How many rows there are is known when they are done. */
		batch->rows = 0;
		*tied = execute_by_key(batch, RANGE_BEFORE) == 0;
		if (!*tied)
			batch->upto = sweep_sql_jsonb(1, batch->context);
	}
	return true;
}

static void
do_work(RangeBatch *batch, RangeStatement which)
{
	const Statements *statements = batch->statements;
	int64		left;

	batch->done = (int64) (which == RANGE_PICK ? execute_by_key(batch, which) : execute(batch, which));
	if (statements->checked)
	{
		if (!sweep_sql_is_null(2))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("a row meets the condition of the backfill also after it was updated"),
					 errdetail("Its key (%s) is %s.", statements->key, sweep_sql_text(2, batch->context)),
					 errhint("What is set must make the condition false, or the backfill would never end. Add to the condition what "
							 "leaves such rows out.")));
		batch->done = sweep_sql_int64(1);
	}
	left = Max(batch->rows - batch->done, 0);
	batch->rows = Max(Max(batch->rows, batch->done), 1);
	batch->detail = merge(batch->detail, statements->rest_counter != NULL && left > 0 ?
						  read_json(psprintf("{\"%s\": " INT64_FORMAT ", \"%s\": " INT64_FORMAT "}", statements->counter, batch->done,
											 statements->rest_counter, left)) :
						  read_json(psprintf("{\"%s\": " INT64_FORMAT "}", statements->counter, batch->done)));
}

/* Whether there must be another pass, which begins with the next batch. */
static bool
is_left(RangeBatch *batch)
{
	JsonbValue	buffer;
	JsonbValue *again = cursor_value(batch, "again", &buffer);
	int			vain = again != NULL && again->type == jbvNumeric ? DatumGetInt32(DirectFunctionCall1(numeric_int4, NumericGetDatum(again->val.numeric))) : 0;

	if (batch->statements->texts[RANGE_EPILOGUE] == NULL)
		return false;
	/* Of a backfill no index need serve the condition; of what is deleted it is that of the age. */
	if ((batch->statements->checked ? execute(batch, RANGE_EPILOGUE) : execute_by_key(batch, RANGE_EPILOGUE)) == 0 || !sweep_sql_bool(1))
		return false;
	if (vain >= MOST_VAIN_PASSES)
	{
		if (!batch->statements->checked)
			return false;
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("rows that meet the condition of the backfill are not updated"),
				 errhint("Look for a trigger that leaves out an update, or for row level security, and for a condition that depends on the moment.")));
	}
	batch->cursor = read_json(psprintf("{\"again\": %d}", vain + 1));
	return true;
}

/* Returns how many rows it has done or found; the first of the latter is the current one. */
static uint64
execute(RangeBatch *batch, RangeStatement which)
{
	Datum		values[] = {
		Int32GetDatum(batch->size),
		PointerGetDatum(batch->cursor),
		TimestampTzGetDatum(batch->as_of),
		PointerGetDatum(batch->upto),
		Int64GetDatum(batch->run_id),
	};
	const char	nulls[] = {' ', batch->cursor == NULL ? 'n' : ' ', ' ', batch->upto == NULL ? 'n' : ' ', ' '};

	prepare(batch, which);
	return sweep_sql_execute_plan(batch->statements->plans[which], values, nulls);
}

static void
prepare(RangeBatch *batch, RangeStatement which)
{
	SweepPlan **plan = &batch->statements->plans[which];

	if (*plan == NULL)
		*plan = sweep_sql_prepare(batch->statements->texts[which], 5, (Oid[]) {INT4OID, JSONBOID, TIMESTAMPTZOID, JSONBOID, INT8OID}, true);
}

/*
 * A generic plan knows nothing of the keys it is for, takes the range for a large part of the table, and would read all of it.
 * So the planner is told to go by the index, and, but for picked rows, by those of foreign keys as well. Only while it
 * plans: triggers of the table are not to be planned like that, hence not by settings of the function.
 */
static void
plan_by_key(RangeBatch *batch, const RangeStatement *statements, int count)
{
	static const char *const off[] = {"enable_seqscan", "enable_bitmapscan", "enable_sort", "enable_hashjoin", "enable_mergejoin"};
	int			most = statements[0] == RANGE_PICK ? 3 : lengthof(off);
	int			nest_level = NewGUCNestLevel();

	for (int i = 0; i < most; i++)
		(void) set_config_option(off[i], "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	for (int i = 0; i < count; i++)
	{
		prepare(batch, statements[i]);
		sweep_sql_make_plan(batch->statements->plans[statements[i]]);
	}
	AtEOXact_GUC(true, nest_level);
}

/* One that is not needed in each batch. */
static uint64
execute_by_key(RangeBatch *batch, RangeStatement which)
{
	plan_by_key(batch, &which, 1);
	return execute(batch, which);
}

static JsonbValue *
cursor_value(const RangeBatch *batch, const char *key, JsonbValue *buffer)
{
	return batch->cursor == NULL ? NULL : getKeyJsonValueFromContainer(&batch->cursor->root, key, strlen(key), buffer);
}

/* Of two objects; either may be NULL. */
static Jsonb *
merge(Jsonb *a, Jsonb *b)
{
	if (a == NULL || b == NULL)
		return a == NULL ? b : a;
	return DatumGetJsonbP(DirectFunctionCall2(jsonb_concat, JsonbPGetDatum(a), JsonbPGetDatum(b)));
}

static Jsonb *
read_json(const char *text)
{
	return DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(text)));
}
