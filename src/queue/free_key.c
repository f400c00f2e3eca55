/*
 * free_key.c
 *		Gives the keys of claimed messages free.
 *
 * Called by claim.c, for queues in which a key is taken only while its message waits. The key is free when the index of
 * waiting keys has no entry of the row: the row gets a new version that says it is claimed, the only thing that a claim
 * writes. The update is done without SQL, at the place where the claim has read the row: a statement that was planned
 * while the table was small would read all of the queue for each claim once the table is large.
 */
#include "postgres.h"

#include "access/tableam.h"
#include "access/xact.h"

#include "base/compat_table.h"
#include "queue/free_key.h"

static void
open_freeing(SweepKeyFreeing *freeing)
{
	sweep_indexes_open(&freeing->indexes, freeing->messages);
	freeing->row = MakeSingleTupleTableSlot(RelationGetDescr(freeing->messages), &TTSOpsVirtual);
}

bool
sweep_key_free(SweepKeyFreeing *freeing, TupleTableSlot *slot, Snapshot snapshot, ItemPointer place)
{
	TU_UpdateIndexes update_indexes;
	TM_FailureData failure;
	LockTupleMode lock_mode;
	TupleTableSlot *row;
	bool		locked = sweep_row_is_locked(slot);

	if (freeing->row == NULL)
		open_freeing(freeing);
	row = freeing->row;
	if (locked && !sweep_row_lock(freeing->messages, place, snapshot, LockTupleNoKeyExclusive, slot))
		return false;
	slot_getallattrs(slot);
	ExecClearTuple(row);
	memcpy(row->tts_values, slot->tts_values, MESSAGE_COLUMNS * sizeof(Datum));
	memcpy(row->tts_isnull, slot->tts_isnull, MESSAGE_COLUMNS * sizeof(bool));
	row->tts_values[MESSAGE_CLAIMED - 1] = BoolGetDatum(true);
	ExecStoreVirtualTuple(row);
	if (sweep_table_tuple_update(freeing->messages, place, row, GetCurrentCommandId(true), snapshot, locked, &failure,
								 &lock_mode, &update_indexes) != TM_Ok)
		return false;
	*place = row->tts_tid;
	sweep_indexes_update(&freeing->indexes, row, update_indexes);
	return true;
}

void
sweep_key_free_end(SweepKeyFreeing *freeing)
{
	ExecDropSingleTupleTableSlot(freeing->row);
	sweep_indexes_close(&freeing->indexes);
	CommandCounterIncrement();
}
