/*
 * clock.c
 *		Measuring time, and intervals as microseconds.
 *
 * Limits and pauses go by the monotonic clock, see the invariants in doc/architecture.md.
 */
#include "postgres.h"

#include <time.h>

#include "base/clock.h"

int64
sweep_monotonic_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64) now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int64
sweep_interval_us(const Interval *interval)
{
	int64		days = interval->month * INT64CONST(30) + interval->day + interval->time / USECS_PER_DAY;

	if (days >= SWEEP_LONGEST_DAYS)
		return SWEEP_LONGEST_DAYS * USECS_PER_DAY;
	if (days <= -SWEEP_LONGEST_DAYS)
		return -SWEEP_LONGEST_DAYS * USECS_PER_DAY;
	return days * USECS_PER_DAY + interval->time % USECS_PER_DAY;
}
