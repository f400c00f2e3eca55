/*
 * table.h
 *		The queues, and the rows of their messages, read and written without SQL.
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
	char		name[NAMEDATALEN];	/* key of the hash table */
	int32		queue_id;
	Oid			owner;			/* InvalidOid: the role is gone */
	int64		visibility_us;
	int32		max_attempts;
	int64		backoff_us;		/* or SWEEP_BACKOFF_SIDEKIQ */
	int64		keep_done_us;
	SweepKeyPolicy key_policy;
	int			sender_count;
	Oid		   *senders;		/* roles that may send, as far as they exist */
	int			consumer_count;
	Oid		   *consumers;		/* roles that may claim */
} SweepQueue;

typedef enum SweepQueueRight
{
	RIGHT_SEND,
	RIGHT_CONSUME,
} SweepQueueRight;

/* Opens sweep.queue_message for writing; the lock stays until the transaction ends. */
extern Relation sweep_queue_open(void);

/* Opens an index of that table, which is open; an error unless it has entries of all rows. */
extern Relation sweep_queue_open_index(Relation messages, const char *name, LOCKMODE mode);

/* OIDs of sweep.queue_message and of the sequence of its ids. */
extern Oid	sweep_queue_relation(void);
extern Oid	sweep_queue_sequence(void);

/*
 * The queue of that name, valid until the next call; raises an error when there is none or the current user lacks the
 * right. No other transaction can drop it before this one has ended.
 */
extern const SweepQueue *sweep_queue_find(text *name, SweepQueueRight right);
extern const SweepQueue *sweep_queue_find_by_id(int32 queue_id, SweepQueueRight right);

/*
 * Puts the row of a message into the slot; false when it is gone. May change tid. blocks: the size of the table, which
 * cannot shrink while it is open.
 */
extern bool sweep_queue_fetch(Relation messages, BlockNumber blocks, const SweepQueue *queue, Snapshot snapshot,
							  SweepMessageRef *message, TupleTableSlot *slot);

/* Rows that are inserted at a time. */
#define SWEEP_INSERT_ROWS 100

/* The messages that a call sends, all to one lane of one queue. */
typedef struct SweepSendRequest
{
	Relation	messages;
	Oid			sequence;		/* of the ids */
	int32		queue_id;
	SweepKeyPolicy key_policy;
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
	SweepIndexes indexes;
	TimestampTz sent_at;
	int			room;
	int			filled;
	TupleTableSlot **slots;		/* of the rows that are inserted next, or were last */
} SweepInserter;

/* Inserts rows of a request: open, for each turn add rows, write them and their index entries, close. */
extern void sweep_inserter_open(SweepInserter *inserter, const SweepSendRequest *request);
extern void sweep_inserter_close(SweepInserter *inserter);

/* Adds the row of a payload, if the caller has seen that there is room; key may be NULL. "claimed": it does not keep others with its key away. */
extern void sweep_inserter_add_row(SweepInserter *inserter, int64 message_id, text *key, int number, bool claimed);

/*
 * Adds the row of a message that waits again, in the lane and at the due time of the request. "old", the row that it had,
 * must stay until this one is written. "claimed": without its key.
 */
extern void sweep_inserter_add_again(SweepInserter *inserter, TupleTableSlot *old, bool claimed, int attempts, Jsonb *error);

/* Inserts the rows that were added, without index entries. */
extern void sweep_inserter_write_rows(SweepInserter *inserter);

/*
 * Inserts the index entries of one of these rows. In the given index, if any, an entry that may be a duplicate is made
 * without an error and without waiting; then the result is false.
 */
extern bool sweep_inserter_write_entries(SweepInserter *inserter, int row, Oid index);

/* Deletes the rows again, from this one on. */
extern void sweep_inserter_withdraw(SweepInserter *inserter, int row);

#endif							/* SWEEP_QUEUE_TABLE_H */
