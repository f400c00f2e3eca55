/*
 * queue.h
 *		The queues, for other rooms: the only header of this room that they include.
 *
 * Each comment names the file that implements the function.
 */
#ifndef SWEEP_QUEUE_H
#define SWEEP_QUEUE_H

#include "port/atomics.h"
#include "utils/jsonb.h"
#include "utils/uuid.h"

/* memory.c: request the shared memory, and attach to it or initialize it; only while the server starts, see pg_sweep.c. */
extern void sweep_queue_request_memory(void);
extern void sweep_queue_initialize_memory(void);

/*
 * table.c: returns the id of the queue of that name, which no other transaction can drop before this one has ended.
 * Raises an error when there is no such queue or the current user may not claim from it.
 */
extern int32 sweep_queue_lock_to_consume(const char *name);

/*
 * wait.c: waits, without a transaction, until the queue may have something to claim, the timeout has passed, or an interrupt is pending; in a
 * session that includes the loss of its client. In a worker the wait also ends when "stop_requested" is set or the configuration is to be
 * reloaded; a session passes NULL. "relation" is sweep.queue_message.
 */
extern void sweep_queue_wait(Oid relation, int32 queue_id, long timeout_ms, pg_atomic_uint32 *stop_requested);

/* wait.c: to be called by a process that was woken and will not claim; wakes another one if there is something to claim. */
extern void sweep_queue_pass_on(Oid relation, int32 queue_id);

/*
 * fail.c: sweep.fail as the current user, with an error that is an object already; message_ids is a bigint[]. With "for_good" the
 * messages are dead, whatever their attempts. Returns the number of messages.
 */
extern int	sweep_queue_fail_with(const pg_uuid_t *lease, Jsonb *error, Datum message_ids, bool for_good);

/*
 * ack.c: returns the messages of a lease that no transaction is ending to the queue, at once, even if the transaction in progress is rolled
 * back; called when a process exits. For messages in the sorted array "untried" the delivery does not count as an attempt.
 */
extern void sweep_queue_release_lease(const pg_uuid_t *lease, int64 *untried, int count);

/*
 * ack.c: from now on sweep.release refuses this lease in this process; NULL = none. A handler that releases its own message would get it
 * again at once, in an endless loop, since a release does not count as an attempt.
 */
extern void sweep_queue_keep_lease(const pg_uuid_t *lease);

/* Whether the messages of a queue are announced (NOTIFY). Only the commit that leaves the state NONE wakes the scheduler. */
typedef enum SweepNews
{
	NEWS_NONE,					/* next: PENDING (commit) */
	NEWS_PENDING,				/* messages have come; next: SENDING (scheduler) */
	NEWS_SENDING,				/* a scheduler sends the notification; next: NONE (sent), PENDING (a commit, or it was not sent), UNWANTED */
	NEWS_UNWANTED,				/* the queue does not notify; next: PENDING (the slot is reset) */
} SweepNews;

typedef struct SweepQueueNews
{
	int			slot;
	int32		queue_id;
	SweepNews	state;
} SweepQueueNews;

/*
 * slot.c: takes the queues of this database that are to be announced now, each at most once per pg_sweep.notify_interval. Fills an array
 * of pg_sweep.max_queues elements and returns their number. *wait_us is shortened to the time when the next queue may be announced.
 */
extern int	sweep_queue_take_news(SweepQueueNews *taken, int64 *wait_us);

/* slot.c: sets the new state of each of these queues: NONE, PENDING or UNWANTED. */
extern void sweep_queue_settle_news(const SweepQueueNews *taken, int count);

/* statement.c: notes that a database was dropped, or that this transaction may have dropped sweep.queue_message. InvalidOid = none. */
extern void sweep_queue_note_dropped(Oid database, Oid relation);

/*
 * transaction.c: applies the changes of prepared transactions that have ended, and settles the messages that they were ending. Takes the
 * lock itself.
 */
extern void sweep_queue_settle_prepared(void);

#endif							/* SWEEP_QUEUE_H */
