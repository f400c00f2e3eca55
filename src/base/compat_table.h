/*
 * compat_table.h
 *		Differences between server versions, see compat.h: rows of tables and indexes without SQL.
 */
#ifndef SWEEP_COMPAT_TABLE_H
#define SWEEP_COMPAT_TABLE_H

#include "access/genam.h"
#include "access/heapam.h"
#include "access/tableam.h"
#include "executor/executor.h"
#include "storage/bufmgr.h"

/*
 * 19: takes flags; 16: takes whether only summarizing indexes need an entry. With EIIT_NO_DUPE_ERROR entries in the
 * listed indexes may be duplicates. EIIT_IS_UPDATE is not used: it is a hint that needs a range table.
 */
#if PG_VERSION_NUM >= 190000
#define sweep_insert_index_tuples(relation, estate, flags, slot, indexes) \
	ExecInsertIndexTuples((relation), (estate), (flags), (slot), (indexes), NULL)
#else
#define EIIT_NO_DUPE_ERROR		(1 << 1)
#define EIIT_ONLY_SUMMARIZING	(1 << 2)
#if PG_VERSION_NUM >= 160000
#define sweep_insert_index_tuples(relation, estate, flags, slot, indexes) \
	ExecInsertIndexTuples((relation), (slot), (estate), false, ((flags) & EIIT_NO_DUPE_ERROR) != 0, NULL, (indexes), \
						  ((flags) & EIIT_ONLY_SUMMARIZING) != 0)
#else
#define sweep_insert_index_tuples(relation, estate, flags, slot, indexes) \
	ExecInsertIndexTuples((relation), (slot), (estate), false, ((flags) & EIIT_NO_DUPE_ERROR) != 0, NULL, (indexes))
#endif
#endif

/* 19: scans take flags, a deletion takes options; 18: an index scan takes a pointer for statistics. */
#if PG_VERSION_NUM >= 190000
#define sweep_index_beginscan(relation, index, snapshot, keys) index_beginscan((relation), (index), (snapshot), NULL, (keys), 0, 0)
#define sweep_table_beginscan(relation, snapshot) table_beginscan((relation), (snapshot), 0, NULL, SO_NONE)
#define sweep_table_tuple_delete(relation, place, command, snapshot, wait, failure) \
	table_tuple_delete((relation), (place), (command), 0, (snapshot), InvalidSnapshot, (wait), (failure))
#else
#if PG_VERSION_NUM >= 180000
#define sweep_index_beginscan(relation, index, snapshot, keys) index_beginscan((relation), (index), (snapshot), NULL, (keys), 0)
#else
#define sweep_index_beginscan(relation, index, snapshot, keys) index_beginscan((relation), (index), (snapshot), (keys), 0)
#endif
#define sweep_table_beginscan(relation, snapshot) table_beginscan((relation), (snapshot), 0, NULL)
#define sweep_table_tuple_delete(relation, place, command, snapshot, wait, failure) \
	table_tuple_delete((relation), (place), (command), (snapshot), InvalidSnapshot, (wait), (failure), false)
#endif

/* 19: takes options. 16: returns which indexes need an entry (none, all, only summarizing ones), not only whether any does. */
#if PG_VERSION_NUM < 160000
typedef enum TU_UpdateIndexes
{
	TU_None,
	TU_All,
	TU_Summarizing
} TU_UpdateIndexes;
#endif
static inline TM_Result
sweep_table_tuple_update(Relation relation, ItemPointer place, TupleTableSlot *slot, CommandId command, Snapshot snapshot,
						 bool wait, TM_FailureData *failure, LockTupleMode *mode, TU_UpdateIndexes *indexes)
{
#if PG_VERSION_NUM >= 190000
	return table_tuple_update(relation, place, slot, command, 0, snapshot, InvalidSnapshot, wait, failure, mode, indexes);
#elif PG_VERSION_NUM >= 160000
	return table_tuple_update(relation, place, slot, command, snapshot, InvalidSnapshot, wait, failure, mode, indexes);
#else
	bool		all = false;
	TM_Result	result = table_tuple_update(relation, place, slot, command, snapshot, InvalidSnapshot, wait, failure, mode, &all);

	*indexes = all ? TU_All : TU_None;
	return result;
#endif
}

/* 19: takes a pin on the visibility map, and whether the query only reads the relation; then it sets that map. */
static inline void
sweep_heap_page_prune(Relation relation, Buffer buffer)
{
#if PG_VERSION_NUM >= 190000
	Buffer		map = InvalidBuffer;

	heap_page_prune_opt(relation, buffer, &map, false);
	if (BufferIsValid(map))
		ReleaseBuffer(map);
#else
	heap_page_prune_opt(relation, buffer);
#endif
}

/* 18: takes whether a deferrable primary key is accepted. */
#if PG_VERSION_NUM >= 180000
#define sweep_primary_key_index(relation) RelationGetPrimaryKeyIndex((relation), false)
#else
#define sweep_primary_key_index(relation) RelationGetPrimaryKeyIndex(relation)
#endif

#endif							/* SWEEP_COMPAT_TABLE_H */
