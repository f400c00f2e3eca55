/*
 * consumer.h
 *		The process of a consumer in the database.
 */
#ifndef SWEEP_CONSUMER_H
#define SWEEP_CONSUMER_H

/* With the index and generation of its slot, and the consumer_id as run_id of its arguments. */
extern PGDLLEXPORT void sweep_consumer_main(Datum arg);

#endif							/* SWEEP_CONSUMER_H */
