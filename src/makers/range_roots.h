/*
 * range_roots.h
 *		A batch that deletes rows with which rows of other tables go.
 */
#ifndef SWEEP_RANGE_ROOTS_H
#define SWEEP_RANGE_ROOTS_H

#include "makers/range_batch.h"

/*
 * Deletes as many rows of the batch as fit into it with all that goes with them, or a part of what goes with one that does not fit. Sets the
 * cursor and the detail. Rows that other sessions hold are left to a later pass.
 */
extern void sweep_range_remove_roots(SweepRangeBatch *batch);

#endif							/* SWEEP_RANGE_ROOTS_H */
