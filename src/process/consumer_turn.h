/*
 * consumer_turn.h
 *		One turn of a consumer in the database: claim, handle, acknowledge.
 */
#ifndef SWEEP_CONSUMER_TURN_H
#define SWEEP_CONSUMER_TURN_H

#include "base/consumer_shared.h"
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
	bool		called;			/* its handler was: that is an attempt */
	int			spared;			/* how often an error of the server was no attempt */
} SweepClaimed;

typedef struct SweepConsumer
{
	int			index;			/* of its slot */
	SweepConsumerSlot *slot;
	int32		consumer_id;
	Oid			role;
	bool		present;		/* the extension and the consumer are there, and nothing stands in the way */
	Oid			relation;		/* sweep.queue_message */
	int32		queue_id;
	char	   *queue;
	char		name[NAMEDATALEN + 32]; /* of the session */
	Oid			handler;
	SweepCallee callee;			/* the handler, once call is prepared */
	Oid			element;		/* of the array that it takes; InvalidOid when it takes one message */
	int			batch;
	int64		visibility_us;	/* of the queue */
	bool		has_suspects;	/* there were crashes before this process began */
	SweepPlan  *claim;
	SweepPlan  *call;
	SweepPlan  *ack;
	MemoryContext turn_context;
	MemoryContext session_context;	/* of the next one */
	SweepMeaning *meaning;		/* with which each call of the handler begins; NULL = not noted yet */
	TimestampTz configured_at;	/* when the configuration was read that it is of */
	long		pause_ms;		/* after a claim that failed */
	long		outage_ms;		/* last pause after an error of the server; 0 = a batch was done since */
	/* State of the turn. */
	SweepClaimed *messages;
	int64	   *untried;		/* room for their ids */
	int			count;
	pg_uuid_t	lease;
	SweepPiece	piece;
	int			awaited;		/* what the commit of the piece waits for, see base/remote.h */
	Jsonb	   *error;			/* of the single message that failed */
} SweepConsumer;

/* For the exit of the process: gives back what it has claimed. A message that was not passed to a handler counts no attempt. */
extern void sweep_consumer_release(SweepConsumer *consumer);

/* Handles what can be claimed, or waits until there is something, or until it is asked to leave. */
extern void sweep_consumer_take_turn(SweepConsumer *consumer);

#endif							/* SWEEP_CONSUMER_TURN_H */
