/*
 * range_roots.h
 *		A batch of rows whose deletion deletes or changes rows of other tables.
 */
#ifndef SWEEP_RANGE_ROOTS_H
#define SWEEP_RANGE_ROOTS_H

#include "makers/range_batch.h"

/*
 * Deletes as many rows of the batch as fit into it with all rows that are affected, or some of the rows below one that does not fit. Sets
 * the cursor and the detail. Rows that other sessions have locked are left to a later pass.
 */
extern void sweep_range_remove_roots(SweepRangeBatch *batch);

#endif							/* SWEEP_RANGE_ROOTS_H */
