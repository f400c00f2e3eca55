/*
 * range_statements.c
 *		The statements of a batch that is a range of keys: made by SQL, prepared once, planned to use an index.
 *
 * Called by ranges.c. sweep._range_statements makes the texts from the args of the job once per run, so that they include
 * a column, a partition or a foreign key that was added since the job was created. Texts and plans are kept in the context
 * of the call's FmgrInfo, which lives as long as the run. A job may work on the partitions of a table one after the other;
 * the statements are then those of one partition.
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "catalog/partition.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/regproc.h"
#include "utils/typcache.h"

#include "base/compat.h"
#include "base/extension.h"
#include "base/txn.h"
#include "makers/range_cursor.h"
#include "makers/range_statements.h"

static SweepStatement range_statements_sql = {
	.text = "SELECT prologue, edge, rest, before, work, pick, roots, same_roots, epilogue, ordering, reads, key, part, next_part, "
		"counter, rest_counter, checked, restarts, custom, parts, cascading "
		"FROM sweep._range_statements($1, $2, $3, $4, $5, $6, $7, $8)",
	.types = {TEXTOID, JSONBOID, BOOLOID, OIDOID, TIMESTAMPTZOID, TEXTOID, TEXTOID, TEXTOID}};

/* How often statements are made for a partition that is none of the table any more when it is locked. */
#define MAX_MAKINGS 10

bool		sweep_range_preparing = false;

static void forget(SweepRangeKept *kept);
static void free_plans(void *kept);
static bool is_in_target(const SweepRangeKept *kept);
static Oid	find_table(const char *name);
static void lock_table(const char *name, LOCKMODE mode);
static void make(SweepRangeKept *kept, bool again, const char *part, TimestampTz as_of);

SweepRangeKept *
sweep_range_keep(FmgrInfo *function, Jsonb *args)
{
	SweepRangeKept *kept = function->fn_extra;
	MemoryContext old = MemoryContextSwitchTo(function->fn_mcxt);

	if (kept == NULL)
	{
		kept = palloc0(sizeof(SweepRangeKept));
		kept->function = function->fn_oid;
		kept->run_context = function->fn_mcxt;
		kept->progress = lookup_rowtype_tupdesc_copy(get_func_rettype(function->fn_oid), -1);
		sweep_row_check(kept->progress, (const Oid[]) {INT8OID, JSONBOID, JSONBOID}, 3);
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

static void
forget(SweepRangeKept *kept)
{
	free_plans(kept);
	memset(kept->statements, 0, sizeof(kept->statements));
	kept->made = false;
	kept->cascade = NULL;
	kept->dismantling = NULL;
	kept->circles = NULL;
	kept->skipped = NULL;
	MemoryContextReset(kept->context);
}

static void
free_plans(void *arg)
{
	SweepRangeKept *kept = arg;

	for (int i = 0; i < 2 * RANGE_STATEMENT_COUNT; i++)
		sweep_sql_free_plan(kept->statements[i % 2].plans[i / 2]);
}

SweepRangeStatements *
sweep_range_find_statements(SweepRangeKept *kept, bool after, bool again, const char *part, TimestampTz as_of)
{
	/* There may be thousands of partitions: the statements of one are kept. */
	if (kept->made && (kept->again != again || !sweep_range_has_part(kept->statements, part)))
		forget(kept);
	for (int i = 0; !kept->made || !is_in_target(kept); i++)
	{
		if (i == MAX_MAKINGS)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_IN_USE),
					 errmsg("partitions of %s are attached and detached all the time", sweep_range_text(kept->args, "target")),
					 errhint("Start the job again.")));
		forget(kept);
		make(kept, again, part, as_of);
	}
	return &kept->statements[after];
}

/*
 * Whether the partition is still one of the table, also by its name; it stays one until the transaction ends. The rows of one that was
 * detached are not those of the table any more.
 */
static bool
is_in_target(const SweepRangeKept *kept)
{
	const char *part = kept->statements[0].part;
	Oid			relation = part != NULL ? find_table(part) : InvalidOid;
	List	   *ancestors;

	if (part == NULL)
		return true;
	if (!OidIsValid(relation))
		return false;
	LockRelationOid(relation, RowExclusiveLock);
	if (find_table(part) != relation || !get_rel_relispartition(relation))
		return false;
	ancestors = get_partition_ancestors(relation);
	return list_member_oid(ancestors, find_table(sweep_range_text(kept->args, "target")));
}

static Oid
find_table(const char *name)
{
	return name == NULL ? InvalidOid : RangeVarGetRelid(makeRangeVarFromNameList(sweep_qualified_name_list(name)), NoLock, true);
}

/* Columns of a partition are altered with those of the table, and it is locked. The statement that inserts is of both tables. */
bool
sweep_range_is_altered(const SweepRangeKept *kept, const SweepRangeStatements *statements)
{
	const char *source = sweep_range_text(kept->args, "source");
	SweepPlan  *work = statements->plans[statements->texts[RANGE_WORK] != NULL ? RANGE_WORK : RANGE_PICK];

	if (statements->part == NULL)
		lock_table(source != NULL ? source : sweep_range_text(kept->args, "target"), AccessShareLock);
	lock_table(sweep_range_text(kept->args, source != NULL ? "target" : "archive_to"), RowExclusiveLock);
	return statements->plans[RANGE_EDGE] == NULL || !sweep_sql_is_valid(statements->plans[RANGE_EDGE]) || (work != NULL && !sweep_sql_is_valid(work));
}

static void
lock_table(const char *name, LOCKMODE mode)
{
	Oid			relation = find_table(name);

	if (OidIsValid(relation))
		LockRelationOid(relation, mode);
}

bool
sweep_range_has_part(const SweepRangeStatements *statements, const char *part)
{
	return part == NULL || statements->part == NULL ? part == statements->part : strcmp(part, statements->part) == 0;
}

/* Executed as the owner of the extension, from names that are looked up and quoted, and from texts that are checked. */
static void
make(SweepRangeKept *kept, bool again, const char *part, TimestampTz as_of)
{
	Datum		values[] = {
		CStringGetTextDatum(get_func_name(kept->function)),
		JsonbPGetDatum(sweep_range_merge(kept->args, kept->range)),
		BoolGetDatum(again),
		ObjectIdGetDatum(GetUserId()),
		TimestampTzGetDatum(as_of),
		part != NULL ? CStringGetTextDatum(part) : (Datum) 0,
		kept->parts != NULL ? CStringGetTextDatum(kept->parts) : (Datum) 0,
		CStringGetTextDatum(namespace_search_path),
	};
	Oid			cascading = InvalidOid;
	const char	nulls[] = {' ', ' ', ' ', ' ', ' ', part != NULL ? ' ' : 'n', kept->parts != NULL ? ' ' : 'n', ' '};

	sweep_range_preparing = true;
	sweep_txn_hide_context(sweep_sql_execute_work, &(SweepExecution) {&range_statements_sql, values, nulls});
	for (int after = 0; after <= 1; after++)
	{
		SweepRangeStatements *statements = &kept->statements[after];
		int			column = 1;

		sweep_sql_row(after);
		for (int i = 0; i < RANGE_STATEMENT_COUNT; i++)
			statements->texts[i] = sweep_sql_text(column++, kept->context);
		statements->key = sweep_sql_text(column++, kept->context);
		statements->by_place = strcmp(statements->key, "ctid") == 0;
		statements->part = sweep_sql_text(column++, kept->context);
		statements->next_part = sweep_sql_text(column++, kept->context);
		statements->counter = sweep_sql_text(column++, kept->context);
		statements->rest_counter = sweep_sql_text(column++, kept->context);
		statements->checked = sweep_sql_bool(column++);
		statements->restarts = sweep_sql_bool(column++);
		statements->custom = sweep_sql_bool(column++);
		/* Looking for many partitions takes long. */
		if (kept->parts == NULL)
			kept->parts = sweep_sql_text(column, GetMemoryChunkContext(kept->args));
		cascading = sweep_sql_oid(column + 1);
	}
	if (OidIsValid(cascading))
		kept->cascade = sweep_cascade_make(kept->context, cascading);
	/* Rows are locked by their places in the same way when nothing goes with them. */
	if (kept->cascade == NULL && kept->statements[0].by_place)
		kept->cascade = MemoryContextAllocZero(kept->context, sizeof(SweepCascade));
	sweep_range_preparing = false;
	kept->again = again;
	kept->made = true;
}

/* Parameters: the size, the cursor, as_of, the last key of the batch as a cursor, the run_id, places and their tables. */
SweepPlan *
sweep_range_plan(SweepRangeStatements *statements, SweepRangeStatement which)
{
	static Oid	types[] = {INT4OID, JSONBOID, TIMESTAMPTZOID, JSONBOID, INT8OID, TIDARRAYOID, OIDARRAYOID};

	if (statements->plans[which] == NULL)
		statements->plans[which] = sweep_sql_prepare(statements->texts[which], lengthof(types), types, statements->custom ? PLANNED_EACH_TIME : PLANNED_ONCE);
	return statements->plans[which];
}

/*
 * A generic plan does not know the keys, estimates the range as a large part of the table, and would read all of it. These
 * settings make the planner use the index and, except for picked rows, the indexes of foreign keys. They hold during planning
 * only, and are no settings of the function: queries of the table's triggers are planned as ever.
 */
void
sweep_range_plan_by_key(SweepRangeStatements *statements, const SweepRangeStatement *which, int count)
{
	static const char *const off[] = {"enable_seqscan", "enable_bitmapscan", "enable_sort", "enable_hashjoin", "enable_mergejoin"};
	int			settings = which[0] == RANGE_PICK ? 3 : lengthof(off);
	int			nest_level;

	if (statements->custom)
		return;
	nest_level = NewGUCNestLevel();
	for (int i = 0; i < settings; i++)
		(void) set_config_option(off[i], "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	for (int i = 0; i < count; i++)
		sweep_sql_make_plan(sweep_range_plan(statements, which[i]));
	AtEOXact_GUC(true, nest_level);
}
