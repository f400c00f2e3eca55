/*
 * message.h
 *		Sending messages from a step in C.
 */
#ifndef SWEEP_GITLAB_MESSAGE_H
#define SWEEP_GITLAB_MESSAGE_H

#include "utils/jsonb.h"

/* The OID of sweep.send; raises an error when it does not exist. */
extern Oid	sweep_gitlab_find_send(void);

/* Calls that function; its other arguments are null. Its errors are raised. */
extern void sweep_gitlab_send(Oid send, const char *queue, const Jsonb *payload, int64 key);

/* An object with one member, or with two unless other_name is NULL. */
extern const Jsonb *sweep_gitlab_payload(const char *name, int64 id, const char *other_name, int64 other_id);

#endif							/* SWEEP_GITLAB_MESSAGE_H */
