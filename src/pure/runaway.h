/*
 * runaway.h
 *		Whether the batches of a run bring it nearer to an end.
 *
 * Used by watch.c. Pure C: no backend call, no clock is read, no error is raised.
 */
#ifndef SWEEP_RUNAWAY_H
#define SWEEP_RUNAWAY_H

#include <stdbool.h>
#include <stdint.h>

/* A place in a run: the cursor after so many batches and so much work. */
typedef struct SweepPlace
{
	uint64_t	cursor;			/* its hash; 0 = no cursor */
	int64_t		batches;
	int64_t		work;
	int64_t		at_us;			/* monotonic clock */
} SweepPlace;

/* The work of a run. Callers may read it, only runaway.c writes it. */
typedef struct SweepRunaway
{
	SweepPlace	now;
	SweepPlace	mark;			/* last place of progress */
	SweepPlace	saved;			/* a later place, with whose cursor the next ones are compared */
	int64_t		distance;		/* number of batches after which another place is saved */
	int64_t		marks;			/* how often the mark has moved */
	int64_t		met;			/* number of batches at the last cursor that had come back */
	int64_t		length;			/* of the circle, in batches */
	bool		stuck;			/* since the mark the cursor repeats, or there is none */
} SweepRunaway;

/* Begins with the cursor that the first batch gets. */
extern void sweep_runaway_begin(SweepRunaway *run, uint64_t cursor, int64_t now_us);

/*
 * Notes a batch that was not empty: the cursor that it returned, whether it left fewer rows than it found, and how
 * much work it did, 0 or more.
 */
extern void sweep_runaway_note(SweepRunaway *run, uint64_t cursor, bool removed, int64_t work, int64_t now_us);

/* Whether the run is stuck for a tenth of the time already, so that its tables should be looked up. */
extern bool sweep_runaway_is_stuck(const SweepRunaway *run, int64_t after_us);

/*
 * Whether the run is stuck for that time and at least ten batches, and has done more than twice the work that there
 * was.
 */
extern bool sweep_runaway_is_endless(const SweepRunaway *run, int64_t after_us, double rows);

#endif							/* SWEEP_RUNAWAY_H */
