/*
 * run_row.c
 *		The row of a run in sweep.run_live, changed in place.
 *
 * Called by run.c for the row that says that a run has begun. A fresh process has no plans and
 * hardly any caches: to parse and plan an UPDATE there takes longer than all the rest that is ours between sweep.start
 * and the first batch. The place of the row is known, so the table itself is all that is needed.
 *
 * What an UPDATE would do beyond this is done by one: nobody has triggers, rules or policies on this table,
 * the values are within their domains, and its only index is that of the key. Whatever is out
 * of the ordinary (the row has moved, is being changed, the table has other columns) is left to
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

#include "compat.h"
#include "run_row.h"
#include "sql.h"

static bool find_row(Relation table, ItemPointer place, Snapshot snapshot, TupleTableSlot *row);
static bool is_meant(TupleTableSlot *row, int64 run_id, const char *status);
static bool replace_row(Relation table, ItemPointer place, Snapshot snapshot, TupleTableSlot *row, const SweepRunChange *change);
static void insert_index_entry(Relation table, TupleTableSlot *row);

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
	return RelationGetNumberOfAttributes(table) == RUN_COLUMN_COUNT && ItemPointerIsValid(place) &&
		ItemPointerGetBlockNumber(place) < RelationGetNumberOfBlocks(table) &&
		table_tuple_fetch_row_version(table, place, snapshot, row);
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
	SweepUpdateIndexes update_indexes;
	TM_FailureData failure;
	LockTupleMode lock_mode;
	TM_Result	result;

	for (int i = 0; i < RUN_COLUMN_COUNT; i++)
	{
		new_row->tts_values[i] = change->is_set[i] ? change->values[i] : row->tts_values[i];
		new_row->tts_isnull[i] = change->is_set[i] ? change->is_null[i] : row->tts_isnull[i];
	}
	ExecStoreVirtualTuple(new_row);
	result = table_tuple_update(table, place, new_row, GetCurrentCommandId(true), snapshot, InvalidSnapshot, false,
								&failure, &lock_mode, &update_indexes);
	if (result == TM_Ok)
	{
		*place = new_row->tts_tid;
		if (update_indexes != SWEEP_UPDATE_NO_INDEX)
			insert_index_entry(table, new_row);
	}
	ExecDropSingleTupleTableSlot(new_row);
	return result == TM_Ok;
}

/* The new version is on another page than the old one. */
static void
insert_index_entry(Relation table, TupleTableSlot *row)
{
	EState	   *estate = CreateExecutorState();
	ResultRelInfo *relation = makeNode(ResultRelInfo);

	InitResultRelInfo(relation, table, 0, NULL, 0);
	ExecOpenIndices(relation, false);
	(void) sweep_insert_index_tuples(relation, row, estate);
	ExecCloseIndices(relation);
	FreeExecutorState(estate);
}
