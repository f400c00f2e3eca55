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
	int64		left_out_for;	/* the message of another transaction that has the key; 0 = inserted, or the key is of this transaction */
} SweepKeyedMessage;

/* The hash of a key; never 0. */
extern uint32 sweep_key_hash(const text *key);

/* Compares byte by byte, as the index does; NULL comes last. */
extern int	sweep_key_compare(const text *a, const text *b);

/*
 * Inserts the messages whose keys are not waiting, and returns how many. Waits for transactions that decide on a key.
 * Sorts the array, and notes in it which are left out.
 */
extern int	sweep_key_insert(const SweepSendRequest *request, SweepKeyedMessage *messages, int count);

/*
 * For a message that was left out, when its transaction is about to commit. If one with its key waits, that one is not delivered before
 * the transaction has ended; if none does, the message is inserted, without its key if an open transaction may have it. Waits for
 * no transaction. False when nothing was inserted.
 */
extern bool sweep_key_insert_at_end(const SweepSendRequest *request, const SweepKeyedMessage *message);

/*
 * Inserts a message that waits once more, with the key that its first claim gave free; without it if another message has
 * the key, or one of an open transaction may. "old" is its row, which the caller has deleted. Waits for no transaction.
 */
extern void sweep_key_put_back(const SweepSendRequest *request, TupleTableSlot *old, int attempts, Jsonb *error);

#endif							/* SWEEP_QUEUE_KEY_H */
