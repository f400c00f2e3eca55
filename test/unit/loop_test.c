/*
 * loop_test.c
 *		room: pure
 *	  When a run stops: each reason, their order, boundaries, overflow.
 */
#include "check.h"
#include "pure/loop.h"

/* A batch that is committed as a whole, as run.c counts it. */
static SweepStopReason
record(SweepLoop *loop, int64_t rows, int64_t now_us)
{
	sweep_loop_add_rows(loop, rows);
	return sweep_loop_end_batch(loop, rows <= 0, now_us);
}

#define SECOND INT64_C(1000000)

/* A loop begun at 100 s; batches of 100. */
static SweepLoop
loop_with(int32_t max_batches, int64_t max_rows, int64_t stop_after_us)
{
	SweepLimits limits = {100, max_batches, max_rows, stop_after_us, 0};
	SweepLoop	loop;

	sweep_loop_begin(&loop, &limits, 100 * SECOND);
	return loop;
}

/* The number of batches of so many rows that run, one per second, and why it ends. */
static int
run_batches(SweepLoop *loop, int64_t rows, SweepStopReason *reason)
{
	int			batches = 0;

	do
	{
		batches++;
		*reason = record(loop, rows, (100 + batches) * SECOND);
	} while (*reason == SWEEP_STOP_NONE && batches < 1000);
	return batches;
}

static void
test_names(void)
{
	static const char *const names[] = {
		NULL, "drained", "done", "max_batches", "max_rows", "stop_after", "cancelled",
		"timeout", "no_progress", "error", "skipped", "lost", "rescaled", "waits"
	};

	check_number(SWEEP_STOP_COUNT, sizeof(names) / sizeof(names[0]), "number of reasons");
	for (int i = 0; i < SWEEP_STOP_COUNT; i++)
		check_text(sweep_loop_stop_name((SweepStopReason) i), names[i], "name of a reason");
	check_text(sweep_loop_stop_name((SweepStopReason) SWEEP_STOP_COUNT), NULL, "no name beyond the last");
	check_text(sweep_loop_stop_name((SweepStopReason) -1), NULL, "no name below the first");
}

static void
test_reasons(void)
{
	SweepStopReason reason;
	SweepLoop	loop = loop_with(0, 0, -1);

	check_number(loop.batches + loop.rows, 0, "a new loop has done nothing");
	check_number(loop.started_us, 100 * SECOND, "it remembers its start");
	check_number(run_batches(&loop, 100, &reason), 1000, "no limit: goes on");
	check_number(loop.rows, 100000, "rows are counted");
	check_number(loop.batches, 1000, "batches are counted");
	check_number(record(&loop, 1, 0), SWEEP_STOP_NONE, "a short batch does not end it");
	check_number(record(&loop, 0, 0), SWEEP_STOP_DRAINED, "no rows: drained");
	check_number(loop.batches, 1002, "the batch without rows counts");
	check_number(loop.rows, 100001, "and adds none");

	loop = loop_with(3, 0, -1);
	check_number(run_batches(&loop, 100, &reason), 3, "max_batches 3: three");
	check_number(reason, SWEEP_STOP_MAX_BATCHES, "and says so");

	loop = loop_with(0, 1000, -1);
	check_number(run_batches(&loop, 100, &reason), 10, "max_rows 1000: ten batches, no eleventh");
	check_number(reason, SWEEP_STOP_MAX_ROWS, "and says so");

	loop = loop_with(0, 0, 5 * SECOND);
	check_number(run_batches(&loop, 100, &reason), 5, "stop_after 5 s: the batch that ends at 5 s is the last");
	check_number(reason, SWEEP_STOP_STOP_AFTER, "and says so");

	loop = loop_with(0, 0, 0);
	check_number(record(&loop, 100, 100 * SECOND), SWEEP_STOP_STOP_AFTER, "stop_after 0: one batch, in no time");
	loop = loop_with(0, 0, 0);
	check_number(record(&loop, 100, 0), SWEEP_STOP_STOP_AFTER, "stop_after 0: one batch, even if the clock ran backwards");
}

static void
test_boundaries(void)
{
	SweepLoop	loop = loop_with(0, 0, 5 * SECOND);

	check_number(record(&loop, 1, 105 * SECOND - 1), SWEEP_STOP_NONE, "a microsecond before stop_after");
	check_number(record(&loop, 1, 105 * SECOND), SWEEP_STOP_STOP_AFTER, "exactly at stop_after");
	check_number(record(&loop, 1, 105 * SECOND + 1), SWEEP_STOP_STOP_AFTER, "a microsecond after it");

	loop = loop_with(0, 1000, -1);
	check_number(record(&loop, 999, 0), SWEEP_STOP_NONE, "one row below max_rows");
	check_number(record(&loop, 1, 0), SWEEP_STOP_MAX_ROWS, "exactly max_rows");
	loop = loop_with(0, 1000, -1);
	check_number(record(&loop, 1001, 0), SWEEP_STOP_MAX_ROWS, "one row above max_rows");
	loop = loop_with(0, 1000, -1);
	sweep_loop_add_other_rows(&loop, -5);
	sweep_loop_add_other_rows(&loop, 960);
	check_number(sweep_loop_next_size(&loop), 40, "rows that go with others leave less of max_rows");
	check_number(record(&loop, 40, 0), SWEEP_STOP_MAX_ROWS, "and count to it");

	loop = loop_with(1, 0, -1);
	check_number(record(&loop, 1, 0), SWEEP_STOP_MAX_BATCHES, "max_batches 1");
}

/* A pause between two batches is not made when stop_after would have passed at its end. */
static void
test_pause(void)
{
	SweepLoop	loop = loop_with(0, 0, 5 * SECOND);

	loop.limits.pause_us = 2 * SECOND;
	check_number(record(&loop, 1, 103 * SECOND - 1), SWEEP_STOP_NONE, "the pause ends a microsecond before stop_after");
	check_number(record(&loop, 1, 103 * SECOND), SWEEP_STOP_STOP_AFTER, "the pause would end at stop_after");
	loop = loop_with(0, 0, 5 * SECOND);
	loop.limits.pause_us = 6 * SECOND;
	check_number(record(&loop, 1, 100 * SECOND), SWEEP_STOP_STOP_AFTER, "a pause longer than stop_after: one batch");
	loop = loop_with(0, 0, -1);
	loop.limits.pause_us = INT64_MAX;
	check_number(record(&loop, 1, 100 * SECOND), SWEEP_STOP_NONE, "the longest pause, without a stop_after");
	loop = loop_with(0, 0, 1);
	loop.limits.pause_us = INT64_MAX;
	check_number(record(&loop, 1, 100 * SECOND), SWEEP_STOP_STOP_AFTER, "the longest pause, with the shortest stop_after");
}

/* Full batches of the size of the moment, until it changes; how many. */
static int
batches_until_growth(SweepLoop *loop)
{
	int32_t		size = sweep_loop_next_size(loop);
	int			batches = 0;

	while (sweep_loop_next_size(loop) == size && batches < 100000)
	{
		(void) record(loop, size, 0);
		batches++;
	}
	return batches;
}

static void
test_halves(void)
{
	SweepLoop	loop = loop_with(0, 0, -1);

	check_number(sweep_loop_halve(&loop), true, "100 rows were too many");
	check_number(sweep_loop_next_size(&loop), 50, "half of it");
	(void) sweep_loop_halve(&loop);
	check_number(sweep_loop_next_size(&loop), 25, "a quarter");
	for (int i = 0; i < 4; i++)
		check_number(sweep_loop_halve(&loop), true, "down to one");
	check_number(sweep_loop_next_size(&loop), 1, "one row");
	check_number(sweep_loop_halve(&loop), false, "not less than one");
	check_number(sweep_loop_next_size(&loop), 1, "still one row");
	for (int i = 0; i < 1000; i++)
		(void) record(&loop, i % 10 == 9 ? 0 : 1, 0);
	check_number(sweep_loop_next_size(&loop), 2, "ten full batches in the end, not in a row");
	check_number(batches_until_growth(&loop), 10, "ten full batches double it");
	check_number(sweep_loop_next_size(&loop), 4, "to four");
	check_number(sweep_loop_halve(&loop), true, "which is too many");
	check_number(batches_until_growth(&loop), 20, "then it takes twenty");
	(void) sweep_loop_halve(&loop);
	check_number(batches_until_growth(&loop), 40, "then forty");
	check_number(batches_until_growth(&loop), 40, "which four rows have lasted for");
	for (int i = 0; i < 4; i++)
		(void) batches_until_growth(&loop);
	check_number(sweep_loop_next_size(&loop), 100, "never above batch_size");
	for (int i = 0; i < 100; i++)
		(void) record(&loop, 100, 0);
	check_number(sweep_loop_next_size(&loop), 100, "where it stays");
	(void) sweep_loop_halve(&loop);
	check_number(loop.grow_after, 40, "a size that has lasted is no wrong guess");
	for (int i = 0; i < 30; i++)
	{
		(void) sweep_loop_halve(&loop);
		loop.grown = true;
	}
	check_number(loop.grow_after <= 20000, true, "and there is an end to it");

	loop = loop_with(0, 60, -1);
	(void) sweep_loop_halve(&loop);
	check_number(sweep_loop_next_size(&loop), 30, "half of what max_rows leaves");
	loop = loop_with(0, 0, 5 * SECOND);
	check_number(sweep_loop_is_late(&loop, 200 * SECOND), false, "late, but nothing is done yet");
	(void) record(&loop, 100, 101 * SECOND);
	check_number(sweep_loop_is_late(&loop, 105 * SECOND - 1), false, "not late yet");
	check_number(sweep_loop_is_late(&loop, 105 * SECOND), true, "late");
	loop = loop_with(0, 0, -1);
	(void) record(&loop, 100, 0);
	check_number(sweep_loop_is_late(&loop, INT64_MAX), false, "never late");
}

/* All limits met by one batch: the first of drained, max_batches, max_rows, stop_after. */
static void
test_order(void)
{
	SweepLoop	loop = loop_with(1, 100, 0);

	check_number(record(&loop, 0, 200 * SECOND), SWEEP_STOP_DRAINED, "drained before all");
	loop = loop_with(1, 100, 0);
	check_number(record(&loop, 100, 200 * SECOND), SWEEP_STOP_MAX_BATCHES, "max_batches before max_rows");
	loop = loop_with(0, 100, 0);
	check_number(record(&loop, 100, 200 * SECOND), SWEEP_STOP_MAX_ROWS, "max_rows before stop_after");
}

static void
test_sizes(void)
{
	SweepLoop	loop = loop_with(0, 0, -1);

	check_number(sweep_loop_next_size(&loop), 100, "without max_rows: batch_size");
	loop = loop_with(0, 250, -1);
	check_number(sweep_loop_next_size(&loop), 100, "first of 250");
	(void) record(&loop, 100, 0);
	(void) record(&loop, 50, 0);
	check_number(sweep_loop_next_size(&loop), 100, "exactly one batch left");
	(void) record(&loop, 99, 0);
	check_number(sweep_loop_next_size(&loop), 1, "one row left");
	(void) record(&loop, 1, 0);
	check_number(sweep_loop_next_size(&loop), 0, "none left");
	(void) record(&loop, 1000, 0);
	check_number(sweep_loop_next_size(&loop), 0, "never negative");
	loop = loop_with(0, 30, -1);
	check_number(sweep_loop_next_size(&loop), 30, "max_rows below batch_size");
	loop = loop_with(0, INT64_MAX, -1);
	check_number(sweep_loop_next_size(&loop), 100, "the greatest max_rows");
}

static void
test_overflow(void)
{
	SweepLoop	loop = loop_with(0, 0, -1);

	(void) record(&loop, INT64_MAX, 0);
	check_number(record(&loop, 1, 0), SWEEP_STOP_NONE, "rows beyond 64 bits");
	check_number(loop.rows, INT64_MAX, "rows stay at the top");
	loop.batches = INT64_MAX;
	(void) record(&loop, 1, 0);
	check_number(loop.batches, INT64_MAX, "batches stay at the top");
	check_number(record(&loop, -5, 0), SWEEP_STOP_DRAINED, "negative rows count as none");
	check_number(loop.rows, INT64_MAX, "and take nothing away");

	loop = loop_with(0, INT64_MAX, -1);
	(void) record(&loop, INT64_MAX - 1, 0);
	check_number(sweep_loop_next_size(&loop), 1, "one row left below 64 bits");
	check_number(record(&loop, 10, 0), SWEEP_STOP_MAX_ROWS, "and the limit is met");

	loop = loop_with(0, 0, INT64_MAX);
	check_number(record(&loop, 1, INT64_MAX), SWEEP_STOP_NONE, "the greatest stop_after");
	loop.started_us = INT64_MIN;
	check_number(record(&loop, 1, INT64_MAX), SWEEP_STOP_STOP_AFTER, "elapsed time beyond 64 bits");
	loop.started_us = INT64_MAX;
	check_number(record(&loop, 1, INT64_MIN), SWEEP_STOP_NONE, "a clock that ran far backwards");
}

int
main(void)
{
	test_names();
	test_reasons();
	test_boundaries();
	test_pause();
	test_halves();
	test_order();
	test_sizes();
	test_overflow();
	return check_finish();
}
