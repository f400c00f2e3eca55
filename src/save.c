/*
 * save.c
 *		Writes how far a run is into its row, without SQL.
 *
 * Called by unit.c before the commit of each batch but the last one. There the same UPDATE took more than
 * half of what the engine itself costs, nearly all of it to start and end the executor.
 *
 * Only the plain case is handled: the row is where the batch before has left it, nobody else has changed
 * it, the run goes on. In any other the caller executes the statement, which waits, looks for the row by
 * its key and raises. So does the last batch, whose outcome belongs to domains.
 *
 * Rights are not asked for, as the statement runs as the owner of the extension. A job that has made its
 * transaction read-only is the statement's as well.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "executor/executor.h"
#include "storage/bufmgr.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "save.h"

/* A page of the table has its dead versions removed when no more than this is left on it. */
#define SCARCE_SPACE (BLCKSZ / 4)

/* Columns of sweep.run_live. */
enum
{
	RUN_ID = 1,
	RUN_BATCHES = 11,
	RUN_ROWS,
	RUN_RESCUED,
	RUN_QUARANTINED,
	RUN_CURSOR,
	RUN_DETAIL,
	RUN_COLUMNS = 22
};

static bool replace_row(Relation runs, SweepRun *run);
static void prune_page(Relation runs, BlockNumber block);
static void fill_slot(TupleTableSlot *slot, TupleTableSlot *old, const SweepRun *run);
static void set_jsonb(TupleTableSlot *slot, int column, const Jsonb *value);
static bool update_row(Relation runs, ItemPointer place, TupleTableSlot *slot);

bool
sweep_save_progress(SweepRun *run)
{
	Relation	runs;
	bool		saved = false;

	if (XactReadOnly)
		return false;
	runs = table_open(get_relname_relid("run_live", get_namespace_oid("sweep", false)), RowExclusiveLock);
	if (RelationGetNumberOfAttributes(runs) == RUN_COLUMNS && runs->trigdesc == NULL)
	{
		/* A new one, that sees what the step has done to the row. */
		PushActiveSnapshot(GetTransactionSnapshot());
		saved = replace_row(runs, run);
		PopActiveSnapshot();
	}
	table_close(runs, NoLock);
	return saved;
}

/*
 * Found by its place, not by its key: with an old snapshot around, a look-up by key would walk all
 * versions of the row that the batches before left behind.
 */
static bool
replace_row(Relation runs, SweepRun *run)
{
	BlockNumber block = ItemPointerGetBlockNumber(&run->next.tid);
	TupleTableSlot *old;
	TupleTableSlot *new;
	bool		is_null;
	bool		saved = false;

	if (block >= RelationGetNumberOfBlocks(runs))
		return false;
	prune_page(runs, block);
	old = table_slot_create(runs, NULL);
	new = MakeSingleTupleTableSlot(RelationGetDescr(runs), &TTSOpsVirtual);
	if (table_tuple_fetch_row_version(runs, &run->next.tid, GetActiveSnapshot(), old) &&
		DatumGetInt64(slot_getattr(old, RUN_ID, &is_null)) == run->run_id)
	{
		fill_slot(new, old, run);
		saved = update_row(runs, &run->next.tid, new);
	}
	ExecDropSingleTupleTableSlot(new);
	ExecDropSingleTupleTableSlot(old);
	return saved;
}

/*
 * Who reads a row by its place does not tidy its page. Full of dead versions it would make the next one go
 * to another page, with an entry in the index, and the table grow until it is vacuumed.
 */
static void
prune_page(Relation runs, BlockNumber block)
{
	Buffer		buffer;

	if (runs->rd_tableam != GetHeapamTableAmRoutine())
		return;
	buffer = ReadBuffer(runs, block);
	/* Looked at without a lock, like PostgreSQL itself does: it is no more than a hint. */
	if (PageGetHeapFreeSpace(BufferGetPage(buffer)) < SCARCE_SPACE)
		heap_page_prune_opt(runs, buffer);
	ReleaseBuffer(buffer);
}

static void
fill_slot(TupleTableSlot *slot, TupleTableSlot *old, const SweepRun *run)
{
	slot_getallattrs(old);
	memcpy(slot->tts_values, old->tts_values, RUN_COLUMNS * sizeof(Datum));
	memcpy(slot->tts_isnull, old->tts_isnull, RUN_COLUMNS * sizeof(bool));
	slot->tts_values[RUN_BATCHES - 1] = Int32GetDatum((int32) Min(run->next.loop.batches, PG_INT32_MAX));
	slot->tts_values[RUN_ROWS - 1] = Int64GetDatum(run->next.loop.rows);
	slot->tts_values[RUN_RESCUED - 1] = Int64GetDatum(run->next.rescued);
	slot->tts_values[RUN_QUARANTINED - 1] = Int64GetDatum(run->next.quarantined);
	set_jsonb(slot, RUN_CURSOR, run->next.cursor);
	set_jsonb(slot, RUN_DETAIL, run->next.detail);
	ExecStoreVirtualTuple(slot);
}

static void
set_jsonb(TupleTableSlot *slot, int column, const Jsonb *value)
{
	slot->tts_values[column - 1] = value != NULL ? JsonbPGetDatum(value) : (Datum) 0;
	slot->tts_isnull[column - 1] = value == NULL;
}

/* Changes the place to that of the new version. False when somebody else has changed the row. */
static bool
update_row(Relation runs, ItemPointer place, TupleTableSlot *slot)
{
	TM_FailureData failure;
	LockTupleMode lock_mode;
	SweepUpdateIndexes indexes;
	ItemPointerData old_place = *place;

	if (table_tuple_update(runs, &old_place, slot, GetCurrentCommandId(true), GetActiveSnapshot(), InvalidSnapshot, true,
						   &failure, &lock_mode, &indexes) != TM_Ok)
		return false;
	if (sweep_indexes_need_update(indexes))
	{
		EState	   *estate = CreateExecutorState();
		ResultRelInfo *relation = makeNode(ResultRelInfo);

		InitResultRelInfo(relation, runs, 0, NULL, 0);
		ExecOpenIndices(relation, false);
		(void) sweep_update_index_tuples(relation, slot, estate, indexes);
		ExecCloseIndices(relation);
		FreeExecutorState(estate);
	}
	*place = slot->tts_tid;
	CommandCounterIncrement();
	return true;
}
