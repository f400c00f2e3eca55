/*
 * range_statements.c
 *		The statements of a batch that is a range of keys: made by SQL, prepared once, planned to go by an index.
 *
 * Called by ranges.c. sweep._range_statements makes the texts from the args of the job: once per run and not once per job,
 * so that a column, a partition or a foreign key that has come since is in them. They and their plans are kept in the
 * context of the call's FmgrInfo, which is that of the run. A partitioned table may be gone through one partition after the
 * other; then they are those of one of them.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/typcache.h"

#include "makers/range_statements.h"

static SweepStatement range_statements_sql = {
	.text = "SELECT prologue, edge, rest, before, work, pick, epilogue, key, part, next_part, counter, rest_counter, checked, restarts, parts "
		"FROM sweep._range_statements($1, $2, $3, $4, $5, $6, $7)",
	.types = {TEXTOID, JSONBOID, BOOLOID, OIDOID, TIMESTAMPTZOID, TEXTOID, TEXTOID}};

/* Of the statement that makes the others. */
typedef struct Request
{
	Datum	   *values;
	const char *nulls;
} Request;

struct SweepRangeKept
{
	MemoryContextCallback callback;
	Oid			function;
	TupleDesc	progress;
	MemoryContext context;		/* of the texts */
	Jsonb	   *args;
	char	   *parts;			/* the partitions, as an array in SQL; NULL = not known yet, or there are none */
	SweepRangeStatements statements[RANGE_KINDS];
};

bool		sweep_range_preparing = false;

static void forget(SweepRangeKept *kept);
static void free_plans(void *kept);
static bool is_kept(const SweepRangeStatements *statements, const char *part);
static void make(SweepRangeKept *kept, int again, const char *part, TimestampTz as_of);
static void make_work(void *arg);

SweepRangeKept *
sweep_range_keep(FmgrInfo *function, Jsonb *args)
{
	SweepRangeKept *kept = function->fn_extra;
	MemoryContext old = MemoryContextSwitchTo(function->fn_mcxt);

	if (kept == NULL)
	{
		kept = palloc0(sizeof(SweepRangeKept));
		kept->function = function->fn_oid;
		kept->progress = lookup_rowtype_tupdesc_copy(get_func_rettype(function->fn_oid), -1);
		BlessTupleDesc(kept->progress);
		kept->context = AllocSetContextCreate(function->fn_mcxt, "pg_sweep range", ALLOCSET_SMALL_SIZES);
		kept->callback.func = free_plans;
		kept->callback.arg = kept;
		MemoryContextRegisterResetCallback(function->fn_mcxt, &kept->callback);
		function->fn_extra = kept;
	}
	if (kept->args == NULL || VARSIZE(kept->args) != VARSIZE(args) || memcmp(kept->args, args, VARSIZE(args)) != 0)
	{
		forget(kept);
		if (kept->args != NULL)
			pfree(kept->args);
		if (kept->parts != NULL)
			pfree(kept->parts);
		kept->parts = NULL;
		kept->args = DatumGetJsonbPCopy(JsonbPGetDatum(args));
	}
	MemoryContextSwitchTo(old);
	return kept;
}

TupleDesc
sweep_range_progress(const SweepRangeKept *kept)
{
	return kept->progress;
}

static void
forget(SweepRangeKept *kept)
{
	free_plans(kept);
	memset(kept->statements, 0, sizeof(kept->statements));
	MemoryContextReset(kept->context);
}

static void
free_plans(void *arg)
{
	SweepRangeKept *kept = arg;

	for (int kind = 0; kind < RANGE_KINDS; kind++)
	{
		for (int i = 0; i < RANGE_STATEMENT_COUNT; i++)
		{
			if (kept->statements[kind].plans[i] != NULL)
				sweep_sql_free_plan(kept->statements[kind].plans[i]);
			kept->statements[kind].plans[i] = NULL;
		}
	}
}

SweepRangeStatements *
sweep_range_find_statements(SweepRangeKept *kept, int kind, const char *part, TimestampTz as_of)
{
	SweepRangeStatements *found = &kept->statements[kind];

	/* Of one partition at a time: there may be thousands. */
	for (int i = 0; i < RANGE_KINDS; i++)
	{
		if (kept->statements[i].made && !is_kept(&kept->statements[i], part))
			forget(kept);
	}
	if (!found->made)
		make(kept, kind & RANGE_AGAIN, part, as_of);
	return found;
}

static bool
is_kept(const SweepRangeStatements *statements, const char *part)
{
	return part == NULL || statements->part == NULL ? part == statements->part : strcmp(part, statements->part) == 0;
}

/* As the owner of the extension, of names that are looked up and quoted, and of texts that are checked: first and next ones at once. */
static void
make(SweepRangeKept *kept, int again, const char *part, TimestampTz as_of)
{
	Datum		values[] = {
		CStringGetTextDatum(get_func_name(kept->function)),
		JsonbPGetDatum(kept->args),
		BoolGetDatum(again != 0),
		ObjectIdGetDatum(GetUserId()),
		TimestampTzGetDatum(as_of),
		part != NULL ? CStringGetTextDatum(part) : (Datum) 0,
		kept->parts != NULL ? CStringGetTextDatum(kept->parts) : (Datum) 0,
	};
	const char	nulls[] = {' ', ' ', ' ', ' ', ' ', part != NULL ? ' ' : 'n', kept->parts != NULL ? ' ' : 'n'};

	sweep_range_preparing = true;
	sweep_sql_hide_context(make_work, &(Request) {values, nulls});
	sweep_range_preparing = false;
	for (int next = 0; next <= RANGE_NEXT; next++)
	{
		SweepRangeStatements *statements = &kept->statements[next + again];
		int			column = 1;

		sweep_sql_row(next);
		for (int i = 0; i < RANGE_STATEMENT_COUNT; i++)
			statements->texts[i] = sweep_sql_text(column++, kept->context);
		statements->key = sweep_sql_text(column++, kept->context);
		statements->part = sweep_sql_text(column++, kept->context);
		statements->next_part = sweep_sql_text(column++, kept->context);
		statements->counter = sweep_sql_text(column++, kept->context);
		statements->rest_counter = sweep_sql_text(column++, kept->context);
		statements->checked = sweep_sql_bool(column++);
		statements->restarts = sweep_sql_bool(column++);
		statements->made = true;
		/* Looking for them takes longer the more there are, so it is done once. */
		if (kept->parts == NULL)
			kept->parts = sweep_sql_text(column, GetMemoryChunkContext(kept->args));
	}
}

static void
make_work(void *arg)
{
	const Request *request = arg;

	(void) sweep_sql_execute(&range_statements_sql, request->values, request->nulls);
}

/* Parameters: the size, the cursor, as_of, the last key of the batch as a cursor, the run. */
SweepPlan *
sweep_range_plan(SweepRangeStatements *statements, SweepRangeStatement which)
{
	static Oid	types[] = {INT4OID, JSONBOID, TIMESTAMPTZOID, JSONBOID, INT8OID};

	if (statements->plans[which] == NULL)
		statements->plans[which] = sweep_sql_prepare(statements->texts[which], lengthof(types), types, true);
	return statements->plans[which];
}

/*
 * A generic plan knows nothing of the keys it is for, takes the range for a large part of the table, and would read all of it.
 * So the planner is told to go by the index, and, but for picked rows, by those of foreign keys as well. Only while it
 * plans: triggers of the table are not to be planned like that, hence not by settings of the function.
 */
void
sweep_range_plan_by_key(SweepRangeStatements *statements, const SweepRangeStatement *which, int count)
{
	static const char *const off[] = {"enable_seqscan", "enable_bitmapscan", "enable_sort", "enable_hashjoin", "enable_mergejoin"};
	int			most = which[0] == RANGE_PICK ? 3 : lengthof(off);
	int			nest_level = NewGUCNestLevel();

	for (int i = 0; i < most; i++)
		(void) set_config_option(off[i], "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	for (int i = 0; i < count; i++)
		sweep_sql_make_plan(sweep_range_plan(statements, which[i]));
	AtEOXact_GUC(true, nest_level);
}
