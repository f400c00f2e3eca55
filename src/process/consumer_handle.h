/*
 * consumer_handle.h
 *		One transaction of a consumer: its handler is called for messages, and they are acknowledged.
 */
#ifndef SWEEP_CONSUMER_HANDLE_H
#define SWEEP_CONSUMER_HANDLE_H

#include "base/shared.h"
#include "base/door.h"
#include "base/txn.h"
#include "engine/step.h"
#include "pure/bisect.h"
#include "utils/uuid.h"

typedef struct SweepClaimed
{
	Datum		record;			/* sweep.message */
	int64		message_id;
	int			crashes;
	bool		called;			/* the handler was called with it, so it counts an attempt */
	int			spared;			/* calls that an error of the server ended, not counted as attempts */
} SweepClaimed;

typedef struct SweepConsumer
{
	SweepSlot  *slot;
	int32		consumer_id;
	Oid			role;
	bool		present;		/* extension and consumer exist, and the consumer has no problem */
	Oid			relation;		/* sweep.queue_message */
	int32		queue_id;
	char	   *queue;
	char		name[NAMEDATALEN + 32]; /* of the session */
	Oid			handler;
	SweepCallee callee;			/* the handler; set when "call" is prepared */
	Oid			element;		/* of the array that it takes; InvalidOid when it takes one message */
	int			batch;
	int64		visibility_us;	/* of the queue */
	bool		has_suspects;	/* messages have crash counters since before this process began */
	SweepPlan  *claim;
	SweepPlan  *call;
	SweepPlan  *ack;
	MemoryContext turn_context;
	MemoryContext session_context;	/* of "meaning" */
	SweepMeaning *meaning;		/* session state that is restored before each call of the handler; NULL = not noted yet */
	TimestampTz configured_at;	/* PgReloadTime when "meaning" was noted */
	long		pause_ms;		/* after a claim that failed */
	long		outage_ms;		/* last pause after an error of the server; 0 = a batch was done since */
	/* State of the turn. */
	SweepClaimed *messages;
	int64	   *untried;		/* buffer for the ids of the messages */
	int			count;
	pg_uuid_t	lease;
	SweepPiece	piece;
	int			awaited;		/* standby confirmation that the commit of the piece waits for, see base/remote.h */
	Jsonb	   *error;			/* of the single message that failed */
} SweepConsumer;

/*
 * Calls work with the consumer in a transaction; false and *error when that failed. When the extension is gone, work
 * is not called, and consumer->present becomes false.
 */
extern bool sweep_consumer_transact(SweepConsumer *consumer, SweepWork work, ErrorData **error);

/* Handles the piece of the consumer; false and *error when that failed and was rolled back. */
extern bool sweep_consumer_handle(SweepConsumer *consumer, ErrorData **error);

/* Counts messages in the slot of this process as handled, or with an error as failed. */
extern void sweep_consumer_note(const SweepConsumer *consumer, int64 messages, const char *error);

/* The ids of the messages of the piece, as bigint[]. */
extern Datum sweep_consumer_piece_ids(const SweepConsumer *consumer);

/* Removes the crash counters of messages; parameters: queue, messages. */
extern SweepStatement sweep_forget_crashes_sql;

#endif							/* SWEEP_CONSUMER_HANDLE_H */
