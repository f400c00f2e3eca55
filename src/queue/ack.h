/*
 * ack.h
 *		Ending messages of a lease: the common part of sweep.ack, fail and release.
 */
#ifndef SWEEP_QUEUE_ACK_H
#define SWEEP_QUEUE_ACK_H

#include "queue/table.h"

/* A call: the lease, and the messages of it that the call names. */
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
	int			count;			/* of the messages of the lease */
	SweepInFlight *held;		/* copies */
} SweepEnding;

/*
 * Opens the table and reads the arguments of a call: the lease is the first, ids_argument that of the ids, or -1; name
 * for errors. False when there is no such lease (any more).
 */
extern bool sweep_ending_open(SweepEnding *ending, FunctionCallInfo fcinfo, int ids_argument, const char *name);

/* Marks the messages as being ended by this transaction, and copies them. Returns how many. */
extern int	sweep_ending_begin(SweepEnding *ending);

/* Deletes the row of a message and leaves it in the slot; false when it is gone. */
extern bool sweep_ending_remove_row(const SweepEnding *ending, SweepMessageRef *message, Snapshot snapshot, TupleTableSlot *slot);

/* Closes the table; returns how many messages were done, and says so when the lease does not hold all that the call names. */
extern int	sweep_ending_close(const SweepEnding *ending, int done);

#endif							/* SWEEP_QUEUE_ACK_H */
