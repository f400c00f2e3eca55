/*
 * runaway_test.c
 *		room: pure
 *	  Whether a run gets on: circles of cursors of any length, work that is done once and work that is done again and again.
 */
#include "check.h"
#include "pure/runaway.h"

#define SECOND INT64_C(1000000)
#define NONE 0

/* Batches of 100 rows, ten per second, until it is endless with so many rows to be done; -1 when it is not, within so many. */
typedef uint64_t (*NextCursor) (int64_t batch);

static int64_t
batches_until_endless(NextCursor next, uint64_t first, bool removes, double rows, int64_t after_us, int64_t most)
{
	SweepRunaway run;

	sweep_runaway_begin(&run, first, 0);
	for (int64_t batch = 1; batch <= most; batch++)
	{
		sweep_runaway_note(&run, next(batch), removes, 100, batch * SECOND / 10);
		if (sweep_runaway_is_endless(&run, after_us, rows))
			return batch;
	}
	return -1;
}

static uint64_t
none(int64_t batch)
{
	(void) batch;
	return NONE;
}

static uint64_t
always_new(int64_t batch)
{
	return (uint64_t) batch;
}

static uint64_t
circle_of_three(int64_t batch)
{
	return (uint64_t) (batch % 3 + 1);
}

/* The whole table, and again from the start. */
static uint64_t
again_from_start(int64_t batch)
{
	return batch % 500 == 0 ? NONE : (uint64_t) (batch % 500);
}

/* A long way, then a circle. */
static uint64_t
ends_in_circle(int64_t batch)
{
	return batch < 1000 ? (uint64_t) batch : (uint64_t) (1000 + batch % 7);
}

/* Stays where it is for 50 batches, then moves. */
static uint64_t
moves_now_and_then(int64_t batch)
{
	return (uint64_t) (batch / 50 + 1);
}

static void
test_without_cursor(void)
{
	check_number(batches_until_endless(none, NONE, false, 0, 10 * SECOND, 1000), 100, "nothing to do: ten seconds");
	check_number(batches_until_endless(none, NONE, false, 0, 0, 1000), 10, "no time: ten batches");
	check_number(batches_until_endless(none, NONE, false, 50000, 10 * SECOND, 10000), 1001, "what is there, twice");
	check_number(batches_until_endless(none, 42, false, 50000, 10 * SECOND, 10000), 1002, "the same, with the cursor of the run before");
	check_number(batches_until_endless(none, NONE, true, 0, 0, 100000), -1, "something is removed: never");
	check_number(batches_until_endless(none, NONE, false, 1e30, 0, 100000), -1, "there is always more: never");
}

static void
test_cursors(void)
{
	check_number(batches_until_endless(always_new, NONE, false, 0, 0, 5000000), -1, "a cursor that moves: never");
	check_number(batches_until_endless(circle_of_three, NONE, false, 0, 10 * SECOND, 1000) <= 110, true, "a circle of three: ten seconds");
	check_number(batches_until_endless(circle_of_three, NONE, false, 300, 0, 1000) <= 20, true, "a circle of three: no time");
	check_number(batches_until_endless(circle_of_three, NONE, true, 0, 0, 100000), -1, "a circle that removes: never");
	check_number(batches_until_endless(again_from_start, NONE, false, 50000, 10 * SECOND, 10000), 1001, "again from the start: what is there, twice");
	check_number(batches_until_endless(again_from_start, 7, false, 50000, 10 * SECOND, 10000) <= 2100, true, "again from somewhere");
	check_number(batches_until_endless(ends_in_circle, NONE, false, 700, 0, 100000) <= 2100, true, "a circle behind a long way");
	check_number(batches_until_endless(ends_in_circle, NONE, false, 1e6, 0, 10000), -1, "the long way does not count");
	check_number(batches_until_endless(moves_now_and_then, NONE, false, 100, 10 * SECOND, 100000), -1, "moves before the time is over: never");
	check_number(batches_until_endless(moves_now_and_then, NONE, false, 5000, 0, 100000), -1, "moves before all was done twice: never");
}

/* Circles of any length behind a way of any length are found within three times both, and not before they begin. */
static void
test_circles(void)
{
	int			failures = 0;

	for (int64_t way = 0; way < 200; way += 7)
	{
		for (int64_t length = 1; length < 200; length += 3)
		{
			SweepRunaway run;
			int64_t		batch = 0;

			sweep_runaway_begin(&run, UINT64_MAX, 0);
			while (!run.stuck && batch < 10000)
			{
				batch++;
				sweep_runaway_note(&run, (uint64_t) (batch < way ? batch : way + (batch - way) % length), false, 1, 0);
			}
			if (batch <= way || batch > 3 * (way + length) + 2)
				failures++;
		}
	}
	check_number(failures, 0, "circles of any length behind a way of any length");
}

static void
test_progress_between(void)
{
	SweepRunaway run;

	sweep_runaway_begin(&run, NONE, 0);
	for (int i = 1; i <= 100; i++)
		sweep_runaway_note(&run, NONE, i == 50, 100, i * SECOND);
	check_number(run.mark.batches, 50, "what was removed moves the mark");
	check_number(sweep_runaway_is_endless(&run, 50 * SECOND, 2499), true, "what came behind it counts");
	check_number(sweep_runaway_is_endless(&run, 50 * SECOND + 1, 2499), false, "not long enough");
	check_number(sweep_runaway_is_endless(&run, 50 * SECOND, 2500), false, "not more than twice");
	check_number(sweep_runaway_is_stuck(&run, 500 * SECOND), true, "stuck for a tenth of the time");
	check_number(sweep_runaway_is_stuck(&run, 501 * SECOND), false, "not stuck for a tenth of the time");
	sweep_runaway_note(&run, 5, false, 100, 101 * SECOND);
	check_number(run.stuck, true, "one step aside is still a circle of one");
	sweep_runaway_note(&run, 6, false, 100, 102 * SECOND);
	check_number(run.stuck, false, "two are not");
	check_number(run.mark.batches, 102, "from there it counts anew");
	sweep_runaway_note(&run, 6, false, INT64_MAX, 103 * SECOND);
	sweep_runaway_note(&run, 6, false, INT64_MAX, 104 * SECOND);
	check_number(run.now.work == INT64_MAX, true, "work does not wrap");
	sweep_runaway_note(&run, 6, false, 1, 0);
	check_number(sweep_runaway_is_stuck(&run, 0), false, "a clock that ran backwards");
}

int
main(void)
{
	test_without_cursor();
	test_cursors();
	test_circles();
	test_progress_between();
	return check_finish();
}
