/*
 * indexes.c
 *		Locks and index entries of rows that are written without SQL.
 *
 * Called for the rows of messages and of runs, see table.c, claim.c and run_row.c. These functions do the work of the executor at the start
 * and end of a statement, so nothing has to be planned; that includes the predicates of partial indexes: the relation cache has them ready
 * to be compiled, while the executor would simplify them again for each statement.
 */
#include "postgres.h"

#include "access/tableam.h"
#include "access/xact.h"
#include "executor/executor.h"

#include "base/indexes.h"

void
sweep_indexes_open(SweepIndexes *indexes, Relation table)
{
	MemoryContext old;

	indexes->estate = CreateExecutorState();
	indexes->relation = makeNode(ResultRelInfo);
	InitResultRelInfo(indexes->relation, table, 0, NULL, 0);
	ExecOpenIndices(indexes->relation, false);
	old = MemoryContextSwitchTo(indexes->estate->es_query_cxt);
	for (int i = 0; i < indexes->relation->ri_NumIndices; i++)
	{
		IndexInfo  *index = indexes->relation->ri_IndexRelationInfo[i];

		index->ii_PredicateState = ExecInitQual(index->ii_Predicate, NULL);
	}
	MemoryContextSwitchTo(old);
}

void
sweep_indexes_close(SweepIndexes *indexes)
{
	ExecCloseIndices(indexes->relation);
	FreeExecutorState(indexes->estate);
}

bool
sweep_indexes_insert(SweepIndexes *indexes, TupleTableSlot *row, Oid tolerant)
{
	List	   *doubtful = sweep_insert_index_tuples(indexes->relation, indexes->estate, OidIsValid(tolerant) ? EIIT_NO_DUPE_ERROR : 0, row,
												   OidIsValid(tolerant) ? list_make1_oid(tolerant) : NIL);

	ResetPerTupleExprContext(indexes->estate);
	return doubtful == NIL;
}

bool
sweep_row_lock(Relation table, ItemPointer place, Snapshot snapshot, LockTupleMode mode, TupleTableSlot *row)
{
	TM_FailureData failure;

	return table_tuple_lock(table, place, snapshot, row, GetCurrentCommandId(true), mode, LockWaitSkip, 0, &failure) == TM_Ok;
}

void
sweep_indexes_update(SweepIndexes *indexes, TupleTableSlot *row, TU_UpdateIndexes which)
{
	if (which == TU_None)
		return;
	(void) sweep_insert_index_tuples(indexes->relation, indexes->estate, which == TU_Summarizing ? EIIT_ONLY_SUMMARIZING : 0, row, NIL);
	ResetPerTupleExprContext(indexes->estate);
}
