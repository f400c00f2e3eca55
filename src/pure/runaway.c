/*
 * runaway.c
 *		Whether the batches of a run bring it nearer to an end.
 *
 * Called by watch.c for each batch that was not empty. A run makes progress when its cursor gets a value that it did
 * not have before, or when a batch leaves fewer rows than it found. A run that does neither, by an UPDATE for example,
 * may still handle each row once: a run is endless only if it has made no progress for some time, and has handled
 * twice as many rows as there were to handle.
 *
 * Not all values of the cursor can be kept, because a run may take days. As in Brent's search for a cycle, one value
 * is saved and each new value is compared with it; after twice as many batches as before another value is saved. A
 * value that is saved within a circle comes back, if no other one is saved before. Each value is also compared with
 * the cursor at the mark, because most circles go back to their beginning, for example to no cursor.
 */
#include "pure/runaway.h"

#define FEWEST_BATCHES 10

static void set_mark(SweepRunaway *run, SweepPlace place);
static void meet(SweepRunaway *run);
static int64_t stuck_us(const SweepRunaway *run);

void
sweep_runaway_begin(SweepRunaway *run, uint64_t cursor, int64_t now_us)
{
	*run = (SweepRunaway) {.now = {.cursor = cursor, .at_us = now_us}};
	set_mark(run, run->now);
}

void
sweep_runaway_note(SweepRunaway *run, uint64_t cursor, bool removed, int64_t work, int64_t now_us)
{
	bool		met;			/* the cursor has come back */
	bool		left;			/* the cursor has left the circle */

	run->now.cursor = cursor;
	run->now.at_us = now_us;
	run->now.batches++;
	if (__builtin_add_overflow(run->now.work, work, &run->now.work))
		run->now.work = INT64_MAX;

	met = cursor == run->mark.cursor || cursor == run->saved.cursor;
	left = run->stuck && !met && run->now.batches - run->met > run->length;
	if (removed || left)
		set_mark(run, run->now);
	else if (met)
		meet(run);
	else if (!run->stuck && run->now.batches - run->saved.batches >= run->distance)
	{
		run->saved = run->now;
		run->distance *= 2;
	}
}

bool
sweep_runaway_is_stuck(const SweepRunaway *run, int64_t after_us)
{
	return run->stuck && stuck_us(run) >= after_us / 10;
}

bool
sweep_runaway_is_endless(const SweepRunaway *run, int64_t after_us, double rows)
{
	return run->stuck && stuck_us(run) >= after_us && run->now.batches - run->mark.batches >= FEWEST_BATCHES &&
		(double) (run->now.work - run->mark.work) > 2 * rows;
}

static void
set_mark(SweepRunaway *run, SweepPlace place)
{
	run->mark = run->saved = place;
	run->distance = 1;
	run->marks++;
	run->stuck = false;
}

/* Called when the cursor is back at a saved place: the batches since then made no progress. */
static void
meet(SweepRunaway *run)
{
	if (run->stuck)
		run->length = run->now.batches - run->met;
	else
	{
		if (run->now.cursor != run->mark.cursor)
			set_mark(run, run->saved);
		run->length = run->now.batches - run->mark.batches;
		run->stuck = true;
	}
	run->met = run->now.batches;
}

/* May be negative if the clock ran backwards. */
static int64_t
stuck_us(const SweepRunaway *run)
{
	return run->now.at_us - run->mark.at_us;
}
