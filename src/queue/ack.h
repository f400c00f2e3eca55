/*
 * ack.h
 *		Ending messages of a lease: the common part of sweep.ack, fail and release.
 */
#ifndef SWEEP_QUEUE_ACK_H
#define SWEEP_QUEUE_ACK_H

#include "queue/table.h"

/* A call that ends messages: the lease, and its messages that the call names. */
typedef struct SweepEnding
{
	pg_uuid_t  *lease;
	bool		all;
	int			id_count;
	int64	   *ids;			/* sorted */
	Relation	messages;
	SweepQueue	queue;
	SweepQueueChange *change;
	BlockNumber blocks;			/* size of the table */
	int			count;			/* number of messages of the lease */
	SweepInFlight *held;		/* copies of the messages that are being ended */
} SweepEnding;

/*
 * Opens the table and reads the arguments of a call. The first one is the lease, that with the number ids_argument are
 * the ids (-1 = none); "name" is shown in errors. False when there is no such lease, or it has ended.
 */
extern bool sweep_ending_open(SweepEnding *ending, FunctionCallInfo fcinfo, int ids_argument, const char *name);

/* Marks the messages as being ended by this transaction, and copies them. Returns their number. */
extern int	sweep_ending_begin(SweepEnding *ending);

/* Deletes the row of a message and leaves it in the slot; false when it is gone. */
extern bool sweep_ending_remove_row(const SweepEnding *ending, SweepMessageRef *message, Snapshot snapshot, TupleTableSlot *slot);

/* Closes the table and returns "done", the messages that were ended; a NOTICE when the lease lacks messages that the call names. */
extern int	sweep_ending_close(const SweepEnding *ending, int done);

#endif							/* SWEEP_QUEUE_ACK_H */
