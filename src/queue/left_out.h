/*
 * left_out.h
 *		Messages that were left out because another one with their key waits, until the end of their transaction.
 */
#ifndef SWEEP_QUEUE_LEFT_OUT_H
#define SWEEP_QUEUE_LEFT_OUT_H

#include "queue/key.h"

/* To be called after sweep_key_insert(): keeps a copy of the message if it was left out. */
extern void sweep_left_out_note(const SweepSendRequest *request, const SweepKeyedMessage *message);

#endif							/* SWEEP_QUEUE_LEFT_OUT_H */
