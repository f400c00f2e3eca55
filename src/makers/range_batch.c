/*
 * range_batch.c
 *		A batch that is a range of keys: its edge, its work, its report.
 *
 * Called by ranges.c and range_roots.c.
 */
#include "postgres.h"

#include "lib/stringinfo.h"

#include "base/detail.h"
#include "makers/range_batch.h"
#include "makers/range_cursor.h"

static void note_pass(SweepRangeBatch *batch);

bool
sweep_range_find_edge(SweepRangeBatch *batch)
{
	uint64		count = sweep_range_execute(batch, RANGE_EDGE);

	batch->tied = false;
	batch->rows = batch->limit;
	if (count == 0)
	{
		if (batch->statements->by_place || sweep_range_execute_by_key(batch, RANGE_REST) == 0 || sweep_sql_is_null(1))
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
		sweep_sql_row(1);
		if (!sweep_sql_bool(2))
			return true;
		/* The number of rows is not known before the work is done. */
		batch->rows = 0;
		batch->tied = sweep_range_execute_by_key(batch, RANGE_BEFORE) == 0;
		if (!batch->tied)
			batch->upto = sweep_sql_jsonb(1, batch->context);
	}
	return true;
}

void
sweep_range_do_work(SweepRangeBatch *batch, SweepRangeStatement which)
{
	const SweepRangeStatements *statements = batch->statements;

	batch->done = (int64) (which == RANGE_PICK ? sweep_range_execute_by_key(batch, which) : sweep_range_execute(batch, which));
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
}

void
sweep_range_advance(SweepRangeBatch *batch)
{
	MemoryContext old = MemoryContextSwitchTo(batch->context);

	if (batch->kept->skipped != NULL)
		batch->kept->skipped->count = 0;
	batch->cursor = batch->cursor == NULL ? batch->upto : sweep_range_merge(sweep_range_without(batch->cursor, SWEEP_RANGE_TRIED), batch->upto);
	MemoryContextSwitchTo(old);
}

void
sweep_range_pass_over(SweepRangeBatch *batch, int64 count)
{
	MemoryContext old = MemoryContextSwitchTo(batch->context);
	int64		tried = sweep_range_number(batch->cursor, SWEEP_RANGE_TRIED, 0) + count;

	if (count > 0)
		batch->cursor = sweep_range_merge(batch->cursor, sweep_detail_read(psprintf("{\"" SWEEP_RANGE_TRIED "\": " INT64_FORMAT "}", tried)));
	MemoryContextSwitchTo(old);
}

void
sweep_range_report(SweepRangeBatch *batch)
{
	const SweepRangeStatements *statements = batch->statements;
	int64		left = Max(batch->rows - batch->done - batch->held, 0);
	StringInfoData json;

	if (statements->by_place)
		note_pass(batch);
	initStringInfo(&json);
	appendStringInfo(&json, "{\"%s\": " INT64_FORMAT, statements->counter, batch->done);
	if (batch->stays != NULL)
		appendStringInfo(&json, ", \"%s\": 1", batch->stays);
	if (batch->abandoned)
		appendStringInfoString(&json, ", \"abandoned\": 1");
	if (batch->locked > 0)
		appendStringInfo(&json, ", \"locked\": " INT64_FORMAT, batch->locked);
	if (statements->rest_counter != NULL && left > 0 && !batch->is_large)
		appendStringInfo(&json, ", \"%s\": " INT64_FORMAT, statements->rest_counter, left);
	if (batch->roots != NULL && batch->kept->cascade->count > 0)
		sweep_cascade_report(batch->kept->cascade, batch->done, &json);
	appendStringInfoChar(&json, '}');
	batch->rows = Max(Max(batch->rows, batch->done), 1);
	batch->detail = sweep_range_merge(batch->detail, sweep_detail_read(json.data));
}

/* After a batch by ctid that has deleted or changed rows, another pass follows. */
static void
note_pass(SweepRangeBatch *batch)
{
	int64		stays = sweep_range_number(batch->cursor, SWEEP_RANGE_STAYS, 0) + batch->rows - batch->done;

	if (batch->done > 0)
		batch->cursor = sweep_range_merge(batch->cursor, sweep_detail_read("{\"" SWEEP_RANGE_LEFT "\": true}"));
	if (stays > 0)
		batch->cursor = sweep_range_merge(batch->cursor, sweep_detail_read(psprintf("{\"" SWEEP_RANGE_STAYS "\": " INT64_FORMAT "}", stays)));
}

uint64
sweep_range_execute(SweepRangeBatch *batch, SweepRangeStatement which)
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

	if (which == RANGE_ORDERING)
		return sweep_sql_execute_latest(sweep_range_plan(batch->statements, which), values, nulls);
	return sweep_sql_execute_plan(sweep_range_plan(batch->statements, which), values, nulls);
}

uint64
sweep_range_execute_by_key(SweepRangeBatch *batch, SweepRangeStatement which)
{
	sweep_range_plan_by_key(batch->statements, &which, 1);
	return sweep_range_execute(batch, which);
}
