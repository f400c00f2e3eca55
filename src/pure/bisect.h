/*
 * bisect.h
 *		Chooses the pieces of a failed batch of items that are tried next.
 *
 * Used by items.c and consumer.c. Pure C: no backend call, no allocation, no error is raised.
 */
#ifndef SWEEP_BISECT_H
#define SWEEP_BISECT_H

#include <stdbool.h>

/* Halving takes one place per level; a batch has at most 2^31 items. */
#define SWEEP_BISECT_DEPTH 64

/* The items [first, end) of a batch. */
typedef struct SweepPiece
{
	int			first;
	int			end;
} SweepPiece;

/* Pieces that are still to be tried; the top is the leftmost. */
typedef struct SweepBisect
{
	SweepPiece	pieces[SWEEP_BISECT_DEPTH];
	int			count;
	bool		one_by_one;
} SweepBisect;

/*
 * Begins with all items as one piece, or with each item as a piece of its own. With 0 items there is no piece.
 */
extern void sweep_bisect_begin(SweepBisect *bisect, int items, bool one_by_one);

/* Takes the next piece, from left to right; false when all are done. */
extern bool sweep_bisect_next(SweepBisect *bisect, SweepPiece *piece);

/*
 * Replaces a piece that has failed by its halves, which are tried next. False when the piece has a single item: that
 * is the bad item.
 */
extern bool sweep_bisect_split(SweepBisect *bisect, SweepPiece piece);

#endif							/* SWEEP_BISECT_H */
