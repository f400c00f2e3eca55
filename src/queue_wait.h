/*
 * queue_wait.h
 *		Waiting for messages.
 */
#ifndef SWEEP_QUEUE_WAIT_H
#define SWEEP_QUEUE_WAIT_H

/*
 * Waits, without a transaction, until the queue may have something to claim, or for so many milliseconds,
 * or until the latch is set by somebody else. "relation" is sweep.queue_message. True when there may be
 * something.
 */
extern bool sweep_queue_wait(Oid relation, int32 queue_id, long timeout_ms);

/* For whoever was woken and does not look: wakes another one if there is something to claim. */
extern void sweep_queue_pass_on(Oid relation, int32 queue_id);

#endif							/* SWEEP_QUEUE_WAIT_H */
