/*
 * free_key.h
 *		Gives the keys of claimed messages free.
 */
#ifndef SWEEP_QUEUE_FREE_KEY_H
#define SWEEP_QUEUE_FREE_KEY_H

#include "queue/table.h"

/* Of the messages of a claim; all but the first zero to begin with. */
typedef struct SweepKeyFreeing
{
	Relation	messages;
	SweepIndexes indexes;
	TupleTableSlot *row;		/* its new version; NULL until the first one */
} SweepKeyFreeing;

/*
 * From the commit on another message with the same key may be sent. The slot has the row, which is at *place, and is then at
 * another one. False when another transaction has written or locked it; waits for none.
 */
extern bool sweep_key_free(SweepKeyFreeing *freeing, TupleTableSlot *slot, Snapshot snapshot, ItemPointer place);

/* After the last one: what was written can be read. */
extern void sweep_key_free_end(SweepKeyFreeing *freeing);

#endif							/* SWEEP_QUEUE_FREE_KEY_H */
