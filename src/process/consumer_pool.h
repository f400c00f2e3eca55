/*
 * consumer_pool.h
 *		How many processes consumers have: what the scheduler does about it.
 */
#ifndef SWEEP_CONSUMER_POOL_H
#define SWEEP_CONSUMER_POOL_H

#include "base/shared.h"

/* In a transaction of the scheduler: reads which processes are wanted. */
extern void sweep_consumer_pool_read(const SweepDatabaseRecord *record);

/*
 * Once that has committed, without a transaction: starts what is missing, and asks those that are too many
 * to leave.
 */
extern void sweep_consumer_pool_adjust(SweepDatabaseRecord *record);

/* Milliseconds until that should be done again, -1 when there is no need to. */
extern long sweep_consumer_pool_pause(void);

/* Milliseconds until the scheduler is to look again, whatever else happens. */
extern long sweep_consumer_pool_rest(void);

/* Whether a process was registered and is not there yet: one that ends before it is must be seen. */
extern bool sweep_consumer_pool_is_starting(void);

#endif							/* SWEEP_CONSUMER_POOL_H */
