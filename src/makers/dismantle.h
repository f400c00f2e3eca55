/*
 * dismantle.h
 *		Deletes a row in several batches, because too many rows would be deleted or changed with it.
 */
#ifndef SWEEP_DISMANTLE_H
#define SWEEP_DISMANTLE_H

#include "makers/cascade.h"

typedef struct SweepDismantling SweepDismantling;

typedef enum SweepDismantled
{
	DISMANTLE_GOES_ON,			/* the next batch goes on with the row */
	DISMANTLE_ENDED,			/* the row can be deleted, unless rows have been added below it since */
	DISMANTLE_BARE,				/* the same, and nothing is left below it */
	DISMANTLE_KEPT,				/* something below the row cannot be deleted */
	DISMANTLE_CIRCLE,			/* rows refer to each other, and can only be deleted together */
} SweepDismantled;

/*
 * Deletes rows below a locked row, as many as a batch may touch. *dismantling is kept between the batches of a row, in the given
 * context; it is NULL before the first and after the last. Rows of a circle are added to *circles, a set in the same context, NULL at
 * first. *left is set to the number of rows that the batch may still touch.
 */
extern SweepDismantled sweep_dismantle(SweepDismantling **dismantling, HTAB **circles, MemoryContext context, SweepCascade *cascade,
									   const SweepCascadeRows *row, int32 size, int64 *left);

/* Whether the dismantling is of this row. */
extern bool sweep_dismantle_is_of(const SweepDismantling *dismantling, const SweepCascadeRows *row);

/* Whether its row is still one of the batch: at another place after an UPDATE or VACUUM FULL, or (held) locked by another session. */
extern bool sweep_dismantle_has_row(const SweepDismantling *dismantling, const SweepCascadeRows *row, const SweepCascadeRows *held);
extern void sweep_dismantle_free(SweepDismantling **dismantling);

#endif							/* SWEEP_DISMANTLE_H */
