/*
 * ack.h
 *		How a message leaves its queue, or is put back for later.
 */
#ifndef SWEEP_QUEUE_ACK_H
#define SWEEP_QUEUE_ACK_H

#include "utils/jsonb.h"

#include "queue/table.h"

/*
 * Marks a hold of the lease as being ended by this transaction; false when the lease does not hold it
 * any more or another transaction is just ending it.
 */
extern bool sweep_queue_begin_ending(const pg_uuid_t *lease, int entry);

/* An error that is only a message, in the form that those of handlers have. */
extern Jsonb *sweep_queue_error(char *message);

/* Moves the message, whose ending was begun, to the dead ones; false when its row is gone. */
extern bool sweep_queue_move_to_dead(Relation messages, const SweepQueue *queue, const SweepMessageRef *message, int attempts,
							 Jsonb *error);

/*
 * sweep.fail with an error that is an object already, as the current user; message_ids is a bigint[]. Returns
 * how many messages.
 */
extern int	sweep_queue_fail_with(const pg_uuid_t *lease, Jsonb *error, Datum message_ids);

/*
 * Gives back all that the lease holds and nobody is just ending, at once and whatever becomes of the
 * transaction, if there is one: for the exit of a process. Returns how many messages.
 */
extern int	sweep_queue_release_lease(const pg_uuid_t *lease);

#endif							/* SWEEP_QUEUE_ACK_H */
