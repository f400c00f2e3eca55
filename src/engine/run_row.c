/*
 * run_row.c
 *		The row of a run in sweep.run_live.
 *
 * Called by call.c, run.c and bucket_run.c when a run begins or is skipped, and by batch.c for each batch: no other file writes into the
 * row. The begin and the batches are written at the row's place (ctid), without SQL. A new process has no plans and hardly any caches:
 * parsing and planning an UPDATE would take longer than all other work of the engine between sweep.start and the first batch. An UPDATE by
 * ctid doubles the instructions of an empty batch, and adds a sixth to those of a short run (make check-cost; room's README).
 *
 * The values are valid for their domains, so an UPDATE would do nothing else. A statement, which searches and waits, is used in all other
 * cases: the row has moved, another transaction changes it, or the table has other columns or a trigger.
 */
#include "postgres.h"

#include "access/tableam.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/compat_table.h"
#include "base/detail.h"
#include "base/indexes.h"
#include "engine/report.h"
#include "engine/run_row.h"

/* The columns that a batch or the end of a run changes. */
#define RUN_COLUMNS \
	"batches = $3, rows = $4, cursor = $5, detail = $6, status = coalesce($7, 'running'), stop_reason = $8, " \
	"finished_at = CASE WHEN $8 IS NOT NULL THEN pg_catalog.clock_timestamp() END, sqlstate = $9, error = $10, rescued = $11, quarantined = $12, " \
	"braked_ms = $13"
#define RUN_TYPES {TIDOID, INT8OID, INT4OID, INT8OID, JSONBOID, JSONBOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, INT8OID, INT8OID, INT8OID}

static SweepStatement insert_run_sql = {
	.text = "INSERT INTO sweep.run_live (job, args, trigger, due_at, pid, run_as) "
		"VALUES ($1, $2, 'manual', pg_catalog.clock_timestamp(), $3, sweep._role_name($4)) "
		"RETURNING run_id, ctid, (SELECT s.drained_rows FROM sweep.job_state s WHERE s.job = $1)",
	.types = {TEXTOID, JSONBOID, INT4OID, OIDOID}};
static SweepStatement lock_run_sql = {
	.text = "SELECT sweep._lock_waiting_run($1)",
	.types = {INT8OID}};
static SweepStatement start_run_sql = {
	.text = "UPDATE sweep.run_live AS r SET status = 'running', started_at = pg_catalog.clock_timestamp(), pid = $2, bucket = $3, shares_left = $4, "
		"begun = pg_catalog.nextval('sweep.run_begun_seq') "
		"WHERE r.run_id = $1 AND r.status = 'waiting' AND sweep._role_oid(r.run_as) = $5 RETURNING r.ctid",
	.types = {INT8OID, INT4OID, INT4OID, INT4OID, OIDOID}};
static SweepStatement save_run_sql = {
	.text = "UPDATE sweep.run_live SET " RUN_COLUMNS " WHERE ctid = $1 AND run_id = $2 RETURNING ctid",
	.types = RUN_TYPES};
static SweepStatement save_run_by_key_sql = {
	.text = "UPDATE sweep.run_live SET " RUN_COLUMNS " WHERE ($1 IS NOT NULL) AND run_id = $2 AND status = 'running' "
		"AND pid = pg_catalog.pg_backend_pid() RETURNING ctid",
	.types = RUN_TYPES};
/* A share has the reason in its detail already. */
static SweepStatement skip_run_sql = {
	.text = "UPDATE sweep.run_live SET status = 'skipped', stop_reason = 'skipped', started_at = pg_catalog.clock_timestamp(), bucket = NULL, "
		"finished_at = pg_catalog.clock_timestamp(), pid = $2, detail = coalesce($7, pg_catalog.jsonb_build_object('reason', 'lock_held', 'holder_pid', "
		"(SELECT l.pid FROM pg_catalog.pg_locks l WHERE l.locktype = 'advisory' AND l.granted AND l.database = $3 "
		"AND l.classid = $4 AND l.objid = $5 AND l.objsubid = $6 LIMIT 1))) WHERE run_id = $1 AND status = 'waiting' RETURNING detail ->> 'holder_pid'",
	.types = {INT8OID, INT4OID, OIDOID, OIDOID, OIDOID, INT2OID, JSONBOID}};
SweepStatement sweep_fail_start_sql = {
	.text = "SELECT sweep._fail_start($1, $2, $3, $4)",
	.types = {INT8OID, TEXTOID, TEXTOID, TEXTOID}};
SweepStatement sweep_archive_sql = {
	.text = "SELECT sweep._mark_lost(), sweep._archive_runs($1), CASE WHEN $1 THEN sweep._cancel_orphans('infinity') END",
	.types = {BOOLOID}};

/* A page with fewer free bytes than this is pruned. */
#define SCARCE_SPACE (BLCKSZ / 4)

/* The columns of sweep.run_live, in their order. */
typedef enum SweepRunColumn
{
	RUN_COLUMN_RUN_ID,
	RUN_COLUMN_DUE_AT,
	RUN_COLUMN_ROWS,
	RUN_COLUMN_RESCUED,
	RUN_COLUMN_QUARANTINED,
	RUN_COLUMN_BRAKED_MS,
	RUN_COLUMN_BATCHES,
	RUN_COLUMN_ATTEMPT,
	RUN_COLUMN_HOOK_DEPTH,
	RUN_COLUMN_PID,
	RUN_COLUMN_JOB,
	RUN_COLUMN_TRIGGER,
	RUN_COLUMN_PARENT_RUN_ID,
	RUN_COLUMN_STATUS,
	RUN_COLUMN_RUN_AS,
	RUN_COLUMN_STARTED_AT,
	RUN_COLUMN_FINISHED_AT,
	RUN_COLUMN_BUCKET,
	RUN_COLUMN_SHARES_LEFT,
	RUN_COLUMN_STOP_REASON,
	RUN_COLUMN_ARGS,
	RUN_COLUMN_CURSOR,
	RUN_COLUMN_DETAIL,
	RUN_COLUMN_SQLSTATE,
	RUN_COLUMN_ERROR,
	RUN_COLUMN_BEGUN,
	RUN_COLUMN_COUNT
} SweepRunColumn;

/* New values of columns; columns that are not set keep their values. Initialized with zeroes. */
typedef struct SweepRunChange
{
	NullableDatum columns[RUN_COLUMN_COUNT];
	bool		is_set[RUN_COLUMN_COUNT];
} SweepRunChange;

static bool set_started(SweepRun *run);
static bool update_started(SweepRun *run);
static void set_outcome(SweepRunChange *change, const SweepRun *run);
static void save_by_statement(SweepRun *run, const SweepRunChange *change);
static bool is_locked(const SweepRun *run);
static void set(SweepRunChange *change, SweepRunColumn column, Datum value);
static void set_jsonb(SweepRunChange *change, SweepRunColumn column, const Jsonb *value);
static bool change_row(ItemPointer place, int64 run_id, const char *status, const SweepRunChange *change);
static void prune_page(Relation table, BlockNumber block);
static bool replace_row(Relation table, ItemPointer place, Snapshot snapshot, TupleTableSlot *row, const SweepRunChange *change);

int64
sweep_run_row_insert(SweepRun *run, Jsonb *args)
{
	Datum		values[] = {
		CStringGetTextDatum(run->job), JsonbPGetDatum(args), Int32GetDatum(MyProcPid), ObjectIdGetDatum(run->run_as)
	};

	(void) sweep_sql_execute(&insert_run_sql, values, NULL);
	run->run_id = sweep_sql_int64(1);
	run->state.tid = sweep_sql_tid(2);
	return sweep_sql_int64(3);
}

bool
sweep_run_row_start(SweepRun *run)
{
	return set_started(run) || (!is_locked(run) && update_started(run));
}

/* Sets the row to running without SQL, at the place where the scheduler saw it. */
static bool
set_started(SweepRun *run)
{
	SweepRunChange change = {0};
	ItemPointerData place = run->state.tid;

	set(&change, RUN_COLUMN_STATUS, CStringGetTextDatum("running"));
	set(&change, RUN_COLUMN_STARTED_AT, TimestampTzGetDatum(GetCurrentTimestamp()));
	set(&change, RUN_COLUMN_PID, Int32GetDatum(MyProcPid));
	set(&change, RUN_COLUMN_BEGUN, Int64GetDatum(sweep_sql_next_value(sweep_extension()->begun_sequence)));
	set(&change, RUN_COLUMN_BUCKET, Int32GetDatum(run->buckets != NULL ? run->buckets->fence.claim.bucket : 0));
	set(&change, RUN_COLUMN_SHARES_LEFT, Int32GetDatum(run->shares_left));
	change.columns[RUN_COLUMN_BUCKET].isnull = change.columns[RUN_COLUMN_SHARES_LEFT].isnull = run->buckets == NULL;
	if (!change_row(&place, run->run_id, "waiting", &change))
		return false;
	run->state.tid = place;
	return true;
}

/*
 * Sets the row to running by a statement, which finds it at any place; a session always does this. If the job has another
 * role now, the row waits for a process of that role.
 */
static bool
update_started(SweepRun *run)
{
	Datum		values[5] = {Int64GetDatum(run->run_id), Int32GetDatum(MyProcPid), (Datum) 0, (Datum) 0, ObjectIdGetDatum(run->run_as)};

	if (run->buckets != NULL)
	{
		values[2] = Int32GetDatum(run->buckets->fence.claim.bucket);
		values[3] = Int32GetDatum(run->shares_left);
	}
	if (sweep_sql_execute(&start_run_sql, values, run->buckets != NULL ? NULL : "  nn ") == 0)
		return false;
	run->state.tid = sweep_sql_tid(1);
	return true;
}

void
sweep_run_row_save(SweepRun *run)
{
	SweepRunChange change = {0};
	/* In a session a read-only transaction is an error, as for any change; the run of a worker is recorded nevertheless. */
	bool		read_only = sweep_sql_in_call() && XactReadOnly;

	set(&change, RUN_COLUMN_BATCHES, Int32GetDatum((int32) Min(run->next.loop.batches, PG_INT32_MAX)));
	set(&change, RUN_COLUMN_ROWS, Int64GetDatum(run->next.loop.rows));
	set(&change, RUN_COLUMN_RESCUED, Int64GetDatum(run->next.rescued));
	set(&change, RUN_COLUMN_QUARANTINED, Int64GetDatum(run->next.quarantined));
	set(&change, RUN_COLUMN_BRAKED_MS, Int64GetDatum(run->next.braked_us / 1000));
	set_jsonb(&change, RUN_COLUMN_CURSOR, run->next.cursor);
	set_jsonb(&change, RUN_COLUMN_DETAIL, run->next.detail);
	if (sweep_run_is_ending(run))
		set_outcome(&change, run);
	if (read_only || !change_row(&run->next.tid, run->run_id, "running", &change))
		save_by_statement(run, &change);
}

static void
set_outcome(SweepRunChange *change, const SweepRun *run)
{
	set(change, RUN_COLUMN_STATUS, CStringGetTextDatum(run->status));
	set(change, RUN_COLUMN_STOP_REASON, CStringGetTextDatum(sweep_loop_stop_name(run->reason)));
	set(change, RUN_COLUMN_FINISHED_AT, TimestampTzGetDatum(GetCurrentTimestamp()));
	if (run->error == NULL)
		return;
	set(change, RUN_COLUMN_SQLSTATE, CStringGetTextDatum(unpack_sql_state(run->error->sqlerrcode)));
	set(change, RUN_COLUMN_ERROR, CStringGetTextDatum(sweep_report_error_text(run->error)));
}

/*
 * By place, not by key: while an old snapshot is held, a look-up by key would step over all versions of the row that earlier
 * batches have left.
 */
static void
save_by_statement(SweepRun *run, const SweepRunChange *change)
{
	/* In the order of the parameters from $3 on; for a column that is not set the parameter is NULL. */
	static const SweepRunColumn columns[] = {
		RUN_COLUMN_BATCHES, RUN_COLUMN_ROWS, RUN_COLUMN_CURSOR, RUN_COLUMN_DETAIL, RUN_COLUMN_STATUS, RUN_COLUMN_STOP_REASON,
		RUN_COLUMN_SQLSTATE, RUN_COLUMN_ERROR, RUN_COLUMN_RESCUED, RUN_COLUMN_QUARANTINED,
		RUN_COLUMN_BRAKED_MS
	};
	Datum		values[lengthof(columns) + 2] = {PointerGetDatum(&run->next.tid), Int64GetDatum(run->run_id)};
	char		nulls[lengthof(values) + 1] = "  ";

	for (size_t i = 0; i < lengthof(columns); i++)
	{
		values[i + 2] = change->columns[columns[i]].value;
		nulls[i + 2] = change->is_set[columns[i]] && !change->columns[columns[i]].isnull ? ' ' : 'n';
	}
	/* The key finds a row that VACUUM FULL has moved. */
	if (sweep_sql_execute(&save_run_sql, values, nulls) != 1 &&
		sweep_sql_execute(&save_run_by_key_sql, values, nulls) != 1)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("row of run %lld in sweep.run_live was changed by another session", (long long) run->run_id)));
	run->next.tid = sweep_sql_tid(1);
}

void
sweep_run_row_skip(SweepRun *run)
{
	const LOCKTAG *tag = &run->lock.tag;
	Datum		values[] = {
		Int64GetDatum(run->run_id), Int32GetDatum(MyProcPid), ObjectIdGetDatum(tag->locktag_field1), ObjectIdGetDatum(tag->locktag_field2),
		ObjectIdGetDatum(tag->locktag_field3), Int16GetDatum((int16) tag->locktag_field4), (Datum) 0
	};

	if (run->buckets != NULL)
		values[6] = JsonbPGetDatum(sweep_detail_merge(run->state.detail, sweep_detail_read("{\"reason\": \"no_bucket\"}"), CurrentMemoryContext));
	if (!is_locked(run) && sweep_sql_execute(&skip_run_sql, values, run->buckets != NULL ? NULL : "      n") == 1)
		run->lock_holder = sweep_sql_text(1, run->context);
}

void
sweep_run_row_fail(SweepRun *run)
{
	Datum		values[4] = {Int64GetDatum(run->run_id), CStringGetTextDatum(sweep_loop_stop_name(run->reason))};

	if (run->error != NULL)
	{
		values[2] = CStringGetTextDatum(unpack_sql_state(run->error->sqlerrcode));
		values[3] = CStringGetTextDatum(sweep_report_error_text(run->error));
	}
	(void) sweep_sql_execute(&sweep_fail_start_sql, values, run->error != NULL ? NULL : "  nn");
}

/* Whether another session has locked the row. A worker does not wait for that session: the scheduler starts another worker later. A session waits. */
static bool
is_locked(const SweepRun *run)
{
	Datum		run_id = Int64GetDatum(run->run_id);

	return !sweep_sql_in_call() && sweep_sql_execute(&lock_run_sql, &run_id, NULL) == 1 && sweep_sql_is_null(1);
}

static void
set(SweepRunChange *change, SweepRunColumn column, Datum value)
{
	change->columns[column] = (NullableDatum) {.value = value};
	change->is_set[column] = true;
}

static void
set_jsonb(SweepRunChange *change, SweepRunColumn column, const Jsonb *value)
{
	set(change, column, JsonbPGetDatum(value));
	change->columns[column].isnull = value == NULL;
}

/*
 * Changes the row at *place if it is the row of the run and has that status, and sets *place to its new version. Otherwise
 * false, also when another transaction changes it, and nothing is done.
 */
static bool
change_row(ItemPointer place, int64 run_id, const char *status, const SweepRunChange *change)
{
	Relation	table = table_open(sweep_extension()->run_table, RowExclusiveLock);
	TupleTableSlot *row = table_slot_create(table, NULL);
	/* The latest snapshot is used, because an isolation level of the job's role must not keep the run from being recorded. */
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	bool		changed = false;

	/* The table may have become shorter since the place was noted. */
	if (RelationGetNumberOfAttributes(table) == RUN_COLUMN_COUNT && table->trigdesc == NULL && ItemPointerIsValid(place) &&
		ItemPointerGetBlockNumber(place) < RelationGetNumberOfBlocks(table))
	{
		prune_page(table, ItemPointerGetBlockNumber(place));
		if (table_tuple_fetch_row_version(table, place, snapshot, row))
		{
			slot_getallattrs(row);
			changed = DatumGetInt64(row->tts_values[RUN_COLUMN_RUN_ID]) == run_id &&
				strcmp(TextDatumGetCString(row->tts_values[RUN_COLUMN_STATUS]), status) == 0 &&
				replace_row(table, place, snapshot, row, change);
		}
	}
	UnregisterSnapshot(snapshot);
	ExecDropSingleTupleTableSlot(row);
	table_close(table, NoLock);
	if (changed)
		CommandCounterIncrement();
	return changed;
}

/*
 * A read by place does not prune the page. If it were full of dead versions, the next version would go to another page, with new
 * index entries, and the table would grow until it is vacuumed.
 */
static void
prune_page(Relation table, BlockNumber block)
{
	Buffer		buffer;

	if (table->rd_tableam != GetHeapamTableAmRoutine())
		return;
	buffer = ReadBuffer(table, block);
	/* The check is only a hint, so it needs no lock, as in PostgreSQL itself. */
	if (PageGetHeapFreeSpace(BufferGetPage(buffer)) < SCARCE_SPACE)
		sweep_heap_page_prune(table, buffer);
	ReleaseBuffer(buffer);
}

static bool
replace_row(Relation table, ItemPointer place, Snapshot snapshot, TupleTableSlot *row, const SweepRunChange *change)
{
	TupleTableSlot *new_row;
	TU_UpdateIndexes update_indexes;
	TM_FailureData failure;
	LockTupleMode lock_mode;
	TM_Result	result;
	bool		locked = sweep_row_is_locked(row);

	if (locked && !sweep_row_lock(table, place, snapshot, LockTupleNoKeyExclusive, row))
		return false;
	slot_getallattrs(row);
	new_row = MakeSingleTupleTableSlot(RelationGetDescr(table), &TTSOpsVirtual);
	for (int i = 0; i < RUN_COLUMN_COUNT; i++)
	{
		new_row->tts_values[i] = change->is_set[i] ? change->columns[i].value : row->tts_values[i];
		new_row->tts_isnull[i] = change->is_set[i] ? change->columns[i].isnull : row->tts_isnull[i];
	}
	ExecStoreVirtualTuple(new_row);
	result = sweep_table_tuple_update(table, place, new_row, GetCurrentCommandId(true), snapshot, locked, &failure,
									  &lock_mode, &update_indexes);
	if (result == TM_Ok)
	{
		*place = new_row->tts_tid;
		/* This is so when the run begins, when the new version is on another page, or when an index of a user has a changed column. */
		if (update_indexes != TU_None)
		{
			SweepIndexes indexes;

			sweep_indexes_open(&indexes, table);
			sweep_indexes_update(&indexes, new_row, update_indexes);
			sweep_indexes_close(&indexes);
		}
	}
	ExecDropSingleTupleTableSlot(new_row);
	return result == TM_Ok;
}
