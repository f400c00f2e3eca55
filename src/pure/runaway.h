/*
 * runaway.h
 *		Whether the batches of a run bring it nearer to an end.
 *
 * Used by watch.c. Pure C: no backend call, no clock of its own, nothing raises.
 */
#ifndef SWEEP_RUNAWAY_H
#define SWEEP_RUNAWAY_H

#include <stdbool.h>
#include <stdint.h>

/* A place in a run: behind so many batches and so much work, with that cursor. */
typedef struct SweepPlace
{
	uint64_t	cursor;			/* what stands for it: equal for equal ones; 0 = none */
	int64_t		batches;
	int64_t		work;
	int64_t		at_us;			/* monotonic clock */
} SweepPlace;

/* The work of a run. Callers may read it, only runaway.c writes it. */
typedef struct SweepRunaway
{
	SweepPlace	now;
	SweepPlace	mark;			/* up to there it has got on */
	SweepPlace	saved;			/* a later place, whose cursor the next ones are compared with */
	int64_t		distance;		/* so many batches behind it another place is saved */
	int64_t		marks;			/* how often the mark has moved */
	int64_t		met;			/* at so many batches the cursor was last one that had been there before */
	int64_t		length;			/* of the circle: batches between two such */
	bool		stuck;			/* since the mark it goes round in a circle, or has no cursor */
} SweepRunaway;

/* Begins with the cursor of the first batch. */
extern void sweep_runaway_begin(SweepRunaway *run, uint64_t cursor, int64_t now_us);

/*
 * A batch that was not empty: what it has returned, whether it has left less behind than it found, and how much
 * it has done, 0 or more.
 */
extern void sweep_runaway_note(SweepRunaway *run, uint64_t cursor, bool removed, int64_t work, int64_t now_us);

/* Whether it is stuck for a tenth of the time already, so that one should know what it works on. */
extern bool sweep_runaway_is_stuck(const SweepRunaway *run, int64_t after_us);

/*
 * Whether it is stuck for that time, ten batches at least, and has done more than twice as much as there was to
 * be done.
 */
extern bool sweep_runaway_is_endless(const SweepRunaway *run, int64_t after_us, double rows);

#endif							/* SWEEP_RUNAWAY_H */
