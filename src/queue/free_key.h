/*
 * free_key.h
 *		Gives the keys of claimed messages free.
 */
#ifndef SWEEP_QUEUE_FREE_KEY_H
#define SWEEP_QUEUE_FREE_KEY_H

#include "queue/table.h"

/* State for the messages of one claim; all but "messages" begins with zero. */
typedef struct SweepKeyFreeing
{
	Relation	messages;
	SweepIndexes indexes;
	TupleTableSlot *row;		/* the new version of a row; NULL until the first one */
} SweepKeyFreeing;

/*
 * Another message with the key can be sent from the commit on. The slot has the row, which is at *place; that becomes the
 * place of its new version. False when another transaction has written or locked the row; waits for none.
 */
extern bool sweep_key_free(SweepKeyFreeing *freeing, TupleTableSlot *slot, Snapshot snapshot, ItemPointer place);

/* To be called after the last row, if there was one: the new versions can be read. */
extern void sweep_key_free_end(SweepKeyFreeing *freeing);

#endif							/* SWEEP_QUEUE_FREE_KEY_H */
