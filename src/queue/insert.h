/*
 * insert.h
 *		Rows of sweep.queue_message, inserted without SQL.
 */
#ifndef SWEEP_QUEUE_INSERT_H
#define SWEEP_QUEUE_INSERT_H

#include "nodes/execnodes.h"
#include "utils/jsonb.h"

#include "queue/transaction.h"

/* Rows that are inserted at a time. */
#define SWEEP_INSERT_ROWS 100

/* What a call sends, all of it to one lane of one queue. */
typedef struct SweepSendRequest
{
	Relation	messages;
	Oid			sequence;		/* of the ids */
	int32		queue_id;
	int16		lane;
	TimestampTz due_at;			/* when the lane is one of delayed messages */
	Datum		headers;
	bool		has_headers;
	int			count;
	Datum	   *payloads;
	SweepQueueChange *change;
} SweepSendRequest;

typedef struct SweepInserter
{
	const SweepSendRequest *request;
	EState	   *estate;
	ResultRelInfo *relation;
	TimestampTz sent_at;
	int			room;
	int			filled;
	TupleTableSlot **slots;		/* of the rows that are inserted next, or were last */
} SweepInserter;

/* Until it is closed, or the transaction ends with an error. */
extern void sweep_inserter_open(SweepInserter *inserter, const SweepSendRequest *request);
extern void sweep_inserter_close(SweepInserter *inserter);

/* Adds the row of a payload; the caller looks that there is room. Without a key, key is NULL. */
extern void sweep_inserter_add_row(SweepInserter *inserter, int64 message_id, text *key, int number);

/*
 * Adds the row of a message that waits again, in the lane and at the due time of the shipment. `old`, the row that
 * it had, must stay until this one is written. `claimed`: without its key.
 */
extern void sweep_inserter_add_again(SweepInserter *inserter, TupleTableSlot *old, bool claimed, int attempts, Jsonb *error);

/* Inserts the rows that were added, into the table alone. */
extern void sweep_inserter_write_rows(SweepInserter *inserter);

/*
 * Inserts the index entries of one of these rows. In the index that is given, if any, an entry that may be
 * a duplicate is no error, nor is anybody waited for: then the result is false, and the entry is there.
 */
extern bool sweep_inserter_write_entries(SweepInserter *inserter, int row, Oid index);

/* Deletes the rows from this one on. */
extern void sweep_inserter_withdraw(SweepInserter *inserter, int row);

#endif							/* SWEEP_QUEUE_INSERT_H */
