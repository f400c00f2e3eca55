/*
 * pace.c
 *		Rate of a run, and the time that it still needs.
 *
 * Both use the average over the whole run until its last commit. A rate of the last batches alone would follow a change
 * sooner, but batches differ (caches, load, locks of others), and an estimated end that moves back and forth with them is
 * of no use. Between two commits nothing moves at all.
 */
#include "pure/pace.h"

double
sweep_pace_rate(int64_t rows, int64_t worked_us)
{
	return (double) rows * 1000000.0 / (double) (worked_us > 0 ? worked_us : 1);
}

int64_t
sweep_pace_left_us(int64_t rows, int64_t estimated_rows, int64_t elapsed_us)
{
	double		left_us;

	if (rows <= 0 || estimated_rows < rows)
		return -1;
	left_us = ((double) estimated_rows - (double) rows) * ((double) (elapsed_us > 0 ? elapsed_us : 1) / (double) rows);
	return left_us < (double) SWEEP_PACE_MOST_US ? (int64_t) left_us : -1;
}
