/*
 * key.h
 *		Messages with keys, of which at most one waits at a time.
 */
#ifndef SWEEP_QUEUE_KEY_H
#define SWEEP_QUEUE_KEY_H

#include "queue/table.h"

/* A message of a request. */
typedef struct SweepKeyedMessage
{
	text	   *key;			/* or NULL */
	int			number;			/* of its payload, among those of the request */
	int64		message_id;
} SweepKeyedMessage;

/* The hash of a key; never 0. */
extern uint32 sweep_key_hash(const text *key);

/*
 * Inserts the messages whose keys are not waiting, and returns how many. Waits for transactions that decide on a key.
 * Sorts the array.
 */
extern int	sweep_key_insert(const SweepSendRequest *request, SweepKeyedMessage *messages, int count);

/*
 * Inserts a message that waits once more, with the key that its first claim gave free; without it if another message has
 * the key, or one of an open transaction may. "old" is its row, which the caller has deleted. Waits for no transaction.
 */
extern void sweep_key_put_back(const SweepSendRequest *request, TupleTableSlot *old, int attempts, Jsonb *error);

#endif							/* SWEEP_QUEUE_KEY_H */
