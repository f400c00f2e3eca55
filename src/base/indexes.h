/*
 * indexes.h
 *		Locks and index entries of rows that are written without SQL.
 */
#ifndef SWEEP_BASE_INDEXES_H
#define SWEEP_BASE_INDEXES_H

#include "nodes/execnodes.h"
#include "nodes/lockoptions.h"
#include "utils/rel.h"

#include "base/compat.h"

/* All zero while they are not open. */
typedef struct SweepIndexes
{
	EState	   *estate;
	ResultRelInfo *relation;
} SweepIndexes;

/* All indexes of the table, one that somebody has added as well; until they are closed, or the transaction ends with an error. */
extern void sweep_indexes_open(SweepIndexes *indexes, Relation table);
extern void sweep_indexes_close(SweepIndexes *indexes);

/* After a row was inserted. In the index that is given, if any, see EIIT_NO_DUPE_ERROR: false when an entry may be a duplicate. */
extern bool sweep_indexes_insert(SweepIndexes *indexes, TupleTableSlot *row, Oid tolerant);

/*
 * Locks the row at *place, which is then in the slot. False when another transaction has written or locked the row; waits
 * for none. PostgreSQL does not allow an update that does not wait: the lock comes before it.
 */
extern bool sweep_row_lock(Relation table, ItemPointer place, Snapshot snapshot, LockTupleMode mode, TupleTableSlot *row);

/* After a row got a new version, with what the update has said of indexes. */
extern void sweep_indexes_update(SweepIndexes *indexes, TupleTableSlot *row, TU_UpdateIndexes which);

#endif							/* SWEEP_BASE_INDEXES_H */
