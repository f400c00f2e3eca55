/*
 * bisect.c
 *		Finds the items of a batch that fail by halving.
 *
 * The pieces are a stack, and the leftmost one is always tried next. The items are therefore tried in their order, so
 * the cursor of the run only moves forward. With f bad items among n at most 2 f (log2 n + 1) pieces are tried, and
 * without a bad item only one.
 */
#include "pure/bisect.h"

void
sweep_bisect_begin(SweepBisect *bisect, int items, bool one_by_one)
{
	bisect->one_by_one = one_by_one;
	bisect->count = 0;
	if (items > 0)
		bisect->pieces[bisect->count++] = (SweepPiece) {0, items};
}

bool
sweep_bisect_next(SweepBisect *bisect, SweepPiece *piece)
{
	if (bisect->count == 0)
		return false;
	*piece = bisect->pieces[--bisect->count];
	if (bisect->one_by_one && piece->end - piece->first > 1)
	{
		bisect->pieces[bisect->count++] = (SweepPiece) {piece->first + 1, piece->end};
		piece->end = piece->first + 1;
	}
	return true;
}

bool
sweep_bisect_split(SweepBisect *bisect, SweepPiece piece)
{
	int			middle = piece.first + (piece.end - piece.first) / 2;

	if (piece.end - piece.first < 2)
		return false;
	bisect->pieces[bisect->count++] = (SweepPiece) {middle, piece.end};
	bisect->pieces[bisect->count++] = (SweepPiece) {piece.first, middle};
	return true;
}
