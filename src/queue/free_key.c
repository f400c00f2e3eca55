/*
 * free_key.c
 *		Frees the keys of claimed messages.
 *
 * Called by claim.c. In a queue whose messages occupy their keys only while they wait, a key is free when the index of waiting keys has
 * no entry of the row: the row is updated with claimed = true. The update is done without SQL, at the place where the claim has read the
 * row. A statement that was planned while the table was small would read the whole queue for each claim once the table is large.
 */
#include "postgres.h"

#include "access/tableam.h"
#include "access/xact.h"
#include "utils/rel.h"

#include "base/compat_table.h"
#include "queue/free_key.h"
#include "queue/table.h"

int64
sweep_key_free(SweepKeyFreeing *freeing, Relation messages, ItemPointer place, TupleTableSlot *row, Snapshot snapshot, bool *moved)
{
	TU_UpdateIndexes update_indexes;
	TM_FailureData failure;
	LockTupleMode lock_mode;
	TupleTableSlot *new_row = freeing->row;
	bool		locked = sweep_row_is_locked(row);

	if (new_row == NULL)
	{
		sweep_indexes_open(&freeing->indexes, messages);
		freeing->row = new_row = MakeSingleTupleTableSlot(RelationGetDescr(messages), &TTSOpsVirtual);
	}
	if (locked && !sweep_row_lock(messages, place, snapshot, LockTupleNoKeyExclusive, row))
		return SWEEP_PUT_OFF_US;
	slot_getallattrs(row);
	ExecClearTuple(new_row);
	memcpy(new_row->tts_values, row->tts_values, row->tts_tupleDescriptor->natts * sizeof(Datum));
	memcpy(new_row->tts_isnull, row->tts_isnull, row->tts_tupleDescriptor->natts * sizeof(bool));
	new_row->tts_values[MESSAGE_CLAIMED - 1] = BoolGetDatum(true);
	ExecStoreVirtualTuple(new_row);
	if (sweep_table_tuple_update(messages, place, new_row, GetCurrentCommandId(true), snapshot, locked, &failure, &lock_mode, &update_indexes) != TM_Ok)
		return SWEEP_PUT_OFF_FOR_SENDER_US;
	*place = new_row->tts_tid;
	sweep_indexes_update(&freeing->indexes, new_row, update_indexes);
	*moved = true;
	return sweep_row_was_shared(row) ? SWEEP_PUT_OFF_FOR_SENDER_US : 0;
}

void
sweep_key_free_close(SweepKeyFreeing *freeing)
{
	ExecDropSingleTupleTableSlot(freeing->row);
	freeing->row = NULL;
	sweep_indexes_close(&freeing->indexes);
	CommandCounterIncrement();
}
