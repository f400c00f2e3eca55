/*
 * free_key.h
 *		The keys of messages that are claimed, given free.
 */
#ifndef SWEEP_QUEUE_FREE_KEY_H
#define SWEEP_QUEUE_FREE_KEY_H

#include "executor/tuptable.h"

#include "base/indexes.h"

/* Time for which a message is left alone whose row another transaction has written or locked, or a sender has, in us. */
#define SWEEP_PUT_OFF_US USECS_PER_SEC
#define SWEEP_PUT_OFF_FOR_SENDER_US (100 * 1000)

/* For one claim; all zero until the first key is given free. */
typedef struct SweepKeyFreeing
{
	SweepIndexes indexes;
	TupleTableSlot *row;		/* the new version of a row; NULL until the first one */
} SweepKeyFreeing;

/*
 * Gives the key of a message free, so that another one with this key can be sent from the commit on. "row" is that at *place, which
 * becomes the place of its new version; then *moved. Returns the time to put the message off, in us: another transaction has written
 * or locked the row, or senders share it, also after the update.
 */
extern int64 sweep_key_free(SweepKeyFreeing *freeing, Relation messages, ItemPointer place, TupleTableSlot *row, Snapshot snapshot, bool *moved);

/* After the last key of a call, if one was given free. */
extern void sweep_key_free_close(SweepKeyFreeing *freeing);

#endif							/* SWEEP_QUEUE_FREE_KEY_H */
