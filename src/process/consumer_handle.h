/*
 * consumer_handle.h
 *		One transaction of a consumer: its handler is called for messages, and they are acknowledged.
 */
#ifndef SWEEP_CONSUMER_HANDLE_H
#define SWEEP_CONSUMER_HANDLE_H

#include "process/consumer_turn.h"

/*
 * Calls work with the consumer in a transaction; false and *error when that failed. When the extension is gone, work
 * is not called, and consumer->present becomes false.
 */
extern bool sweep_consumer_transact(SweepConsumer *consumer, SweepWork work, ErrorData **error);

/* Handles the piece of the consumer; false and *error when that failed and was rolled back. */
extern bool sweep_consumer_handle(SweepConsumer *consumer, ErrorData **error);

/* The ids of the messages of the piece, as bigint[]. */
extern Datum sweep_consumer_piece_ids(const SweepConsumer *consumer);

/* Removes the crash counters of messages; parameters: queue, messages. */
extern SweepStatement sweep_forget_crashes_sql;

#endif							/* SWEEP_CONSUMER_HANDLE_H */
