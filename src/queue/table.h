/*
 * table.h
 *		The queues, and their messages' rows, which are read and written without SQL.
 */
#ifndef SWEEP_QUEUE_TABLE_H
#define SWEEP_QUEUE_TABLE_H

#include "executor/tuptable.h"
#include "storage/block.h"
#include "utils/jsonb.h"
#include "utils/rel.h"
#include "utils/snapshot.h"

#include "base/indexes.h"
#include "queue/memory.h"

/* The columns of sweep.queue_message, in the order of queue.sql. */
#define MESSAGE_ID			1
#define MESSAGE_SENT_AT		2
#define MESSAGE_DUE_AT		3
#define MESSAGE_QUEUE_ID	4
#define MESSAGE_LANE		5
#define MESSAGE_ATTEMPTS	6
#define MESSAGE_CLAIMED		7
#define MESSAGE_KEY			8
#define MESSAGE_HEADERS		9
#define MESSAGE_ERROR		10
#define MESSAGE_PAYLOAD		11
#define MESSAGE_COLUMNS		11

typedef enum SweepKeyPolicy
{
	KEY_WHILE_QUEUED,
	KEY_WHILE_QUEUED_OR_RUNNING,
	KEY_ONCE_MORE_IF_RUNNING,
} SweepKeyPolicy;

#define SWEEP_BACKOFF_SIDEKIQ (-1)

/* A row of sweep.queue, kept by the process until any row of that table changes. */
typedef struct SweepQueue
{
	char		name[NAMEDATALEN];	/* key of the hash table of queues */
	int32		queue_id;
	Oid			owner;			/* InvalidOid = the role was dropped */
	int64		visibility_us;
	int32		max_attempts;
	int64		backoff_us;		/* or SWEEP_BACKOFF_SIDEKIQ */
	int64		keep_done_us;
	SweepKeyPolicy key_policy;
	int			sender_count;
	Oid		   *senders;		/* existing roles that may send */
	int			consumer_count;
	Oid		   *consumers;		/* existing roles that may claim */
} SweepQueue;

typedef enum SweepQueueRight
{
	RIGHT_SEND,
	RIGHT_CONSUME,
} SweepQueueRight;

/* Opens sweep.queue_message for writing; the lock stays until the transaction ends. */
extern Relation sweep_queue_open(void);

/* Opens an index of that table, which the caller has open. Raises an error unless the index has entries of all rows. */
extern Relation sweep_queue_open_index(Relation messages, const char *name, LOCKMODE mode);

/* OIDs of sweep.queue_message and of the sequence of its ids. */
extern Oid	sweep_queue_relation(void);
extern Oid	sweep_queue_sequence(void);

/*
 * The queue of that name or id, valid until the next call. Raises an error when there is none or the current user lacks
 * the right. No other transaction can drop the queue before this one has ended.
 */
extern const SweepQueue *sweep_queue_find(text *name, SweepQueueRight right);
extern const SweepQueue *sweep_queue_find_by_id(int32 queue_id, SweepQueueRight right);

/*
 * Puts the row of a message into the slot; false when it is gone. Sets message->tid to the row's present place. blocks:
 * the size of the table, which cannot shrink while it is open.
 */
extern bool sweep_queue_fetch(Relation messages, BlockNumber blocks, const SweepQueue *queue, Snapshot snapshot,
							  SweepMessageRef *message, TupleTableSlot *slot);

/* Number of rows that are inserted at a time. */
#define SWEEP_INSERT_ROWS 100

/* The messages that a call sends, all to one lane of one queue. */
typedef struct SweepSendRequest
{
	Relation	messages;
	Oid			sequence;		/* of the message ids */
	int32		queue_id;
	SweepKeyPolicy key_policy;
	int16		lane;
	TimestampTz due_at;			/* if the lane is one of delayed messages */
	Datum		headers;
	bool		has_headers;
	int			count;
	Datum	   *payloads;
	SweepQueueChange *change;
} SweepSendRequest;

typedef struct SweepInserter
{
	const SweepSendRequest *request;
	SweepIndexes indexes;
	TimestampTz sent_at;
	int			room;
	int			filled;
	TupleTableSlot **slots;		/* the rows that are inserted next, or were inserted last */
} SweepInserter;

/* Insert the rows of a request: open; in each turn add rows, write them, and write their index entries; close. */
extern void sweep_inserter_open(SweepInserter *inserter, const SweepSendRequest *request);
extern void sweep_inserter_close(SweepInserter *inserter);

/* Adds the row of payload "number"; the caller checks "room". key may be NULL. "claimed": the row does not occupy its key. */
extern void sweep_inserter_add_row(SweepInserter *inserter, int64 message_id, text *key, int number, bool claimed);

/*
 * Adds a new row for a message that waits again, in the lane and with the due time of the request. "old", its row so far,
 * must stay in the slot until the new one is written. "claimed": the row does not occupy its key.
 */
extern void sweep_inserter_add_again(SweepInserter *inserter, TupleTableSlot *old, bool claimed, int attempts, Jsonb *error);

/* Inserts the rows that were added, without index entries. */
extern void sweep_inserter_write_rows(SweepInserter *inserter);

/*
 * Inserts the index entries of one of these rows. In the given unique index, if any, an entry that may be a duplicate
 * is made without waiting and without an error; the result is then false.
 */
extern bool sweep_inserter_write_entries(SweepInserter *inserter, int row, Oid index);

/* Deletes these rows again, from that number on. */
extern void sweep_inserter_withdraw(SweepInserter *inserter, int row);

#endif							/* SWEEP_QUEUE_TABLE_H */
