/*
 * send.h
 *		sweep.send, for what is C as well.
 */
#ifndef SWEEP_QUEUE_SEND_H
#define SWEEP_QUEUE_SEND_H

#include "postgres.h"
#include "fmgr.h"

/* SQL: sweep.send(queue text, payload jsonb, key text, delay interval, priority int, headers jsonb) */
extern PGDLLEXPORT Datum sweep_queue_send(PG_FUNCTION_ARGS);

#endif							/* SWEEP_QUEUE_SEND_H */
