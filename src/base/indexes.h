/*
 * indexes.h
 *		Locks and index entries of rows that are written without SQL.
 */
#ifndef SWEEP_BASE_INDEXES_H
#define SWEEP_BASE_INDEXES_H

#include "access/htup_details.h"
#include "nodes/execnodes.h"
#include "nodes/lockoptions.h"
#include "utils/rel.h"

#include "base/compat_table.h"

/* All zero while the indexes are not open. */
typedef struct SweepIndexes
{
	EState	   *estate;
	ResultRelInfo *relation;
} SweepIndexes;

/* Opens all indexes of the table, also those that a user has added. They stay open until the close or an error of the transaction. */
extern void sweep_indexes_open(SweepIndexes *indexes, Relation table);
extern void sweep_indexes_close(SweepIndexes *indexes);

/* Makes the index entries of a row. Returns false when the entry in the given index, if any, may be a duplicate (EIIT_NO_DUPE_ERROR). */
extern bool sweep_indexes_insert(SweepIndexes *indexes, TupleTableSlot *row, Oid tolerant);

/*
 * Whether another transaction has written or locked the row that was just read into the slot, or may have. If so, call
 * sweep_row_lock() before the update, so that the update does not wait; that costs half as much as the update. If not, use an update
 * that does not wait: it does nothing if the row is locked after this check. PostgreSQL returns in that case, but has an assertion
 * against it, so a server with assertions locks each row.
 */
static inline bool
sweep_row_is_locked(const TupleTableSlot *row)
{
#ifdef USE_ASSERT_CHECKING
	return true;
#endif
	return !TTS_IS_BUFFERTUPLE(row) ||
		(((const BufferHeapTupleTableSlot *) row)->base.tuple->t_data->t_infomask & HEAP_XMAX_INVALID) == 0;
}

/* Whether other transactions share the row that this transaction has just updated: their locks (FOR KEY SHARE) also apply to the new version. */
static inline bool
sweep_row_was_shared(const TupleTableSlot *row)
{
	return (((const BufferHeapTupleTableSlot *) row)->base.tuple->t_data->t_infomask & HEAP_XMAX_IS_MULTI) != 0;
}

/* Locks the row at *place and reads it into the slot. Never waits; false when another transaction has written or locked the row. */
extern bool sweep_row_lock(Relation table, ItemPointer place, Snapshot snapshot, LockTupleMode mode, TupleTableSlot *row);

/* Called after an update of a row, with the result of the update for indexes. */
extern void sweep_indexes_update(SweepIndexes *indexes, TupleTableSlot *row, TU_UpdateIndexes which);

#endif							/* SWEEP_BASE_INDEXES_H */
