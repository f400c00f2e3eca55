/*
 * run_row.c
 *		The row of a run in sweep.run_live, changed in place.
 *
 * Called by run.c for the row that says that a run has begun, and by unit.c for each batch. A fresh process
 * has no plans and hardly any caches: to parse and plan an UPDATE there takes longer than all the rest that is
 * ours between sweep.start and the first batch. In a batch, to start and end its executor takes several times
 * what is done here. The place of the row is known, so the table itself is all that is needed.
 *
 * What an UPDATE would do beyond this is done by one: the values are within their domains. Whatever is out
 * of the ordinary (the row has moved, is being changed, the table has other columns or a trigger) is left to
 * a statement by the caller.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "executor/executor.h"
#include "nodes/execnodes.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "base/compat.h"
#include "base/sql.h"
#include "engine/run_row.h"

/* When no more than this is left on its page, the old versions of the row are removed. */
#define SCARCE_SPACE (BLCKSZ / 4)

static bool find_row(Relation table, ItemPointer place, Snapshot snapshot, TupleTableSlot *row);
static void prune_page(Relation table, BlockNumber block);
static bool is_meant(TupleTableSlot *row, int64 run_id, const char *status);
static bool replace_row(Relation table, ItemPointer place, Snapshot snapshot, TupleTableSlot *row, const SweepRunChange *change);
static void insert_index_entries(Relation table, TupleTableSlot *row, TU_UpdateIndexes indexes);

void
sweep_run_row_set(SweepRunChange *change, SweepRunColumn column, Datum value)
{
	change->values[column] = value;
	change->is_null[column] = false;
	change->is_set[column] = true;
}

void
sweep_run_row_set_null(SweepRunChange *change, SweepRunColumn column)
{
	change->is_null[column] = change->is_set[column] = true;
}

bool
sweep_run_row_change(ItemPointer place, int64 run_id, const char *status, const SweepRunChange *change)
{
	Relation	table = table_open(sweep_sql_extension()->run_table, RowExclusiveLock);
	TupleTableSlot *row = table_slot_create(table, NULL);
	/* Whatever the transaction may see: an isolation level of the job's role must not keep its run from being recorded. */
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	bool		changed = find_row(table, place, snapshot, row) && is_meant(row, run_id, status) &&
		replace_row(table, place, snapshot, row, change);

	UnregisterSnapshot(snapshot);
	ExecDropSingleTupleTableSlot(row);
	table_close(table, NoLock);
	if (changed)
		CommandCounterIncrement();
	return changed;
}

/* The table may have become shorter than it was when the place was noted. */
static bool
find_row(Relation table, ItemPointer place, Snapshot snapshot, TupleTableSlot *row)
{
	if (RelationGetNumberOfAttributes(table) != RUN_COLUMN_COUNT || table->trigdesc != NULL || !ItemPointerIsValid(place) ||
		ItemPointerGetBlockNumber(place) >= RelationGetNumberOfBlocks(table))
		return false;
	prune_page(table, ItemPointerGetBlockNumber(place));
	return table_tuple_fetch_row_version(table, place, snapshot, row);
}

/*
 * Who reads a row by its place does not tidy its page. Full of dead versions it would make the next one go
 * to another page, with an entry in the index, and the table grow until it is vacuumed.
 */
static void
prune_page(Relation table, BlockNumber block)
{
	Buffer		buffer;

	if (table->rd_tableam != GetHeapamTableAmRoutine())
		return;
	buffer = ReadBuffer(table, block);
	/* Looked at without a lock, like PostgreSQL itself does: it is no more than a hint. */
	if (PageGetHeapFreeSpace(BufferGetPage(buffer)) < SCARCE_SPACE)
		sweep_heap_page_prune(table, buffer);
	ReleaseBuffer(buffer);
}

static bool
is_meant(TupleTableSlot *row, int64 run_id, const char *status)
{
	slot_getallattrs(row);
	return DatumGetInt64(row->tts_values[RUN_COLUMN_RUN_ID]) == run_id &&
		strcmp(TextDatumGetCString(row->tts_values[RUN_COLUMN_STATUS]), status) == 0;
}

static bool
replace_row(Relation table, ItemPointer place, Snapshot snapshot, TupleTableSlot *row, const SweepRunChange *change)
{
	TupleTableSlot *new_row = MakeSingleTupleTableSlot(RelationGetDescr(table), &TTSOpsVirtual);
	TU_UpdateIndexes update_indexes;
	TM_FailureData failure;
	LockTupleMode lock_mode;
	TM_Result	result;

	for (int i = 0; i < RUN_COLUMN_COUNT; i++)
	{
		new_row->tts_values[i] = change->is_set[i] ? change->values[i] : row->tts_values[i];
		new_row->tts_isnull[i] = change->is_set[i] ? change->is_null[i] : row->tts_isnull[i];
	}
	ExecStoreVirtualTuple(new_row);
	result = sweep_table_tuple_update(table, place, new_row, GetCurrentCommandId(true), snapshot, false, &failure, &lock_mode,
									  &update_indexes);
	if (result == TM_Ok)
	{
		*place = new_row->tts_tid;
		if (update_indexes != TU_None)
			insert_index_entries(table, new_row, update_indexes);
	}
	ExecDropSingleTupleTableSlot(new_row);
	return result == TM_Ok;
}

/* The new version is on another page than the old one, or somebody has put an index on what has changed. */
static void
insert_index_entries(Relation table, TupleTableSlot *row, TU_UpdateIndexes indexes)
{
	EState	   *estate = CreateExecutorState();
	ResultRelInfo *relation = makeNode(ResultRelInfo);

	InitResultRelInfo(relation, table, 0, NULL, 0);
	ExecOpenIndices(relation, false);
	(void) sweep_insert_index_tuples(relation, estate, indexes == TU_Summarizing ? EIIT_ONLY_SUMMARIZING : 0, row, NIL);
	ExecCloseIndices(relation);
	FreeExecutorState(estate);
}
