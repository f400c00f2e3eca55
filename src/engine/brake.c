/*
 * brake.c
 *		Pauses between the batches of a run, and requests to stop it.
 *
 * Called by run.c and batch.c. In a worker no transaction is open during a pause. In a session that executes CALL,
 * SPI has begun a transaction after the last commit, but it has no snapshot. A request to stop ends the pause at
 * once, because it comes with a signal that sets the latch.
 *
 * If the pause would last beyond stop_after, the run has ended before it (pure/loop.c); no share loses its bucket during a pause.
 */
#include "postgres.h"

#include "base/cancel.h"
#include "base/clock.h"
#include "base/compat.h"
#include "base/timer.h"
#include "engine/brake.h"
#include "engine/report.h"

/* Interval at which a long wait checks for a stop request, in ms: before the first batch a request has no signal. */
#define LOOK_AGAIN_MS 1000L

bool
sweep_brake_is_stopped(const SweepRun *run)
{
	return pg_atomic_read_u32(&run->slot->stop_request) != 0 || sweep_cancel_is_pending();
}

/* A latch that is set does not end the wait: it may have been set for another purpose. */
void
sweep_brake_wait(SweepRun *run, int64 time_us, uint32 wait_event)
{
	int64		end_us = sweep_monotonic_us() + time_us;
	int64		left_us;

	sweep_timer_begin_rest();
	while ((left_us = end_us - sweep_monotonic_us()) > 0 && !sweep_brake_is_stopped(run))
	{
		sweep_cancel_wait(Min((long) (left_us / 1000 + 1), LOOK_AGAIN_MS), wait_event);
	}
	sweep_timer_end_rest();
	sweep_brake_note_cancel(run);
}

void
sweep_brake_note_cancel(SweepRun *run)
{
	if (sweep_cancel_is_pending())
		pg_atomic_fetch_or_u32(&run->slot->stop_request, SWEEP_STOP_REQUEST_CANCEL);
	sweep_cancel_drop();
}

void
sweep_brake_pause(SweepRun *run)
{
	int64		began_us = sweep_monotonic_us();

	if (run->reason != SWEEP_STOP_NONE || run->state.loop.batches == run->times.braked_batches)
		return;
	run->times.braked_batches = run->state.loop.batches;
	/* A later stop is not due to the statement timeout of the last batch. */
	run->statement_timer = STATEMENT_UNTIMED;
	sweep_report_brake(run, true);
	sweep_brake_wait(run, run->pause_us, sweep_wait_event(SWEEP_WAIT_BRAKE));
	run->state.braked_us += sweep_monotonic_us() - began_us;
	sweep_report_brake(run, false);
}
