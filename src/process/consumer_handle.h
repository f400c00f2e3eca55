/*
 * consumer_handle.h
 *		One transaction of a consumer: its handler is called for messages, and they are acknowledged.
 */
#ifndef SWEEP_CONSUMER_HANDLE_H
#define SWEEP_CONSUMER_HANDLE_H

#include "process/consumer_turn.h"

/*
 * Does work, with the consumer as its argument, in a transaction; false and *error when it failed. When the
 * extension is gone it is not done, and the consumer is no longer present.
 */
extern bool sweep_consumer_transact(SweepConsumer *consumer, SweepWork work, ErrorData **error);

/* Handles the piece of the consumer; false and *error when that failed, and nothing of it stands. */
extern bool sweep_consumer_handle(SweepConsumer *consumer, ErrorData **error);

/* The ids of the messages of the piece, as bigint[]. */
extern Datum sweep_consumer_piece_ids(const SweepConsumer *consumer);

/* Removes the crash counters of messages; parameters: queue, messages. */
extern SweepStatement sweep_forget_crashes_sql;

#endif							/* SWEEP_CONSUMER_HANDLE_H */
