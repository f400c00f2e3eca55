/*
 * key.h
 *		Messages with keys, of which at most one waits at a time.
 */
#ifndef SWEEP_QUEUE_KEY_H
#define SWEEP_QUEUE_KEY_H

#include "queue/insert.h"

/* A message of a shipment, with what it has of its own. */
typedef struct SweepKeyed
{
	text	   *key;			/* or NULL */
	int			number;			/* of its payload */
	int64		message_id;
} SweepKeyed;

/*
 * Inserts the messages whose keys are not waiting, and returns how many. Waits for transactions in which
 * this is undecided. The array is sorted.
 */
extern int	sweep_key_insert(const SweepShipment *shipment, SweepKeyed *messages, int count);

#endif							/* SWEEP_QUEUE_KEY_H */
