/*
 * delete_count.c
 *		The dry run of sweep.delete: rows that would be deleted, or lose their reference, by table.
 *
 * Nothing is changed and nothing is locked. The rows of the condition are read as the role of the job, the rows that are deleted or
 * changed with them as the owners of their tables, see cascade.c.
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "base/detail.h"
#include "base/sql.h"
#include "job/job_statement.h"
#include "makers/cascade.h"

/* Number of rows of the condition whose children are counted together. */
#define CHUNK 1000

typedef struct Count
{
	Oid			relation;
	const char *roots;			/* the statement that finds them: tableoid, ctid and the key */
	int64		found;
	SweepCascade *cascade;		/* NULL = no other rows are affected */
} Count;

static void count_rows(Count *count);
static void count_chunk(Count *count, uint64 rows, HTAB *seen);

PG_FUNCTION_INFO_V1(sweep_delete_count);

/* SQL: sweep._count_deletion(role oid, relation regclass, roots text, settings jsonb) RETURNS jsonb */
Datum
sweep_delete_count(PG_FUNCTION_ARGS)
{
	Count		count = {.relation = PG_GETARG_OID(1), .roots = text_to_cstring(PG_GETARG_TEXT_PP(2))};
	SweepDoor	door;

	sweep_job_statement_enter(&door, PG_GETARG_OID(0), PG_GETARG_JSONB_P(3));
	count_rows(&count);
	sweep_door_leave(&door);
	PG_RETURN_JSONB_P(sweep_detail_read(psprintf("{%s}", sweep_cascade_report_counts(count.cascade, count.relation, count.found))));
}

static void
count_rows(Count *count)
{
	MemoryContext context = CurrentMemoryContext;
	HTAB	   *seen = sweep_cascade_new_set(context);
	SweepPlan  *plan;
	SweepCursor *cursor;
	uint64		rows;

	sweep_sql_connect();
	count->cascade = sweep_cascade_make(context, count->relation);
	plan = sweep_sql_prepare(count->roots, 0, NULL, PLANNED_AS_CHOSEN);
	cursor = sweep_sql_open(plan, NULL);
	while ((rows = sweep_sql_fetch(cursor, CHUNK)) > 0)
		count_chunk(count, rows, seen);
	sweep_sql_close(cursor);
	sweep_sql_free_plan(plan);
	sweep_sql_end_call();
}

/* Leaves out rows of the condition that were counted before, as children of others. */
static void
count_chunk(Count *count, uint64 rows, HTAB *seen)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "pg_sweep count", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	SweepCascadeRows *roots = sweep_cascade_new_rows(count->relation, count->cascade != NULL ? count->cascade->columns : 0);

	for (uint64 row = 0; row < rows; row++)
	{
		sweep_sql_row(row);
		if (sweep_cascade_add_to_set(seen, sweep_sql_oid(1), &sweep_sql_tid(2)))
			sweep_cascade_add_row(roots, context);
	}
	count->found += roots->count;
	if (count->cascade != NULL && roots->count > 0)
	{
		/* Has the plans checked again. */
		count->cascade->batch++;
		sweep_cascade_tally(count->cascade, roots, seen);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}
