/*
 * bisect_test.c
 *		room: pure
 *	  Halving: every set of bad items is found, every good item is handled once, in order.
 */
#include <limits.h>
#include <stdint.h>

#include "pure/bisect.h"
#include "check.h"

#define MOST_ITEMS 1000

/* What became of a batch. */
typedef struct Outcome
{
	int			tries;			/* pieces that were tried */
	int			handled[MOST_ITEMS];
	int			found[MOST_ITEMS];	/* stood alone and failed */
	int			last;			/* item that was decided on last */
	bool		in_order;
	int			deepest;		/* most pieces waiting at a time */
} Outcome;

static bool
has_bad(const bool *bad, SweepPiece piece)
{
	for (int i = piece.first; i < piece.end; i++)
	{
		if (bad[i])
			return true;
	}
	return false;
}

/* As items.c does it: a piece with a bad item fails as a whole. */
static void
work_off(Outcome *outcome, const bool *bad, int items, bool one_by_one)
{
	SweepBisect bisect;
	SweepPiece	piece;

	memset(outcome, 0, sizeof(*outcome));
	outcome->in_order = true;
	outcome->last = -1;
	sweep_bisect_begin(&bisect, items, one_by_one);
	while (sweep_bisect_next(&bisect, &piece))
	{
		bool		failed = has_bad(bad, piece);

		outcome->tries++;
		if (failed && sweep_bisect_split(&bisect, piece))
		{
			if (bisect.count > outcome->deepest)
				outcome->deepest = bisect.count;
			continue;
		}
		if (piece.first != outcome->last + 1 || piece.end <= piece.first || piece.end > items)
			outcome->in_order = false;
		for (int i = piece.first; i < piece.end; i++)
		{
			if (failed)
				outcome->found[i]++;
			else
				outcome->handled[i]++;
		}
		outcome->last = piece.end - 1;
	}
}

/* The smallest k with 2^k at least n. */
static int
log2_up(int n)
{
	int			k = 0;

	while ((1 << k) < n)
		k++;
	return k;
}

static bool
is_right(const Outcome *outcome, const bool *bad, int items, bool one_by_one)
{
	int			failing = 0;

	if (!outcome->in_order || outcome->last != items - 1)
		return false;
	for (int i = 0; i < items; i++)
	{
		if (outcome->found[i] != (bad[i] ? 1 : 0) || outcome->handled[i] != (bad[i] ? 0 : 1))
			return false;
		failing += bad[i] ? 1 : 0;
	}
	if (one_by_one)
		return outcome->tries == items;
	if (failing == 0)
		return outcome->tries == 1;
	return outcome->tries <= 2 * failing * (log2_up(items) + 1) && outcome->tries <= 2 * items - 1;
}

/* Every set of bad items among up to twelve. */
static void
test_every_set(void)
{
	for (int items = 1; items <= 12; items++)
	{
		int			wrong = 0;

		for (int set = 0; set < 1 << items; set++)
		{
			bool		bad[MOST_ITEMS] = {false};
			Outcome		outcome;

			for (int i = 0; i < items; i++)
				bad[i] = (set >> i & 1) != 0;
			work_off(&outcome, bad, items, false);
			wrong += is_right(&outcome, bad, items, false) ? 0 : 1;
			work_off(&outcome, bad, items, true);
			wrong += is_right(&outcome, bad, items, true) ? 0 : 1;
		}
		check_number(wrong, 0, "every set of bad items is found, in order, and no good item is handled twice");
	}
}

/* Random sets of large batches; the generator is ours, so a failure comes again. */
static void
test_random_sets(void)
{
	uint64_t	seed = 20260101;
	int			wrong = 0;

	for (int round = 0; round < 400; round++)
	{
		bool		bad[MOST_ITEMS] = {false};
		int			items;
		int			one_in;
		Outcome		outcome;

		seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		items = 1 + (int) (seed >> 33) % MOST_ITEMS;
		one_in = 1 << (round % 10);
		for (int i = 0; i < items; i++)
		{
			seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
			bad[i] = (seed >> 33) % (unsigned int) one_in == 0;
		}
		work_off(&outcome, bad, items, false);
		if (!is_right(&outcome, bad, items, false) || outcome.deepest > log2_up(items) + 1)
			wrong++;
	}
	check_number(wrong, 0, "random sets of up to 1000 items");
}

static void
test_places(void)
{
	static const int sizes[] = {1, 2, 3, 64, 999, 1000};

	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
	{
		int			items = sizes[s];
		bool		bad[MOST_ITEMS] = {false};
		Outcome		outcome;

		work_off(&outcome, bad, items, false);
		check_number(outcome.tries, 1, "no bad item: one piece");
		bad[0] = true;
		work_off(&outcome, bad, items, false);
		check(is_right(&outcome, bad, items, false), "the first of %d", items);
		bad[0] = items == 1;
		bad[items - 1] = true;
		work_off(&outcome, bad, items, false);
		check(is_right(&outcome, bad, items, false), "the last of %d", items);
		memset(bad, true, sizeof(bad));
		work_off(&outcome, bad, items, false);
		check(is_right(&outcome, bad, items, false), "all of %d", items);
		check_number(outcome.tries, 2 * items - 1, "all bad: every piece there is");
	}
}

/* The largest batch there could be, with bad items at its ends: the stack of pieces must hold it. */
static void
test_depth(void)
{
	SweepBisect bisect;
	SweepPiece	piece;
	int			deepest = 0;
	int			tries = 0;

	sweep_bisect_begin(&bisect, INT_MAX, false);
	while (sweep_bisect_next(&bisect, &piece))
	{
		tries++;
		if ((piece.first == 0 || piece.end == INT_MAX) && sweep_bisect_split(&bisect, piece) && bisect.count > deepest)
			deepest = bisect.count;
	}
	check(deepest <= 33 && deepest < SWEEP_BISECT_DEPTH, "2^31 - 1 items: %d pieces wait at a time", deepest);
	check_number(piece.end, INT_MAX, "and the last one is the end");
	check(tries <= 2 * 2 * 32, "after %d tries", tries);
}

static void
test_nothing(void)
{
	SweepBisect bisect;
	SweepPiece	piece = {7, 8};

	sweep_bisect_begin(&bisect, 0, false);
	check(!sweep_bisect_next(&bisect, &piece), "no items: no piece");
	sweep_bisect_begin(&bisect, 0, true);
	check(!sweep_bisect_next(&bisect, &piece), "no items: none one by one either");
	check(!sweep_bisect_split(&bisect, (SweepPiece) {3, 4}), "a single item is not split");
	check_number(bisect.count, 0, "and leaves nothing to try");
	sweep_bisect_begin(&bisect, 5, false);
	check(sweep_bisect_next(&bisect, &piece) && sweep_bisect_split(&bisect, piece), "five are split");
	check(sweep_bisect_next(&bisect, &piece) && piece.first == 0 && piece.end == 2, "two first");
	check(sweep_bisect_next(&bisect, &piece) && piece.first == 2 && piece.end == 5, "then three");
	check(!sweep_bisect_next(&bisect, &piece), "and no more");
}

int
main(void)
{
	test_every_set();
	test_random_sets();
	test_places();
	test_depth();
	test_nothing();
	return check_finish();
}
