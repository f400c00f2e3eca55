/*
 * fail.h
 *		Moving messages to the dead-letter table.
 */
#ifndef SWEEP_QUEUE_FAIL_H
#define SWEEP_QUEUE_FAIL_H

#include "queue/table.h"

/* An error that has only a message, as an object like the errors of handlers. */
extern Jsonb *sweep_queue_error(char *message);

/* Moves a message that is being ended to the dead-letter table; false when its row is gone. */
extern bool sweep_queue_move_to_dead(Relation messages, const SweepQueue *queue, const SweepMessageRef *message, int attempts,
									 Jsonb *error);

#endif							/* SWEEP_QUEUE_FAIL_H */
