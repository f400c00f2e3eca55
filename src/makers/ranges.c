/*
 * ranges.c
 *		The step of the jobs that sweep.create_retention, create_backfill and create_copy make: a range of keys per batch.
 *
 * Called by step.c as any other step, as the role of the job. These jobs differ in the text of their statements. The step is
 * C because PL/pgSQL plans a statement on a table that is named in the args each time: a batch of 1000 rows took more than
 * half as long again.
 *
 * A batch with the cursor {"after": key}: "edge" finds the last key of the next batch, "work" does the rows after the cursor
 * up to that key. A deletion of a range is cheaper than one by picked keys. When fewer rows are left than a batch may have,
 * "rest" finds the last of them. Rows of one key cannot be told apart: an edge between two of them ends the batch "before"
 * that key. A batch that begins with the key does as many of these rows as it may ("pick"), and the cursor stays.
 *
 * A cursor with "part" is within a partition; the next partition follows when nothing is left. A cursor with "again" is that
 * of a further pass: the "epilogue" has found rows that were inserted before the cursor, or could not be done. Its value is
 * the number of passes that have done nothing since, so that the last one can report that.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "executor/executor.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"

#include "base/detail.h"
#include "makers/range_cursor.h"
#include "makers/range_statements.h"

/* Rows below one that does not fit that are asked for what keeps them, before anything goes. */
#define MAX_ASKED 1000000

/* A circle of rows goes in one batch up to that many times its size. */
#define MAX_CIRCLE 10

/* Maximum number of passes that do nothing although the epilogue finds rows. */
#define MAX_VAIN_PASSES 3

/* Columns of sweep.batch. */
enum
{
	BATCH_SIZE = 1,
	BATCH_CURSOR,
	BATCH_ARGS,
	BATCH_AS_OF,
	BATCH_RUN_ID = 8
};

typedef struct RangeBatch
{
	SweepRangeKept *kept;
	SweepRangeStatements *statements;	/* those that fit the cursor */
	MemoryContext context;
	int32		size;
	int32		limit;			/* rows of the target that the batch takes at most */
	SweepCascadeRows *roots;	/* that are deleted; NULL = nothing goes with them */
	Datum		places;			/* of rows, for the statements; 0 = none */
	Datum		tables;
	bool		is_full;		/* it looks at as many rows as it may, because none of fewer can be deleted */
	bool		is_large;		/* the root does not fit, with all that goes with it */
	bool		is_in_circle;	/* as was found before */
	bool		abandoned;		/* the row that was dismantled is not to go any more */
	const char *stays;			/* counter of the rows that stay; NULL = none */
	Jsonb	   *cursor;			/* NULL = none */
	Jsonb	   *args;
	TimestampTz as_of;
	int64		run_id;
	Jsonb	   *upto;			/* the last key of the batch, as a cursor */
	int64		rows;			/* read */
	int64		done;
	Jsonb	   *detail;			/* NULL = none */
} RangeBatch;

static void read_batch(RangeBatch *batch, HeapTupleHeader header);
static void choose_statements(RangeBatch *batch);
static bool do_prologue(RangeBatch *batch);
static bool do_range(RangeBatch *batch);
static bool count_roots(RangeBatch *batch, SweepRangeStatement which);
static void read_roots(RangeBatch *batch, SweepRangeStatement which);
static void set_places(RangeBatch *batch, const SweepCascadeRows *rows);
static bool keeps_below(RangeBatch *batch);
static bool remove_large(RangeBatch *batch, bool tied);
static void skip_root(RangeBatch *batch);
static bool go_on_in_next_part(RangeBatch *batch);
static bool find_edge(RangeBatch *batch, bool *tied);
static void do_work(RangeBatch *batch, SweepRangeStatement which);
static void report(RangeBatch *batch);
static bool is_left(RangeBatch *batch);
static uint64 execute(RangeBatch *batch, SweepRangeStatement which);
static uint64 execute_by_key(RangeBatch *batch, SweepRangeStatement which);

PG_FUNCTION_INFO_V1(sweep_ranges_step);

/* SQL: sweep.retention_step, sweep.backfill_step and sweep.copy_step (b sweep.batch) RETURNS sweep.progress */
Datum
sweep_ranges_step(PG_FUNCTION_ARGS)
{
	RangeBatch	batch = {0};
	MemoryContext context = CurrentMemoryContext;
	Datum		values[3];
	bool		nulls[3] = {false};
	HeapTuple	progress;

	read_batch(&batch, PG_GETARG_HEAPTUPLEHEADER(0));
	batch.kept = sweep_range_keep(fcinfo->flinfo, batch.args);
	sweep_sql_begin_call();
	batch.context = CurrentMemoryContext;
	choose_statements(&batch);
	batch.limit = batch.kept->cascade != NULL && batch.kept->fitting > 0 ? Min(batch.size, batch.kept->fitting) : batch.size;
	if (!do_prologue(&batch))
	{
		bool		found = do_range(&batch);

		while (!found && go_on_in_next_part(&batch))
			found = do_range(&batch);
		if (!found && is_left(&batch))
			batch.rows = 1;
	}

	values[0] = Int64GetDatum(batch.rows);
	values[1] = PointerGetDatum(batch.cursor);
	values[2] = PointerGetDatum(batch.detail);
	nulls[1] = batch.cursor == NULL;
	nulls[2] = batch.detail == NULL;
	(void) MemoryContextSwitchTo(context);
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
				 errmsg("this is the step of a job and was not called by one"),
				 errhint("A batch has a size, args, as_of and a run_id.")));
	batch->args = DatumGetJsonbP(args);
	/* A cursor that is no object is not from this step. */
	if (!nulls[BATCH_CURSOR] && JB_ROOT_IS_OBJECT(DatumGetJsonbP(cursor)))
		batch->cursor = DatumGetJsonbP(cursor);
}

/* A cursor of other columns than the key's, or of a partition that was dropped, is dropped. */
static void
choose_statements(RangeBatch *batch)
{
	JsonbValue	buffer;
	bool		again = sweep_range_value(batch->cursor, "again", &buffer) != NULL;
	bool		after = sweep_range_value(batch->cursor, "after", &buffer) != NULL;
	const char *by = sweep_range_text(batch->cursor, "by");
	const char *part = sweep_range_text(batch->cursor, "part");

	batch->statements = sweep_range_find_statements(batch->kept, after, again, part, batch->as_of);
	if (!after || (by != NULL && strcmp(by, batch->statements->key) == 0 && sweep_range_has_part(batch->statements, part)))
		return;
	if (!batch->statements->restarts)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the cursor is not one of \"%s\"", batch->statements->key),
				 errhint("Drop the job and create it anew: it cannot be known what was copied.")));
	batch->cursor = sweep_range_without(sweep_range_without(batch->cursor, "after"), "part");
	batch->statements = sweep_range_find_statements(batch->kept, false, again, batch->statements->part, batch->as_of);
}

/* True when the prologue has done the batch itself. */
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

/* False when there is no row after the cursor. */
static bool
do_range(RangeBatch *batch)
{
	bool		tied;
	JsonbValue	buffer;

	sweep_range_plan_by_key(batch->statements, (const SweepRangeStatement[]) {RANGE_EDGE, RANGE_WORK}, batch->kept->cascade != NULL ? 1 : 2);
	if (!find_edge(batch, &tied))
		return false;
	if (batch->kept->cascade != NULL)
	{
		sweep_cascade_begin_batch(batch->kept->cascade);
		while (!count_roots(batch, tied ? RANGE_SAME_ROOTS : RANGE_ROOTS))
			(void) find_edge(batch, &tied);
		if (batch->is_large && !remove_large(batch, tied))
			return true;
		sweep_dismantle_free(&batch->kept->dismantling);
	}
	do_work(batch, tied || batch->roots != NULL ? RANGE_PICK : RANGE_WORK);
	/* A batch that was cut short does not know whether there are more of the key. */
	if (!tied || batch->done < (batch->roots != NULL ? 1 : batch->limit))
	{
		if (batch->kept->skipped != NULL)
			batch->kept->skipped->count = 0;
		batch->cursor = batch->cursor == NULL ? batch->upto : sweep_range_merge(batch->cursor, batch->upto);
	}
	/* A pass that has done rows sets the number of vain passes to zero. */
	if (batch->done > 0 && sweep_range_value(batch->cursor, "again", &buffer) != NULL)
		batch->cursor = sweep_range_merge(batch->cursor, sweep_detail_read("{\"again\": 0}"));
	return true;
}

/*
 * Reads and locks the rows of the batch, and counts what goes with them. False when all of that is more than a batch may touch, and
 * fewer rows are to be tried. The next batch begins with the number that has fitted into this one, or more when there was room.
 */
static bool
count_roots(RangeBatch *batch, SweepRangeStatement which)
{
	SweepRangeKept *kept = batch->kept;
	const SweepCascadeRows *roots;
	int64		touched;

	read_roots(batch, which);
	roots = batch->roots;
	if (kept->dismantling != NULL && !sweep_dismantle_is_of(kept->dismantling, roots))
	{
		sweep_dismantle_free(&kept->dismantling);
		batch->abandoned = true;
	}
	batch->is_in_circle = kept->circles != NULL && roots->count == 1 && sweep_cascade_is_in_set(kept->circles, roots->tables[0], &roots->places[0]);
	touched = batch->is_in_circle ? (int64) batch->size + 1 : sweep_cascade_count(kept->cascade, roots, 0, roots->count, batch->size);
	batch->is_large = touched > batch->size && roots->count == 1;
	if (touched > batch->size && batch->limit > 1)
	{
		batch->limit = Max(1, batch->limit / 2);
		return false;
	}
	/* A batch without any looks at as many rows as it may. */
	if (roots->count == 0 && batch->limit < batch->size && !batch->is_full)
	{
		batch->limit = batch->size;
		batch->is_full = true;
		return false;
	}
	kept->fitting = (int32) Max(1, Min((int64) batch->limit * 2, (int64) batch->size * batch->limit / Max(touched, 1)));
	return true;
}

static void
read_roots(RangeBatch *batch, SweepRangeStatement which)
{
	SweepRangeKept *kept = batch->kept;
	SweepCascadeRows *roots = sweep_cascade_new_rows(kept->cascade->relation, kept->cascade->columns);
	uint64		count;

	set_places(batch, kept->skipped);
	count = execute_by_key(batch, which);
	for (uint64 i = 0; i < count; i++)
	{
		sweep_sql_row(i);
		sweep_cascade_add_row(roots, batch->context);
	}
	batch->roots = roots;
	set_places(batch, roots);
	sweep_cascade_lock(roots, 0, roots->count);
}

/* The rows that the next statements leave out, or do; NULL = none. */
static void
set_places(RangeBatch *batch, const SweepCascadeRows *rows)
{
	batch->places = rows != NULL ? sweep_cascade_places(rows, 0, rows->count) : (Datum) 0;
	batch->tables = rows != NULL ? sweep_cascade_tables(rows) : (Datum) 0;
}

/* Whether something deep below the row cannot be deleted; asked before anything of it goes. */
static bool
keeps_below(RangeBatch *batch)
{
	SweepRangeKept *kept = batch->kept;
	bool		has_keepers = false;

	for (int i = 0; i < kept->cascade->count; i++)
		has_keepers |= kept->cascade->keys[i].keeps;
	if (!has_keepers || kept->dismantling != NULL || batch->is_in_circle)
		return false;
	(void) sweep_cascade_count(kept->cascade, batch->roots, 0, 1, MAX_ASKED);
	return kept->cascade->is_kept;
}

/*
 * A row that does not fit. True when it is to be deleted at once all the same, as the rows of a circle are; else the batch is done, and the
 * row stays for the next one, or for good.
 */
static bool
remove_large(RangeBatch *batch, bool tied)
{
	SweepRangeKept *kept = batch->kept;
	SweepDismantled result = batch->is_in_circle ? DISMANTLE_CIRCLE : DISMANTLE_GOES_ON;
	int64		most = (int64) batch->size * MAX_CIRCLE;

	batch->rows = 1;
	if (!batch->is_in_circle && (kept->cascade->is_kept || keeps_below(batch)))
		batch->stays = "referenced";
	else if (strcmp(batch->statements->counter, "moved") == 0)
		batch->stays = "too_large";
	else if (!batch->is_in_circle)
		result = sweep_dismantle(&kept->dismantling, &kept->circles, kept->context, kept->cascade, batch->roots, batch->size);
	if (result == DISMANTLE_CIRCLE && !batch->is_in_circle && sweep_cascade_count(kept->cascade, batch->roots, 0, 1, most) <= most)
		return true;
	if (batch->stays == NULL && result != DISMANTLE_GOES_ON)
		batch->stays = result == DISMANTLE_CIRCLE ? "circle" : "kept";
	if (batch->stays != NULL && tied)
		skip_root(batch);
	else if (batch->stays != NULL)
		batch->cursor = batch->cursor == NULL ? batch->upto : sweep_range_merge(batch->cursor, batch->upto);
	report(batch);
	return false;
}

/* Other rows have the same key, so the cursor cannot tell that the row is to be left out. */
static void
skip_root(RangeBatch *batch)
{
	SweepRangeKept *kept = batch->kept;
	MemoryContext old = MemoryContextSwitchTo(kept->context);

	if (kept->skipped == NULL)
		kept->skipped = sweep_cascade_new_rows(kept->cascade->relation, 0);
	sweep_cascade_add_place(kept->skipped, batch->roots->tables[0], &batch->roots->places[0]);
	MemoryContextSwitchTo(old);
}

static bool
go_on_in_next_part(RangeBatch *batch)
{
	const char *next = batch->statements->next_part;

	if (next == NULL)
		return false;
	batch->cursor = sweep_range_merge(batch->cursor == NULL ? NULL : sweep_range_without(batch->cursor, "after"), sweep_detail_read(next));
	batch->upto = NULL;
	choose_statements(batch);
	return true;
}

/* Finds the last key of the batch. Tied: the batch begins with that key, and more rows of it follow. */
static bool
find_edge(RangeBatch *batch, bool *tied)
{
	uint64		count = execute(batch, RANGE_EDGE);

	*tied = false;
	batch->rows = batch->limit;
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
		/* The number of rows is known when they are done. */
		batch->rows = 0;
		*tied = execute_by_key(batch, RANGE_BEFORE) == 0;
		if (!*tied)
			batch->upto = sweep_sql_jsonb(1, batch->context);
	}
	return true;
}

static void
do_work(RangeBatch *batch, SweepRangeStatement which)
{
	const SweepRangeStatements *statements = batch->statements;

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
	report(batch);
}

static void
report(RangeBatch *batch)
{
	const SweepRangeStatements *statements = batch->statements;
	const SweepCascadeRows *skipped = batch->kept->skipped;
	int64		left = Max(batch->rows - batch->done - (skipped != NULL ? skipped->count : 0), 0);
	StringInfoData json;

	initStringInfo(&json);
	appendStringInfo(&json, "{\"%s\": " INT64_FORMAT, statements->counter, batch->done);
	if (batch->stays != NULL)
		appendStringInfo(&json, ", \"%s\": 1", batch->stays);
	if (batch->abandoned)
		appendStringInfoString(&json, ", \"abandoned\": 1");
	if (statements->rest_counter != NULL && left > 0 && !batch->is_large)
		appendStringInfo(&json, ", \"%s\": " INT64_FORMAT, statements->rest_counter, left);
	if (batch->roots != NULL)
		sweep_cascade_report(batch->kept->cascade, batch->done, &json);
	appendStringInfoChar(&json, '}');
	batch->rows = Max(Max(batch->rows, batch->done), 1);
	batch->detail = sweep_range_merge(batch->detail, sweep_detail_read(json.data));
}

/* Whether another pass is needed, which begins with the next batch. */
static bool
is_left(RangeBatch *batch)
{
	JsonbValue	buffer;
	JsonbValue *again = sweep_range_value(batch->cursor, "again", &buffer);
	int			vain = again != NULL && again->type == jbvNumeric ? DatumGetInt32(DirectFunctionCall1(numeric_int4, NumericGetDatum(again->val.numeric))) : 0;

	if (batch->statements->texts[RANGE_EPILOGUE] == NULL)
		return false;
	/* The condition of a backfill may have no index; that of a retention has the index of the age. */
	if ((batch->statements->checked ? execute(batch, RANGE_EPILOGUE) : execute_by_key(batch, RANGE_EPILOGUE)) == 0 || !sweep_sql_bool(1))
		return false;
	if (vain >= MAX_VAIN_PASSES)
	{
		if (!batch->statements->checked)
			return false;
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("rows that meet the condition of the backfill are not updated"),
				 errhint("Look for a trigger that leaves out an update, or for row level security, and for a condition that depends on the moment.")));
	}
	batch->cursor = sweep_detail_read(psprintf("{\"again\": %d}", vain + 1));
	return true;
}

/* Returns the number of rows done or found; the first row found is the current one. */
static uint64
execute(RangeBatch *batch, SweepRangeStatement which)
{
	Datum		values[] = {
		Int32GetDatum(batch->limit),
		PointerGetDatum(batch->cursor),
		TimestampTzGetDatum(batch->as_of),
		PointerGetDatum(batch->upto),
		Int64GetDatum(batch->run_id),
		batch->places,
		batch->tables,
	};
	const char	no_places = batch->places == (Datum) 0 ? 'n' : ' ';
	const char	nulls[] = {' ', batch->cursor == NULL ? 'n' : ' ', ' ', batch->upto == NULL ? 'n' : ' ', ' ', no_places, no_places};

	return sweep_sql_execute_plan(sweep_range_plan(batch->statements, which), values, nulls);
}

/* The same for a statement that not every batch needs. */
static uint64
execute_by_key(RangeBatch *batch, SweepRangeStatement which)
{
	sweep_range_plan_by_key(batch->statements, &which, 1);
	return execute(batch, which);
}
