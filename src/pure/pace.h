/*
 * pace.h
 *		How fast a run goes, and how long it takes still.
 *
 * Used by report.c after each batch. Pure C: no backend call, nothing raises, no clock of its own.
 */
#ifndef SWEEP_PACE_H
#define SWEEP_PACE_H

#include <stdint.h>

/* No time that is left is longer: 100 years. */
#define SWEEP_PACE_MOST_US (INT64_C(36525) * 86400 * 1000000)

/* Rows per second, over all that was done in this time. In it the run worked: what it was made to wait is left out. */
extern double sweep_pace_rate(int64_t rows, int64_t worked_us);

/*
 * How long the rest takes if it goes on like this, -1 = not known: nothing has been handled, or the estimate (-1: there is
 * none) was too low. Time in which the run was made to wait is part of elapsed_us, for it will be made to wait again.
 */
extern int64_t sweep_pace_left_us(int64_t rows, int64_t estimated_rows, int64_t elapsed_us);

#endif							/* SWEEP_PACE_H */
