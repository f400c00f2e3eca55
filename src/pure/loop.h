/*
 * loop.h
 *		When a run stops: the limits of its batch loop and its stop reasons; how fast it goes until then.
 *
 * Used by run.c, which does the batches and asks here after each one. Pure C:
 * no backend call, nothing raises, no clock of its own (the caller passes a
 * monotonic one), so every rule is tested without a server.
 */
#ifndef SWEEP_LOOP_H
#define SWEEP_LOOP_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Why a run ended. The words are those of sweep.runs.stop_reason, see
 * sweep_loop_stop_name(). The loop itself returns NONE to STOP_AFTER; the engine
 * finds the others.
 */
typedef enum SweepStopReason
{
	SWEEP_STOP_NONE,			/* go on */
	SWEEP_STOP_DRAINED,			/* the last batch found nothing */
	SWEEP_STOP_DONE,			/* its sql was executed to the end */
	SWEEP_STOP_MAX_BATCHES,
	SWEEP_STOP_MAX_ROWS,
	SWEEP_STOP_STOP_AFTER,			/* the soft limit, between batches */
	SWEEP_STOP_CANCELLED,
	SWEEP_STOP_TIMEOUT,	/* the hard limit, within a batch */
	SWEEP_STOP_NO_PROGRESS,
	SWEEP_STOP_ERROR,
	SWEEP_STOP_SKIPPED,			/* never began: another process holds the lock */
	SWEEP_STOP_LOST,			/* its process vanished */
	SWEEP_STOP_RESCALED,		/* a share: the number of buckets is another now */
	SWEEP_STOP_WAITS			/* rows are left for which it waits for other transactions */
} SweepStopReason;

#define SWEEP_STOP_COUNT (SWEEP_STOP_WAITS + 1)

/* The limits of a job that concern its loop. */
typedef struct SweepLimits
{
	int32_t		batch_size;		/* rows per batch, at least 1 */
	int32_t		max_batches;	/* 0: none */
	int64_t		max_rows;		/* 0: none */
	int64_t		stop_after_us;		/* -1: none; 0: exactly one batch */
	int64_t		pause_us;		/* between two batches; 0: none */
} SweepLimits;

/* The counters of a loop. Callers may read them, only loop.c writes them. */
typedef struct SweepLoop
{
	SweepLimits limits;
	int64_t		started_us;		/* monotonic clock */
	int64_t		batches;		/* including the one that found nothing */
	int64_t		rows;
	int64_t		other_rows;		/* deleted or changed with them; max_rows counts them as well */
	int64_t		batch_rows;		/* of the batch in progress */
	int32_t		size;			/* of a batch: batch_size, or less after batches that were too large */
	int32_t		full_batches;	/* of this size, in a row */
	int32_t		grow_after;		/* so many of them double the size */
	bool		grown;			/* that was how it got this size, and not so many have followed yet */
} SweepLoop;

/* Starts counting at now_us (monotonic). The limits are copied. */
extern void sweep_loop_begin(SweepLoop *loop, const SweepLimits *limits, int64_t now_us);

/*
 * The size of the next batch: batch_size, less after sweep_loop_halve(), or what is left of max_rows where
 * that is less. 0 when max_rows is used up (the end of a batch has said so before).
 */
extern int32_t sweep_loop_next_size(const SweepLoop *loop);

/*
 * Counts rows as they are handled; a negative number counts as 0. Counters
 * saturate, they never wrap.
 */
extern void sweep_loop_add_rows(SweepLoop *loop, int64_t rows);

/* The same for rows that have gone, or were changed, with those that were handled. */
extern void sweep_loop_add_other_rows(SweepLoop *loop, int64_t rows);

/*
 * Counts a committed batch and says whether the run stops now: drained, which the
 * caller knows, before max_batches before max_rows before stop_after, and NONE to go
 * on. A pause that would reach stop_after is not made: the run stops at once.
 */
extern SweepStopReason sweep_loop_end_batch(SweepLoop *loop, bool drained, int64_t now_us);

/*
 * A batch was too large, and nothing of it was done: the next one has half its size. False when it was of one
 * row. After ten full batches in a row the size doubles, up to batch_size; each time that turns out to be too
 * large again it takes twice as many.
 */
extern bool sweep_loop_halve(SweepLoop *loop);

/* Whether stop_after has passed and something was committed, so that no batch is to be done again. */
extern bool sweep_loop_is_late(const SweepLoop *loop, int64_t now_us);

/* The word for a reason, a constant; NULL for NONE and for what is no reason. */
extern const char *sweep_loop_stop_name(SweepStopReason reason);

/* No time that is left is longer: 100 years. */
#define SWEEP_PACE_MOST_US (INT64_C(36525) * 86400 * 1000000)

/* Rows per second, over all that was done in this time. In it the run worked: what it was made to wait is left out. */
extern double sweep_pace_rate(int64_t rows, int64_t worked_us);

/*
 * How long the rest takes if it goes on like this, -1 = not known: nothing has been handled, or the estimate (-1: there is
 * none) was too low. Time in which the run was made to wait is part of elapsed_us, for it will be made to wait again.
 */
extern int64_t sweep_pace_left_us(int64_t rows, int64_t estimated_rows, int64_t elapsed_us);

#endif							/* SWEEP_LOOP_H */
