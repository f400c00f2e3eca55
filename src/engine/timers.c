/*
 * timers.c
 *		The timers of a run.
 *
 * Called by run.c, batch.c and estimate.c. All end in a cancel request to this very process, so a statement in flight
 * stops at its next check for interrupts; which of them it was is known by the flag of the slot, the clock, and what
 * PostgreSQL notes of a timeout.
 */
#include "postgres.h"

#include <signal.h>

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "engine/timers.h"

static void hard_timer_fired(void);
static void limit_timer_fired(void);

/* The run that is timed, for the signal handler. */
static SweepRun *timed_run = NULL;
static TimeoutId hard_timer;
static TimeoutId limit_timer = MAX_TIMEOUTS;

void
sweep_timers_arm_timeout(SweepRun *run)
{
	if (run->timeout_us <= 0)
		return;
	pg_atomic_write_u64(&run->slot->timeout_deadline_us, (uint64) (sweep_monotonic_us() + run->timeout_us));
	/* Of a run that is called by the sql of another one only the scheduler looks at the clock. */
	if (timed_run == NULL)
	{
		static bool registered = false;

		if (!registered)
			hard_timer = RegisterTimeout(USER_TIMEOUT, hard_timer_fired);
		registered = true;
		timed_run = run;
		enable_timeout_after(hard_timer, (int) Min(run->timeout_us / 1000 + 1, PG_INT32_MAX));
	}
	if (sweep_shared_exists())
		(void) sweep_shared_wake_scheduler(MyDatabaseId, false);
}

void
sweep_timers_disarm_timeout(SweepRun *run)
{
	pg_atomic_write_u64(&run->slot->timeout_deadline_us, 0);
	if (timed_run != run)
		return;
	disable_timeout(hard_timer, false);
	timed_run = NULL;
}

void
sweep_timers_arm_statement(SweepRun *run)
{
	run->statement_timed_out = false;
	if (StatementTimeout <= 0)
		return;
	run->statement_deadline_us = sweep_monotonic_us() + (int64) StatementTimeout * 1000;
	enable_timeout_after(STATEMENT_TIMEOUT, StatementTimeout);
}

void
sweep_timers_disarm_statement(SweepRun *run)
{
	if (run->statement_deadline_us == 0)
		return;
	disable_timeout(STATEMENT_TIMEOUT, false);
	run->statement_timed_out = sweep_monotonic_us() >= run->statement_deadline_us;
	/* One that fired as its call ended would take effect a moment later, as somebody's request. */
	if (run->statement_timed_out && pg_atomic_read_u32(&run->slot->stop_request) == 0)
		QueryCancelPending = false;
	run->statement_deadline_us = 0;
}

bool
sweep_timers_statement_fired(const SweepRun *run)
{
	if (MyBackendType == B_BG_WORKER)
		return run->statement_timed_out;
	/* In a session it is the one of the CALL. */
	return StatementTimeout > 0 &&
		TimestampDifferenceExceeds(GetCurrentStatementStartTimestamp(), GetCurrentTimestamp(), StatementTimeout);
}

/* Not the statement timeout: in a session that of the CALL is running. */
void
sweep_timers_arm_limit(int limit_ms)
{
	if (limit_timer == MAX_TIMEOUTS)
		limit_timer = RegisterTimeout(USER_TIMEOUT, limit_timer_fired);
	enable_timeout_after(limit_timer, limit_ms);
}

bool
sweep_timers_disarm_limit(void)
{
	bool		fired;

	disable_timeout(limit_timer, true);
	fired = get_timeout_indicator(limit_timer, true);
	/* If that was as the code ended, it would take effect a moment later. Who else wants the run to stop has said so in its slot. */
	if (fired)
		QueryCancelPending = false;
	return fired;
}

/* In a signal handler. */
static void
limit_timer_fired(void)
{
	kill(MyProcPid, SIGINT);
}

/* In a signal handler. */
static void
hard_timer_fired(void)
{
	if (timed_run != NULL)
	{
		pg_atomic_fetch_or_u32(&timed_run->slot->stop_request, SWEEP_STOP_REQUEST_TIMEOUT);
		kill(MyProcPid, SIGINT);
	}
}
