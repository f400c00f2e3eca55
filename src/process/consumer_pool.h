/*
 * consumer_pool.h
 *		Starts and dismisses the processes of consumers, for the scheduler.
 */
#ifndef SWEEP_CONSUMER_POOL_H
#define SWEEP_CONSUMER_POOL_H

#include "base/shared.h"

/* In a transaction of the scheduler: reads which processes are wanted. */
extern void sweep_consumer_pool_read(const SweepDatabaseRecord *record);

/*
 * Called after the commit of that transaction, outside of any other: starts missing processes, and asks surplus ones
 * to leave.
 */
extern void sweep_consumer_pool_adjust(SweepDatabaseRecord *record);

/* Milliseconds until a missing process is to be tried again, -1 when none is missing. */
extern long sweep_consumer_pool_pause(void);

/* Longest time until the scheduler must look at the consumers again, in ms. */
extern long sweep_consumer_pool_rest(void);

#endif							/* SWEEP_CONSUMER_POOL_H */
