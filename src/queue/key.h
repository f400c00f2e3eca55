/*
 * key.h
 *		Messages with keys: at most one per key waits at a time.
 */
#ifndef SWEEP_QUEUE_KEY_H
#define SWEEP_QUEUE_KEY_H

#include "access/relscan.h"

#include "queue/table.h"

/* A message of a request. */
typedef struct SweepKeyedMessage
{
	text	   *key;			/* or NULL */
	int			number;			/* index of its payload in the request */
	int64		message_id;
	int64		left_out_for;	/* the message of another transaction that has the key; 0 = inserted, or a message of this transaction has the key */
} SweepKeyedMessage;

/* The hash of a key; never 0. */
extern uint32 sweep_key_hash(const text *key);

/* Begins a scan for a key; its index is queue_message_waiting_key. */
extern void sweep_key_begin_scan(IndexScanDesc scan, int32 queue_id, text *key);

/*
 * Finds the next message with this key that was returned to the queue: sets *message, and puts its row into the slot. The index does not show
 * such a message: its row still has claimed = true. *nth begins with 0.
 */
extern bool sweep_key_find_returned(Relation messages, int32 queue_id, text *key, Snapshot snapshot, int *nth, SweepMessageRef *message,
									TupleTableSlot *slot);

/* Compares byte by byte, as the index does; NULL comes last. */
extern int	sweep_key_compare(const text *a, const text *b);

/*
 * Inserts the messages whose keys no waiting message has, and returns how many. Waits for the transactions that decide on a key.
 * Sorts the array, and sets left_out_for.
 */
extern int	sweep_key_insert(const SweepSendRequest *request, SweepKeyedMessage *messages, int count);

/*
 * Looks up the key of a message that was left out, when its transaction is about to commit. If another message waits with the key, that
 * one is not delivered before the transaction has ended. If none does, the message is inserted, but without its key if an open
 * transaction may have the key. Waits for no transaction. False when nothing was inserted.
 */
extern bool sweep_key_insert_at_end(const SweepSendRequest *request, const SweepKeyedMessage *message);

/*
 * Inserts a failed message again. "freed": with the key that its first claim freed; without the key if another message has it, or
 * one of an open transaction may. "old" is its row, which the caller has deleted. Waits for no transaction.
 */
extern void sweep_key_put_back(const SweepSendRequest *request, TupleTableSlot *old, bool freed, int attempts, Jsonb *error);

#endif							/* SWEEP_QUEUE_KEY_H */
