/*
 * pace_test.c
 *		room: pure
 *	  The rate of a run and the time that is left: round numbers, and what cannot be known.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "pure/loop.h"
#include "check.h"

#define SECOND INT64_C(1000000)

static void
test_rate(void)
{
	check(sweep_pace_rate(1000, 2 * SECOND) == 500.0, "1000 rows in 2 s are 500 per second");
	check(sweep_pace_rate(0, 2 * SECOND) == 0.0, "none are 0 per second");
	check(sweep_pace_rate(0, 0) == 0.0, "also in no time");
	check(isfinite(sweep_pace_rate(INT64_MAX, 0)), "all there can be in no time are not endlessly many");
	check(isfinite(sweep_pace_rate(1, -SECOND)) && sweep_pace_rate(1, -SECOND) > 0, "time does not run backwards");
}

static void
test_left(void)
{
	check_number(sweep_pace_left_us(250, 1000, SECOND), 3 * SECOND, "a quarter in one second: three are left");
	check_number(sweep_pace_left_us(1, 1000001, SECOND), 1000000 * SECOND, "one row each second");
	check_number(sweep_pace_left_us(1000, 1000, SECOND), 0, "all are done: none is left");
	check_number(sweep_pace_left_us(3, 4, 10), 3, "less than a microsecond is not counted");
}

static void
test_not_known(void)
{
	check_number(sweep_pace_left_us(0, 1000, SECOND), -1, "nothing was done yet");
	check_number(sweep_pace_left_us(0, 0, SECOND), -1, "nor is there anything to do");
	check_number(sweep_pace_left_us(10, -1, SECOND), -1, "no estimate");
	check_number(sweep_pace_left_us(1001, 1000, SECOND), -1, "the estimate was too low");
	check_number(sweep_pace_left_us(1, INT64_MAX, INT64_MAX), -1, "longer than anybody waits");
	check_number(sweep_pace_left_us(1, INT64_MAX, SECOND), -1, "2^63 seconds");
	check(sweep_pace_left_us(INT64_MAX, INT64_MAX, INT64_MAX) == 0, "the largest numbers");
}

/* The end that is told does not move while a run goes on as it did, and never lies before the last commit. */
static void
test_steady(void)
{
	int64_t		end_us = 1000 * SECOND;
	bool		steady = true;

	for (int64_t rows = 1; rows <= 1000; rows++)
	{
		int64_t		now_us = rows * SECOND;
		int64_t		left_us = sweep_pace_left_us(rows, 1000, now_us);

		steady = steady && left_us >= 0 && llabs(now_us + left_us - end_us) <= 1;
	}
	check(steady, "1000 equal batches: the same end after each of them");
}

int
main(void)
{
	test_rate();
	test_left();
	test_not_known();
	test_steady();
	return check_finish();
}
