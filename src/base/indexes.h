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
 * Whether another transaction has written or locked the row that was just read into the slot, or may have. If so, sweep_row_lock()
 * comes before an update, which then waits for nothing; it costs half as much as the update. If not, the update is one that does not
 * wait, and does nothing when the row is locked behind the look. PostgreSQL returns in that case, but has an assertion against it:
 * a server with assertions locks each row.
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

/* Whether others share the row that this transaction has just updated: their locks, FOR KEY SHARE, are those of its new version, too. */
static inline bool
sweep_row_was_shared(const TupleTableSlot *row)
{
	return (((const BufferHeapTupleTableSlot *) row)->base.tuple->t_data->t_infomask & HEAP_XMAX_IS_MULTI) != 0;
}

/* Locks the row at *place, which is then in the slot. False when another transaction has written or locked the row; waits for none. */
extern bool sweep_row_lock(Relation table, ItemPointer place, Snapshot snapshot, LockTupleMode mode, TupleTableSlot *row);

/* After a row got a new version, with what the update has said of indexes. */
extern void sweep_indexes_update(SweepIndexes *indexes, TupleTableSlot *row, TU_UpdateIndexes which);

#endif							/* SWEEP_BASE_INDEXES_H */
