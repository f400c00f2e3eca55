/*
 * clock.h
 *		Measuring time, and intervals as microseconds.
 */
#ifndef SWEEP_CLOCK_H
#define SWEEP_CLOCK_H

#include "datatype/timestamp.h"

/* CLOCK_MONOTONIC in microseconds. */
extern int64 sweep_monotonic_us(void);

/* An interval in microseconds; months have 30 days. More than a thousand years are a thousand, which can be added to any time. */
#define SWEEP_LONGEST_DAYS INT64CONST(365250)
extern int64 sweep_interval_us(const Interval *interval);

#endif							/* SWEEP_CLOCK_H */
