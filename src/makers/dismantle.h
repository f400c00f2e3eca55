/*
 * dismantle.h
 *		A row that cannot be deleted in one batch with all that goes with it.
 */
#ifndef SWEEP_DISMANTLE_H
#define SWEEP_DISMANTLE_H

#include "makers/cascade.h"

typedef struct SweepDismantling SweepDismantling;

typedef enum SweepDismantled
{
	DISMANTLE_GOES_ON,			/* the next batch goes on with the row */
	DISMANTLE_ENDED,			/* the row may go, unless more has come below it since */
	DISMANTLE_BARE,				/* the same, and nothing is left below it */
	DISMANTLE_KEPT,				/* something below the row cannot be deleted */
	DISMANTLE_CIRCLE,			/* rows that refer to each other can only go together */
} SweepDismantled;

/*
 * Deletes rows below a row, which is locked, as many as a batch may touch. The dismantling is NULL at first and afterwards, and is
 * kept between the batches of a row, in the given context. The rows of a circle are added to a set, also in that context, which is NULL
 * at first. *left is set to the number of rows that the batch may still touch.
 */
extern SweepDismantled sweep_dismantle(SweepDismantling **dismantling, HTAB **circles, MemoryContext context, SweepCascade *cascade,
									   const SweepCascadeRows *row, int32 size, int64 *left);

/* Whether it is of this row. */
extern bool sweep_dismantle_is_of(const SweepDismantling *dismantling, const SweepCascadeRows *row);
extern void sweep_dismantle_free(SweepDismantling **dismantling);

#endif							/* SWEEP_DISMANTLE_H */
