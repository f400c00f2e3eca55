/*
 * ranges.h
 *		The step of the jobs that sweep.create_retention, sweep.create_backfill and sweep.create_copy make.
 */
#ifndef SWEEP_RANGES_H
#define SWEEP_RANGES_H

#include "postgres.h"

/*
 * Whether what is just executed makes the statements of such a job, and is none of them. An error leaves it as it is:
 * whoever wants to know sets it to false first.
 */
extern bool sweep_ranges_preparing;

#endif							/* SWEEP_RANGES_H */
