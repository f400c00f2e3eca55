/*
 * loop.h
 *		When a run stops: the limits of its batch loop and its stop reasons; how fast it goes until then.
 *
 * Used by run.c, which executes the batches and calls this after each one. Pure C: no backend call, no error is
 * raised, no clock is read (the caller passes a monotonic time), so every rule is tested without a server.
 */
#ifndef SWEEP_LOOP_H
#define SWEEP_LOOP_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Why a run ended. The words are those of sweep.runs.stop_reason, see
 * sweep_loop_stop_name(). The loop itself returns NONE to STOP_AFTER; the engine sets the others.
 */
typedef enum SweepStopReason
{
	SWEEP_STOP_NONE,			/* go on */
	SWEEP_STOP_DRAINED,			/* the last batch found nothing */
	SWEEP_STOP_DONE,			/* its sql was executed to the end */
	SWEEP_STOP_MAX_BATCHES,
	SWEEP_STOP_MAX_ROWS,
	SWEEP_STOP_STOP_AFTER,			/* soft time limit, checked between batches */
	SWEEP_STOP_CANCELLED,
	SWEEP_STOP_TIMEOUT,	/* hard time limit, which ends a batch */
	SWEEP_STOP_NO_PROGRESS,
	SWEEP_STOP_ERROR,
	SWEEP_STOP_SKIPPED,			/* never began: another process holds the lock */
	SWEEP_STOP_LOST,			/* its process vanished */
	SWEEP_STOP_RESCALED,		/* a share: the number of buckets has changed */
	SWEEP_STOP_WAITS			/* rows are left that wait for other transactions */
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
	int64_t		other_rows;		/* rows deleted or changed with them; max_rows counts them, too */
	int64_t		batch_rows;		/* of the batch in progress */
	int32_t		size;			/* of the next batch: batch_size, or less after batches that were too large */
	int32_t		full_batches;	/* successive full batches of this size */
	int32_t		grow_after;		/* number of full batches after which the size doubles */
	bool		grown;			/* the size was doubled, and fewer full batches have followed yet */
} SweepLoop;

/* Starts counting at now_us (monotonic). The limits are copied. */
extern void sweep_loop_begin(SweepLoop *loop, const SweepLimits *limits, int64_t now_us);

/*
 * The size of the next batch: batch_size, or less after sweep_loop_halve(), at most the rest of max_rows. 0 when
 * max_rows is used up (sweep_loop_end_batch() has reported that before).
 */
extern int32_t sweep_loop_next_size(const SweepLoop *loop);

/*
 * Counts rows as they are handled; a negative number counts as 0. Counters
 * saturate, they never wrap.
 */
extern void sweep_loop_add_rows(SweepLoop *loop, int64_t rows);

/* The same for rows that were deleted or changed together with the handled ones. */
extern void sweep_loop_add_other_rows(SweepLoop *loop, int64_t rows);

/*
 * Counts a committed batch and returns whether the run stops now, NONE to go on. The checks are made in the order
 * drained (which the caller passes), max_batches, max_rows, stop_after. If the pause would last beyond stop_after,
 * the run stops at once.
 */
extern SweepStopReason sweep_loop_end_batch(SweepLoop *loop, bool drained, int64_t now_us);

/*
 * Called when a batch was too large and was rolled back: the next one has half its size. False when the batch had one
 * row. After ten successive full batches the size doubles, up to batch_size; each time the doubled size fails, the
 * next doubling needs twice as many full batches.
 */
extern bool sweep_loop_halve(SweepLoop *loop);

/* Whether stop_after has passed and a batch was committed, so that a failed batch is not repeated. */
extern bool sweep_loop_is_late(const SweepLoop *loop, int64_t now_us);

/* The name of a reason, a constant; NULL for NONE and for invalid values. */
extern const char *sweep_loop_stop_name(SweepStopReason reason);

/* Upper limit of the remaining time: 100 years. */
#define SWEEP_PACE_MOST_US (INT64_C(36525) * 86400 * 1000000)

/* Rows per second, for the rows that were handled in this time of work, without pauses. */
extern double sweep_pace_rate(int64_t rows, int64_t worked_us);

/*
 * Time for the remaining rows at the same rate; -1 = not known, because no row was handled, or the estimate (-1: none) was
 * too low. elapsed_us includes pauses, because there will be further pauses.
 */
extern int64_t sweep_pace_left_us(int64_t rows, int64_t estimated_rows, int64_t elapsed_us);

#endif							/* SWEEP_LOOP_H */
