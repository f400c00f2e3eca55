/*
 * timers.c
 *		The timers of a run, pauses between its batches, and requests to stop it.
 *
 * Called by run.c, batch.c, script.c and estimate.c. Each timer sends a request to cancel to its own process, so a statement
 * in progress stops at its next check for interrupts. The flag of the slot and the clock tell which timer has fired.
 *
 * In a worker no transaction is open during a pause. In a session that executes CALL,
 * SPI has begun a transaction after the last commit, but it has no snapshot. A request to stop ends the pause at
 * once, because it comes with a signal that sets the latch.
 *
 * If the pause would last beyond stop_after, the run has ended before it (pure/loop.c); no share loses its bucket during a pause.
 */
#include "postgres.h"

#include <signal.h>

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "utils/timestamp.h"

#include "base/cancel.h"
#include "base/clock.h"
#include "base/compat.h"
#include "base/timer.h"
#include "engine/report.h"
#include "engine/timers.h"

/* Interval at which a long wait checks for a stop request, in ms: before the first batch a request has no signal. */
#define LOOK_AGAIN_MS 1000L

static void timeout_fired(void);

/*
 * The slot of the timed run, for the signal handler: in shared memory, or a variable of the process. The run
 * itself may be freed, with the memory of its CALL.
 */
static SweepSlot *timed_slot = NULL;

void
sweep_timers_arm_timeout(SweepRun *run)
{
	pg_atomic_write_u64(&run->slot->timeout_deadline_us, (uint64) (sweep_monotonic_us() + run->timeout_us));
	/* The timer is in use when the sql of another run has called this run: then only the launcher watches its timeout. */
	if (!sweep_timer_is_armed(SWEEP_TIMER_RUN))
	{
		timed_slot = run->slot;
		sweep_timer_arm(SWEEP_TIMER_RUN, run->timeout_us, timeout_fired);
	}
	if (sweep_shared_exists())
		sweep_shared_wake_launcher(false);
}

void
sweep_timers_disarm_timeout(SweepRun *run)
{
	pg_atomic_write_u64(&run->slot->timeout_deadline_us, 0);
	if (timed_slot != run->slot)
		return;
	(void) sweep_timer_disarm(SWEEP_TIMER_RUN);
	timed_slot = NULL;
}

void
sweep_timers_suspend_timeout(SweepRun *run)
{
	if (timed_slot == run->slot)
		(void) sweep_timer_disarm(SWEEP_TIMER_RUN);
}

void
sweep_timers_resume_timeout(SweepRun *run)
{
	int64		left_us = (int64) pg_atomic_read_u64(&run->slot->timeout_deadline_us) - sweep_monotonic_us();

	if (timed_slot != run->slot)
		return;
	/* No statement is in progress, and the next commit may come before a timer fires. */
	if (left_us <= 0)
		pg_atomic_fetch_or_u32(&run->slot->stop_request, SWEEP_STOP_REQUEST_TIMEOUT);
	else
		sweep_timer_arm(SWEEP_TIMER_RUN, left_us, timeout_fired);
}

void
sweep_timers_arm_statement(SweepRun *run)
{
	run->statement_timer = STATEMENT_TIMED;
	sweep_timer_arm_statement(StatementTimeout);
}

void
sweep_timers_disarm_statement(SweepRun *run)
{
	if (run->statement_timer != STATEMENT_TIMED)
		return;
	run->statement_timer = sweep_timer_disarm_statement() ? STATEMENT_TIMED_OUT : STATEMENT_UNTIMED;
	/* If the timeout fired just as its call ended, the request to cancel would otherwise take effect later. */
	if (run->statement_timer == STATEMENT_TIMED_OUT && pg_atomic_read_u32(&run->slot->stop_request) == 0)
		sweep_cancel_drop();
}

bool
sweep_timers_statement_fired(const SweepRun *run)
{
	if (!sweep_sql_in_call())
		return run->statement_timer == STATEMENT_TIMED_OUT;
	/* In a session the statement timeout is that of the CALL. */
	return StatementTimeout > 0 &&
		TimestampDifferenceExceeds(GetCurrentStatementStartTimestamp(), GetCurrentTimestamp(), StatementTimeout);
}

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

/* Executed in a signal handler. If the slot was given back, another process may own it. */
static void
timeout_fired(void)
{
	if (timed_slot == NULL || timed_slot->pid != MyProcPid)
		return;
	pg_atomic_fetch_or_u32(&timed_slot->stop_request, SWEEP_STOP_REQUEST_TIMEOUT);
	kill(MyProcPid, SIGINT);
}
