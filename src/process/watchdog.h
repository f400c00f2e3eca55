/*
 * watchdog.h
 *		Runs that are past their timeout.
 */
#ifndef SWEEP_WATCHDOG_H
#define SWEEP_WATCHDOG_H

/* Asks runs of all databases that are past their timeout to stop; shortens *wait_ms to the next check. */
extern void sweep_watchdog_look(long *wait_ms);

#endif							/* SWEEP_WATCHDOG_H */
