/*
 * message.h
 *		The messages of a step in C.
 */
#ifndef SWEEP_GITLAB_MESSAGE_H
#define SWEEP_GITLAB_MESSAGE_H

#include "utils/jsonb.h"

/* sweep.send; raises an error when there is none. */
extern Oid	sweep_gitlab_find_send(void);

/* Sends by that function; the arguments that are not here stay null. Raises what it raises. */
extern void sweep_gitlab_send(Oid send, const char *queue, const Jsonb *payload, int64 key);

/* An object of one member, or of two; other_name NULL = one. */
extern const Jsonb *sweep_gitlab_payload(const char *name, int64 id, const char *other_name, int64 other_id);

#endif							/* SWEEP_GITLAB_MESSAGE_H */
