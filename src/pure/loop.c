/*
 * loop.c
 *		When a run stops: the limits of its batch loop and its stop reasons; how fast it goes until then.
 *
 * Called by run.c around every batch. All checks come after a batch: a run always does at least one, stop_after 0
 * means exactly one, and max_rows 1000 with batches of 100 means exactly ten. A batch without rows ends a run; a
 * batch with fewer rows than asked for does not, because a step may return fewer for reasons of its own.
 *
 * If one batch meets several limits, the order of the checks decides which reason is shown: "drained" comes first,
 * because no work is left.
 */
#include "pure/loop.h"

#include <stddef.h>

static const char *const stop_names[] = {
	[SWEEP_STOP_NONE] = NULL,
	[SWEEP_STOP_DRAINED] = "drained",
	[SWEEP_STOP_DONE] = "done",
	[SWEEP_STOP_MAX_BATCHES] = "max_batches",
	[SWEEP_STOP_MAX_ROWS] = "max_rows",
	[SWEEP_STOP_STOP_AFTER] = "stop_after",
	[SWEEP_STOP_CANCELLED] = "cancelled",
	[SWEEP_STOP_TIMEOUT] = "timeout",
	[SWEEP_STOP_NO_PROGRESS] = "no_progress",
	[SWEEP_STOP_ERROR] = "error",
	[SWEEP_STOP_SKIPPED] = "skipped",
	[SWEEP_STOP_LOST] = "lost",
	[SWEEP_STOP_RESCALED] = "rescaled",
	[SWEEP_STOP_WAITS] = "waits",
};

_Static_assert(sizeof(stop_names) / sizeof(stop_names[0]) == SWEEP_STOP_COUNT,
			   "every stop reason needs a name");

#define GROW_AFTER 10
#define MOST_GROW_AFTER 10000

static void grow(SweepLoop *loop);
static int64_t counted_rows(const SweepLoop *loop);
static int64_t add_saturated(int64_t counter, int64_t amount);
static int64_t elapsed_us(const SweepLoop *loop, int64_t now_us);

void
sweep_loop_begin(SweepLoop *loop, const SweepLimits *limits, int64_t now_us)
{
	*loop = (SweepLoop) {.limits = *limits, .started_us = now_us, .size = limits->batch_size, .grow_after = GROW_AFTER};
}

int32_t
sweep_loop_next_size(const SweepLoop *loop)
{
	const SweepLimits *limits = &loop->limits;

	if (limits->max_rows > 0)
	{
		int64_t		left = limits->max_rows - counted_rows(loop);

		if (left <= 0)
			return 0;
		if (left < loop->size)
			return (int32_t) left;
	}
	return loop->size;
}

void
sweep_loop_add_rows(SweepLoop *loop, int64_t rows)
{
	if (rows <= 0)
		return;
	loop->rows = add_saturated(loop->rows, rows);
	loop->batch_rows = add_saturated(loop->batch_rows, rows);
}

void
sweep_loop_add_other_rows(SweepLoop *loop, int64_t rows)
{
	if (rows > 0)
		loop->other_rows = add_saturated(loop->other_rows, rows);
}

SweepStopReason
sweep_loop_end_batch(SweepLoop *loop, bool drained, int64_t now_us)
{
	const SweepLimits *limits = &loop->limits;

	loop->batches = add_saturated(loop->batches, 1);
	grow(loop);
	if (drained)
		return SWEEP_STOP_DRAINED;

	if (limits->max_batches > 0 && loop->batches >= limits->max_batches)
		return SWEEP_STOP_MAX_BATCHES;
	if (limits->max_rows > 0 && counted_rows(loop) >= limits->max_rows)
		return SWEEP_STOP_MAX_ROWS;
	/* 0 does not depend on the clock, even if it was set back */
	if (limits->stop_after_us == 0 ||
		(limits->stop_after_us > 0 && elapsed_us(loop, now_us) >= limits->stop_after_us - limits->pause_us))
		return SWEEP_STOP_STOP_AFTER;
	return SWEEP_STOP_NONE;
}

bool
sweep_loop_halve(SweepLoop *loop)
{
	int32_t		size = sweep_loop_next_size(loop);

	if (size <= 1)
		return false;
	if (loop->grown && loop->grow_after < MOST_GROW_AFTER)
		loop->grow_after *= 2;
	loop->size = size / 2;
	loop->full_batches = 0;
	loop->grown = false;
	return true;
}

bool
sweep_loop_is_late(const SweepLoop *loop, int64_t now_us)
{
	return loop->batches > 0 && loop->limits.stop_after_us >= 0 && elapsed_us(loop, now_us) >= loop->limits.stop_after_us;
}

const char *
sweep_loop_stop_name(SweepStopReason reason)
{
	if ((unsigned int) reason >= SWEEP_STOP_COUNT)
		return NULL;
	return stop_names[reason];
}

/* Batches that are not full do not count, because they do not show that the size works. */
static void
grow(SweepLoop *loop)
{
	bool		full = loop->batch_rows >= loop->size;

	loop->batch_rows = 0;
	if (!full || ++loop->full_batches < loop->grow_after)
		return;
	loop->grown = loop->size < loop->limits.batch_size;
	loop->full_batches = 0;
	if (loop->grown)
		loop->size = loop->size > loop->limits.batch_size / 2 ? loop->limits.batch_size : loop->size * 2;
}

/* The number of rows that max_rows limits. */
static int64_t
counted_rows(const SweepLoop *loop)
{
	return add_saturated(loop->rows, loop->other_rows);
}

/* The sum of a counter and an amount that is not negative. */
static int64_t
add_saturated(int64_t counter, int64_t amount)
{
	int64_t		sum;

	return __builtin_add_overflow(counter, amount, &sum) ? INT64_MAX : sum;
}

/* Microseconds since the loop began; a clock that ran backwards gives less than 0. */
static int64_t
elapsed_us(const SweepLoop *loop, int64_t now_us)
{
	int64_t		elapsed;

	if (__builtin_sub_overflow(now_us, loop->started_us, &elapsed))
		return now_us > loop->started_us ? INT64_MAX : INT64_MIN;
	return elapsed;
}

/*
 * This function and the next one use the average over the whole run until its last commit. A rate of only the last batches would
 * follow a change sooner, but batches differ (caches, load, locks of others), and the estimated end would move back and forth with
 * them. Between two commits the values do not change.
 */
double
sweep_pace_rate(int64_t rows, int64_t worked_us)
{
	return (double) rows * 1000000.0 / (double) (worked_us > 0 ? worked_us : 1);
}

int64_t
sweep_pace_left_us(int64_t rows, int64_t estimated_rows, int64_t elapsed_us)
{
	double		left_us;

	if (rows <= 0 || estimated_rows < rows)
		return -1;
	left_us = ((double) estimated_rows - (double) rows) * ((double) (elapsed_us > 0 ? elapsed_us : 1) / (double) rows);
	return left_us < (double) SWEEP_PACE_MOST_US ? (int64_t) left_us : -1;
}
