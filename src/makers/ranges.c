/*
 * ranges.c
 *		The step of the jobs of sweep.create_retention, create_backfill and create_copy: a range of keys per batch.
 *
 * Called by step.c like any other step, as the role of the job. These jobs differ only in the text of their statements. The step
 * is C because PL/pgSQL would plan a statement on a table that is named in the args each time, which made a batch of 1000 rows
 * take more than 1.5 times as long.
 *
 * For a batch with the cursor {"after": key}, "edge" finds the last key of the batch, and "work" deletes, moves or updates the rows after the
 * cursor up to that key. A range is cheaper to delete than a list of keys. When fewer rows are left than fit into a batch, "rest" finds the last
 * of them. A cursor cannot distinguish rows with the same key: if the edge is between two such rows, the batch ends "before" that key. A batch
 * that begins with the key takes as many of its rows as it may ("pick"), and the cursor stays.
 *
 * A cursor with "part" is within a partition; the next partition follows when nothing is left. A cursor with "again" is that of a
 * further pass: the "epilogue" has found rows that were inserted before the cursor, or were left. Its value is the number of
 * passes that have changed nothing since; after the last one the rows are reported.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/namespace.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_type_d.h"
#include "executor/executor.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/typcache.h"

#include "base/detail.h"
#include "base/extension.h"
#include "base/txn.h"
#include "engine/step.h"
#include "makers/range_cursor.h"
#include "makers/range_roots.h"

/* Maximum number of passes that do nothing although the epilogue finds rows. */
#define MAX_VAIN_PASSES 3

static SweepStatement range_of_sql = {
	.text = "SELECT range, cursor FROM sweep._range_of($1, $2, $3)",
	.types = {INT8OID, INT4OID, OIDOID}};

/*
 * Start of the oldest transaction in progress that has written something. A transaction without an xid has written nothing yet: all its rows
 * will be newer than the proof. A scheduler only writes tables of sweep.
 */
static SweepStatement open_since_sql = {
	.text = "SELECT pg_catalog.min(t.since) FROM (SELECT a.xact_start FROM pg_catalog.pg_stat_activity a WHERE a.backend_xid IS NOT NULL AND a.pid <> pg_catalog.pg_backend_pid() "
		"AND a.backend_type NOT IN ('autovacuum worker', 'pg_sweep scheduler') AND a.datname = pg_catalog.current_database() UNION ALL SELECT p.prepared FROM pg_catalog.pg_prepared_xacts p WHERE p.database = pg_catalog.current_database()) AS t (since)"};

static SweepStatement keep_proof_sql = {
	.text = "INSERT INTO sweep.retention_proof AS p (job, run_as, run_id, proved_at, proof, system_identifier, database) "
		"SELECT r.job, r.run_as, r.run_id, pg_catalog.statement_timestamp(), $2 || pg_catalog.jsonb_build_object('open_since', $3), sweep._system_identifier(), (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database()) "
		"FROM sweep.run_live r JOIN sweep.job_definition j ON j.name = r.job AND j.run_as = r.run_as WHERE r.run_id = $1 AND r.status = 'running' AND r.pid = pg_catalog.pg_backend_pid() "
		"ON CONFLICT (job) DO UPDATE SET run_as = excluded.run_as, run_id = excluded.run_id, proved_at = excluded.proved_at, proof = excluded.proof, "
		"system_identifier = excluded.system_identifier, database = excluded.database",
	.types = {INT8OID, JSONBOID, TIMESTAMPTZOID}};

/* Result of the epilogue. */
typedef struct Rest
{
	bool		is_left;		/* rows are left that could be deleted, moved or updated */
	int64		left;			/* how many; 0 = not counted */
	int64		referenced;		/* rows that stay because others refer to them */
	Jsonb	   *proof;			/* NULL = none */
	TimestampTz open_since;		/* start of the oldest transaction that the proof does not see; 0 = none */
} Rest;

static void check_batch(HeapTupleHeader header);
static void read_batch(SweepRangeBatch *batch, HeapTupleHeader header);
static int	enter_path(const SweepRangeBatch *batch);
static void find_range(SweepRangeBatch *batch);
static void choose_statements(SweepRangeBatch *batch);
static void check_ordering(SweepRangeBatch *batch);
static bool do_prologue(SweepRangeBatch *batch);
static bool do_range(SweepRangeBatch *batch);
static bool find_edge(SweepRangeBatch *batch);
static void find_edge_work(void *batch);
static void read_key_work(void *batch);
static bool is_of_value(const ErrorData *error);
static bool is_more_of_key(SweepRangeBatch *batch);
static bool go_on_in_next_part(SweepRangeBatch *batch);
static bool is_left(SweepRangeBatch *batch);
static Rest look_for_rest(SweepRangeBatch *batch);
static void report_rest(SweepRangeBatch *batch, const char *counter, int64 count);
static Jsonb *begin_again(Jsonb *cursor, int vain);

PG_FUNCTION_INFO_V1(sweep_ranges_step);

/* SQL: sweep.retention_step, sweep.backfill_step and sweep.copy_step (b sweep.batch) RETURNS sweep.progress */
Datum
sweep_ranges_step(PG_FUNCTION_ARGS)
{
	SweepRangeBatch	batch = {0};
	MemoryContext context = CurrentMemoryContext;
	Datum		values[3];
	bool		nulls[3] = {false};
	HeapTuple	progress;
	int			nest_level;

	if (fcinfo->flinfo->fn_extra == NULL)
		check_batch(PG_GETARG_HEAPTUPLEHEADER(0));
	read_batch(&batch, PG_GETARG_HEAPTUPLEHEADER(0));
	nest_level = enter_path(&batch);
	batch.kept = sweep_range_keep(fcinfo->flinfo, batch.args);
	sweep_sql_begin_call();
	batch.context = CurrentMemoryContext;
	if (batch.bucket >= 0)
		find_range(&batch);
	choose_statements(&batch);
	check_ordering(&batch);
	batch.limit = batch.kept->cascade != NULL && batch.kept->fitting > 0 ? Min(batch.size, batch.kept->fitting) : batch.size;
	if (!do_prologue(&batch))
	{
		bool		found = do_range(&batch);

		while (!found && go_on_in_next_part(&batch))
			found = do_range(&batch);
		if (!found && is_left(&batch))
			batch.rows = 1;
	}
	batch.kept->has_begun = true;

	values[0] = Int64GetDatum(batch.rows);
	values[1] = PointerGetDatum(batch.cursor);
	values[2] = PointerGetDatum(batch.detail);
	nulls[1] = batch.cursor == NULL;
	nulls[2] = batch.detail == NULL;
	(void) MemoryContextSwitchTo(context);
	progress = sweep_row_form(batch.kept->progress, values, nulls, lengthof(values));
	sweep_sql_end_call();
	if (nest_level > 0)
		AtEOXact_GUC(true, nest_level);
	return HeapTupleGetDatum(progress);
}

static void
check_batch(HeapTupleHeader header)
{
	TupleDesc	columns = lookup_rowtype_tupdesc(HeapTupleHeaderGetTypeId(header), HeapTupleHeaderGetTypMod(header));

	sweep_row_check(columns, sweep_batch_types, BATCH_COLUMNS);
	ReleaseTupleDesc(columns);
}

static void
read_batch(SweepRangeBatch *batch, HeapTupleHeader header)
{
	bool		nulls[BATCH_COLUMNS] = {false};
	Datum		cursor = GetAttributeByNum(header, BATCH_CURSOR + 1, &nulls[BATCH_CURSOR]);
	Datum		args = GetAttributeByNum(header, BATCH_ARGS + 1, &nulls[BATCH_ARGS]);

	batch->size = DatumGetInt32(GetAttributeByNum(header, BATCH_SIZE + 1, &nulls[BATCH_SIZE]));
	batch->as_of = DatumGetTimestampTz(GetAttributeByNum(header, BATCH_AS_OF + 1, &nulls[BATCH_AS_OF]));
	batch->run_id = DatumGetInt64(GetAttributeByNum(header, BATCH_RUN_ID + 1, &nulls[BATCH_RUN_ID]));
	batch->bucket = DatumGetInt32(GetAttributeByNum(header, BATCH_BUCKET + 1, &nulls[BATCH_BUCKET]));
	if (nulls[BATCH_BUCKET])
		batch->bucket = -1;
	if (nulls[BATCH_SIZE] || nulls[BATCH_ARGS] || nulls[BATCH_AS_OF] || nulls[BATCH_RUN_ID] || batch->size < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("this is the step of a job and was not called by one"),
				 errhint("A batch has a size, args, as_of and a run_id.")));
	batch->args = DatumGetJsonbP(args);
	/* A cursor that is no object was not returned by this step. */
	if (!nulls[BATCH_CURSOR] && JB_ROOT_IS_OBJECT(DatumGetJsonbP(cursor)))
		batch->cursor = DatumGetJsonbP(cursor);
}

/*
 * A statement of sweep.batched is stored as PostgreSQL writes it, without the schema in names of pg_catalog. If the search_path of the job has
 * another schema before pg_catalog, pg_catalog is put first; triggers and functions still find all other names. Returns the nest level of the
 * setting, 0 = none.
 */
static int
enter_path(const SweepRangeBatch *batch)
{
	JsonbValue	buffer;
	List	   *path = sweep_range_value(batch->args, "statement", &buffer) != NULL ? fetch_search_path(true) : NIL;
	int			nest_level;

	if (path != NIL && isTempNamespace(linitial_oid(path)))
		path = list_delete_first(path);
	if (path == NIL || linitial_oid(path) == PG_CATALOG_NAMESPACE)
		return 0;
	nest_level = NewGUCNestLevel();
	(void) set_config_option("search_path", psprintf("pg_catalog, %s", namespace_search_path), PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	return nest_level;
}

/* Reads the range of the share once. Until one of its batches has committed, the share begins where an earlier share of this range has stopped. */
static void
find_range(SweepRangeBatch *batch)
{
	SweepRangeKept *kept = batch->kept;
	Datum		values[] = {Int64GetDatum(batch->run_id), Int32GetDatum(batch->bucket), ObjectIdGetDatum(GetUserId())};

	if (kept->range == NULL && sweep_sql_execute(&range_of_sql, values, NULL) == 1 && !sweep_sql_is_null(1))
	{
		kept->range = sweep_sql_jsonb(1, kept->run_context);
		kept->range_cursor = sweep_sql_jsonb(2, kept->run_context);
	}
	if (batch->cursor == NULL && kept->range_cursor != NULL)
		batch->cursor = kept->range_cursor;
}

/* Discards a cursor that has other columns than the key, or whose partition was dropped. */
static void
choose_statements(SweepRangeBatch *batch)
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

/*
 * Raises an error if the key was given other columns, types or collations, and so another order; or, also in a first batch, if other
 * columns are to be moved or copied. Only tables that may have been altered are checked.
 */
static void
check_ordering(SweepRangeBatch *batch)
{
	JsonbValue	buffer;

	if (batch->statements->texts[RANGE_ORDERING] != NULL && sweep_range_is_altered(batch->kept, batch->statements) &&
		(batch->cursor != NULL || sweep_range_value(batch->args, "archive_to", &buffer) != NULL || sweep_range_value(batch->args, "source", &buffer) != NULL))
		(void) sweep_range_execute(batch, RANGE_ORDERING);
}

/* True when the prologue has done the work of the batch. */
static bool
do_prologue(SweepRangeBatch *batch)
{
	bool		done;

	if (batch->statements->texts[RANGE_PROLOGUE] == NULL || sweep_range_execute_by_key(batch, RANGE_PROLOGUE) == 0)
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
do_range(SweepRangeBatch *batch)
{
	JsonbValue	buffer;

	if (!find_edge(batch))
		return false;
	if (batch->kept->cascade != NULL)
		sweep_range_remove_roots(batch);
	else
	{
		sweep_range_do_work(batch, batch->tied ? RANGE_PICK : RANGE_WORK);
		if (!batch->tied || !is_more_of_key(batch))
			sweep_range_advance(batch);
		sweep_range_report(batch);
	}
	/* A batch that has changed rows resets the number of passes without changes. */
	if (batch->done > 0 && sweep_range_value(batch->cursor, "again", &buffer) != NULL)
		batch->cursor = sweep_range_merge(batch->cursor, sweep_detail_read("{\"again\": 0}"));
	return true;
}

/*
 * The column may not accept the key of an earlier run any more: a value of an enum was renamed, or the column has another type. If rows
 * that were done can be recognized ("restarts"), the pass then begins anew. It does not when the condition, or a value of a row, has
 * raised the error: a new pass would fail there again, and runs with a limit might end before that place each time.
 */
static bool
find_edge(SweepRangeBatch *batch)
{
	JsonbValue	buffer;
	ErrorData  *error;
	ErrorData  *reading;

	sweep_range_plan_by_key(batch->statements, (const SweepRangeStatement[]) {RANGE_EDGE, RANGE_WORK}, batch->kept->cascade != NULL ? 1 : 2);
	if (batch->kept->has_begun || !batch->statements->restarts || batch->statements->by_place ||
		sweep_range_value(batch->cursor, "after", &buffer) == NULL || sweep_range_value(batch->cursor, "ordering", &buffer) != NULL)
		return sweep_range_find_edge(batch);
	error = sweep_txn_savepoint(find_edge_work, batch, true);
	if (error == NULL)
		return batch->upto != NULL;
	if (!is_of_value(error) || (reading = sweep_txn_savepoint(read_key_work, batch, false)) == NULL)
		ReThrowError(error);
	if (!is_of_value(reading))
		ReThrowError(reading);
	batch->cursor = sweep_range_without(sweep_range_without(sweep_range_without(batch->cursor, "after"), "part"), SWEEP_RANGE_TRIED);
	choose_statements(batch);
	return find_edge(batch);
}

static void
find_edge_work(void *batch)
{
	(void) sweep_range_find_edge(batch);
}

static void
read_key_work(void *batch)
{
	(void) sweep_range_execute(batch, RANGE_READS);
}

static bool
is_of_value(const ErrorData *error)
{
	return ERRCODE_TO_CATEGORY(error->sqlerrcode) == ERRCODE_DATA_EXCEPTION || error->sqlerrcode == ERRCODE_CHECK_VIOLATION;
}

/* Whether rows of the key were not tried yet. */
static bool
is_more_of_key(SweepRangeBatch *batch)
{
	if (batch->done == batch->limit)
		return true;
	if (batch->statements->texts[RANGE_SAME_ROOTS] == NULL)
		return false;
	sweep_range_pass_over(batch, batch->limit - batch->done);
	return sweep_range_execute_by_key(batch, RANGE_SAME_ROOTS) > 0;
}

static bool
go_on_in_next_part(SweepRangeBatch *batch)
{
	const char *next = batch->statements->next_part;

	if (next == NULL)
		return false;
	batch->cursor = sweep_range_merge(batch->cursor == NULL ? NULL : sweep_range_without(sweep_range_without(batch->cursor, "after"), SWEEP_RANGE_TRIED), sweep_detail_read(next));
	batch->upto = NULL;
	choose_statements(batch);
	return true;
}

/* Whether another pass is needed, which begins with the next batch. */
static bool
is_left(SweepRangeBatch *batch)
{
	const SweepRangeStatements *statements = batch->statements;
	JsonbValue	held;
	bool		was_held = sweep_range_value(batch->cursor, SWEEP_RANGE_LEFT, &held) != NULL;
	int			vain = (int) sweep_range_number(batch->cursor, "again", 0);
	Rest		rest = look_for_rest(batch);
	bool		is_left = rest.is_left || was_held;

	/* If no row was left because of locks, another pass would change as little as the last one. */
	if (is_left && vain < (statements->checked || was_held ? MAX_VAIN_PASSES : 1))
	{
		batch->cursor = begin_again(batch->cursor, vain + 1);
		/* Rows may have moved to partitions that were empty. */
		if (batch->kept->parts != NULL)
			pfree(batch->kept->parts);
		batch->kept->parts = NULL;
		return true;
	}
	if (is_left && statements->checked)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("rows that meet the condition of the backfill are not updated"),
				 errhint("Look for a trigger that leaves out an update, or for row level security, and for a condition that depends on the moment.")));
	report_rest(batch, "left", rest.left + sweep_range_number(batch->cursor, SWEEP_RANGE_STAYS, 0));
	report_rest(batch, "referenced", rest.referenced);

	/*
	 * The proof is committed with the batch that finds nothing more to do. It is stored only for the run that this process executes, not
	 * for a call of the step by hand.
	 */
	if (rest.proof != NULL)
		(void) sweep_sql_execute(&keep_proof_sql, (Datum[]) {Int64GetDatum(batch->run_id), JsonbPGetDatum(rest.proof), TimestampTzGetDatum(rest.open_since)},
								 rest.open_since == 0 ? "  n" : NULL);
	return false;
}

static void
report_rest(SweepRangeBatch *batch, const char *counter, int64 count)
{
	if (count > 0)
		batch->detail = sweep_range_merge(batch->detail, sweep_detail_read(psprintf("{\"%s\": " INT64_FORMAT "}", counter, count)));
}

/* The cursor for the start of a pass. From the pass before, it only keeps the bound of a deletion. */
static Jsonb *
begin_again(Jsonb *cursor, int vain)
{
	static const char *const ended[] = {"by", "after", "part", SWEEP_RANGE_TRIED, SWEEP_RANGE_LEFT, SWEEP_RANGE_STAYS};

	for (int i = 0; cursor != NULL && i < (int) lengthof(ended); i++)
		cursor = sweep_range_without(cursor, ended[i]);
	return sweep_range_merge(cursor, sweep_detail_read(psprintf("{\"again\": %d}", vain)));
}

/* The epilogue of a retention is planned to use the index of the age; another condition may have no index. */
static Rest
look_for_rest(SweepRangeBatch *batch)
{
	JsonbValue	buffer;
	bool		has_age = sweep_range_value(batch->args, "keep", &buffer) != NULL;
	TimestampTz open_since = 0;
	Rest		rest = {0};

	/* Read before the proof: a transaction that the proof does not see is among these, or begins later. */
	if (has_age && sweep_sql_execute(&open_since_sql, NULL, NULL) > 0 && !sweep_sql_is_null(1))
		open_since = sweep_sql_moment(1);
	if (batch->statements->texts[RANGE_EPILOGUE] != NULL &&
		(has_age ? sweep_range_execute_by_key(batch, RANGE_EPILOGUE) : sweep_range_execute(batch, RANGE_EPILOGUE)) > 0)
		rest = (Rest) {sweep_sql_bool(1), sweep_sql_int64(2), sweep_sql_int64(3), sweep_sql_jsonb(4, batch->context), open_since};
	return rest;
}
