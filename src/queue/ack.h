/*
 * ack.h
 *		Ending messages of a lease: what sweep.ack and sweep.fail have in common.
 */
#ifndef SWEEP_QUEUE_ACK_H
#define SWEEP_QUEUE_ACK_H

#include "queue/table.h"

/* A call: the lease and which of its messages are meant. */
typedef struct SweepEnding
{
	pg_uuid_t  *lease;
	bool		all;
	int			id_count;
	int64	   *ids;			/* sorted */
	Relation	messages;
	SweepQueue	queue;
	SweepQueueChange *change;
	BlockNumber blocks;			/* of the table */
	int			count;			/* of what the lease has */
	SweepInFlight *held;			/* copies */
} SweepEnding;

/*
 * The arguments of a call; the lease is the first, ids_argument that of the ids, or -1; name for errors. False when the
 * lease does not exist (any more).
 */
extern bool sweep_ending_open(SweepEnding *ending, FunctionCallInfo fcinfo, int ids_argument, const char *name);

/* Marks what the lease holds and the call means as being ended by this transaction, and copies it. Returns how many. */
extern int	sweep_ending_begin(SweepEnding *ending);

/* The same for one message; false when the lease does not hold it any more or another transaction is just ending it. */
extern bool sweep_queue_begin_ending(const pg_uuid_t *lease, int number);

/* Deletes the row of a message and leaves it in the slot; false when it is gone. */
extern bool sweep_ending_remove_row(const SweepEnding *ending, SweepMessageRef *message, Snapshot snapshot, TupleTableSlot *slot);

/* Returns how many messages were done, and says so when the lease does not hold what was meant. */
extern int	sweep_ending_report(const SweepEnding *ending, int done);

#endif							/* SWEEP_QUEUE_ACK_H */
