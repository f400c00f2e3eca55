/*
 * free_key.h
 *		Frees the keys of claimed messages.
 */
#ifndef SWEEP_QUEUE_FREE_KEY_H
#define SWEEP_QUEUE_FREE_KEY_H

#include "executor/tuptable.h"

#include "base/indexes.h"

/* Time for which a claim puts off a message whose row another transaction has written or locked, or a sender has locked, in us. */
#define SWEEP_PUT_OFF_US USECS_PER_SEC
#define SWEEP_PUT_OFF_FOR_SENDER_US (100 * 1000)

/* State of one claim; all zero until the first key is freed. */
typedef struct SweepKeyFreeing
{
	SweepIndexes indexes;
	TupleTableSlot *row;		/* the new version of a row; NULL until the first one */
} SweepKeyFreeing;

/*
 * Frees the key of a message: after the commit another message with this key can be sent. "row" is the row at *place; if it gets a
 * new version, *place is set to that, and *moved to true. Returns for how long the message is to be put off, in us, if another
 * transaction has written the row or has it locked (a sender's lock puts it off although the update is done); else 0.
 */
extern int64 sweep_key_free(SweepKeyFreeing *freeing, Relation messages, ItemPointer place, TupleTableSlot *row, Snapshot snapshot, bool *moved);

/* To be called after the last key of a claim, if a key was freed. */
extern void sweep_key_free_close(SweepKeyFreeing *freeing);

#endif							/* SWEEP_QUEUE_FREE_KEY_H */
