/*
 * clock.h
 *		Measuring time, and intervals as microseconds.
 */
#ifndef SWEEP_CLOCK_H
#define SWEEP_CLOCK_H

#include <time.h>

#include "datatype/timestamp.h"

/* CLOCK_MONOTONIC in microseconds: limits and pauses go by it, see the invariants in doc/architecture.md. */
static inline int64
sweep_monotonic_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64) now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* An interval in microseconds; months have 30 days. Limited to a thousand years, so that it can be added to any time. */
#define SWEEP_LONGEST_DAYS INT64CONST(365250)
static inline int64
sweep_interval_us(const Interval *interval)
{
	int64		days = interval->month * INT64CONST(30) + interval->day + interval->time / USECS_PER_DAY;

	if (days >= SWEEP_LONGEST_DAYS)
		return SWEEP_LONGEST_DAYS * USECS_PER_DAY;
	if (days <= -SWEEP_LONGEST_DAYS)
		return -SWEEP_LONGEST_DAYS * USECS_PER_DAY;
	return days * USECS_PER_DAY + interval->time % USECS_PER_DAY;
}

#endif							/* SWEEP_CLOCK_H */
