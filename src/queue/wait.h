/*
 * wait.h
 *		Waiting for messages.
 */
#ifndef SWEEP_QUEUE_WAIT_H
#define SWEEP_QUEUE_WAIT_H

#include "port/atomics.h"

/*
 * Waits, without a transaction, until the queue may have something to claim, or for so many milliseconds, or until
 * there is an interrupt to be served: in a session also the end of its client. "relation" is sweep.queue_message.
 * In a worker, also until "leave" is set or the configuration is to be read; else leave is NULL.
 */
extern void sweep_queue_wait(Oid relation, int32 queue_id, long timeout_ms, pg_atomic_uint32 *stop_requested);

/* For whoever was woken and does not look: wakes another one if there is something to claim. */
extern void sweep_queue_pass_on(Oid relation, int32 queue_id);

#endif							/* SWEEP_QUEUE_WAIT_H */
