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

/* memory.c: requests the shared memory, and finds or makes it; only while the server starts, see pg_sweep.c. */
extern void sweep_queue_request_memory(void);
extern void sweep_queue_initialize_memory(void);

/*
 * table.c: the id of the queue of that name, which no other transaction can drop before this one has ended; raises an
 * error when there is none or the current user may not claim from it.
 */
extern int32 sweep_queue_lock_to_consume(const char *name);

/*
 * wait.c: waits, without a transaction, until the queue may have something to claim, the time is over, or an interrupt
 * is to be served: in a session also the end of its client. A worker also waits until "stop_requested" is set, or the
 * configuration is to be read; for a session that is NULL. "relation" is sweep.queue_message.
 */
extern void sweep_queue_wait(Oid relation, int32 queue_id, long timeout_ms, pg_atomic_uint32 *stop_requested);

/* wait.c: to be called by a process that was woken and does not look; wakes another one if there is something to claim. */
extern void sweep_queue_pass_on(Oid relation, int32 queue_id);

/*
 * fail.c: sweep.fail as the current user, with an error that is an object already; message_ids is a bigint[]. With "for_good" the
 * messages are dead, whatever their attempts. Returns the number of messages.
 */
extern int	sweep_queue_fail_with(const pg_uuid_t *lease, Jsonb *error, Datum message_ids, bool for_good);

/*
 * ack.c: gives back the messages of a lease that no transaction is ending, at once and whatever becomes of the transaction
 * in progress: for the exit of a process. For those in "untried", which is sorted, this was no attempt.
 */
extern void sweep_queue_release_lease(const pg_uuid_t *lease, int64 *untried, int count);

/*
 * ack.c: the lease that sweep.release refuses in this process from now on, NULL = none. A handler that gave its own message back, which is
 * no attempt, would get it again at once, without end.
 */
extern void sweep_queue_keep_lease(const pg_uuid_t *lease);

/* Whether the messages of a queue are announced. A commit asks for a scheduler once, until the state is NONE again. */
typedef enum SweepNews
{
	NEWS_NONE,					/* next: PENDING (commit) */
	NEWS_PENDING,				/* messages have come; next: SENDING (scheduler) */
	NEWS_SENDING,				/* next: NONE (sent), PENDING (a commit, or it was not sent), UNWANTED */
	NEWS_UNWANTED,				/* the queue does not notify; next: PENDING (queue looked at from its start) */
} SweepNews;

typedef struct SweepQueueNews
{
	int			slot;
	int32		queue_id;
	SweepNews	state;
} SweepQueueNews;

/*
 * slot.c: takes the queues of this database whose news may be announced now: each queue once per pg_sweep.notify_interval at most. Fills
 * an array of pg_sweep.max_queues and returns their number. *wait_us becomes shorter if another queue may be announced earlier.
 */
extern int	sweep_queue_take_news(SweepQueueNews *taken, int64 *wait_us);

/* Gives them back, each with its new state: NONE, PENDING or UNWANTED. */
extern void sweep_queue_settle_news(const SweepQueueNews *taken, int count);

/* statement.c: a database was dropped just now; this transaction may have dropped sweep.queue_message. InvalidOid = none. */
extern void sweep_queue_note_dropped(Oid database, Oid relation);

/* statement.c: COMMIT PREPARED, or ROLLBACK PREPARED, was executed just now. */
extern void sweep_queue_note_prepared_ended(void);

#endif							/* SWEEP_QUEUE_H */
