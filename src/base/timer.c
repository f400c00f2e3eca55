/*
 * timer.c
 *		Timers of a process that go by the monotonic clock.
 *
 * Called by engine/timers.c and estimate.c for runs and by process/consumer_handle.c for handlers. PostgreSQL's timeouts use the wall clock,
 * so they fire early when that clock is set ahead. A timer of this file then checks the monotonic clock, and is started again for the rest of
 * its time. This also allows longer times than a timeout of PostgreSQL, which has 24.8 days at most. When the clock is set back, a timer
 * fires late, like all timeouts of PostgreSQL; for this case the launcher watches the timeouts of runs, too.
 */
#include "postgres.h"

#include "access/xact.h"
#include "storage/proc.h"
#include "utils/timeout.h"

#include "base/clock.h"
#include "base/compat.h"
#include "base/timer.h"

typedef struct Timer
{
	TimeoutId	id;
	int64		deadline_us;	/* 0 = not armed */
	void		(*fired) (void);	/* NULL = not registered */
} Timer;

static void ring(void);
static void start(Timer *timer);
static void statement_fired(void);

static Timer timers[SWEEP_TIMER_STATEMENT + 1];

void
sweep_timer_arm(SweepTimer which, int64 time_us, void (*fired) (void))
{
	Timer	   *timer = &timers[which];

	if (timer->fired == NULL)
		timer->id = RegisterTimeout(USER_TIMEOUT, ring);
	timer->fired = fired;
	timer->deadline_us = sweep_monotonic_us() + time_us;
	start(timer);
}

bool
sweep_timer_disarm(SweepTimer which)
{
	Timer	   *timer = &timers[which];
	int64		deadline_us = timer->deadline_us;

	if (deadline_us == 0)
		return false;
	timer->deadline_us = 0;
	disable_timeout(timer->id, false);
	return sweep_monotonic_us() >= deadline_us;
}

/* In a session an error disables all timeouts of PostgreSQL, and with them the timer. */
bool
sweep_timer_is_armed(SweepTimer which)
{
	return timers[which].deadline_us != 0 && get_timeout_active(timers[which].id);
}

void
sweep_timer_arm_statement(int limit_ms)
{
	if (limit_ms > 0)
		sweep_timer_arm(SWEEP_TIMER_STATEMENT, (int64) limit_ms * 1000, statement_fired);
}

bool
sweep_timer_disarm_statement(void)
{
	bool		passed;

	/* In a session the indicator may belong to PostgreSQL's own statement timeout. */
	if (timers[SWEEP_TIMER_STATEMENT].deadline_us == 0)
		return false;
	passed = sweep_timer_disarm(SWEEP_TIMER_STATEMENT);
	disable_timeout(STATEMENT_TIMEOUT, false);
	return passed;
}

void
sweep_timer_begin_rest(void)
{
	sweep_stop_transaction_timeout();
}

void
sweep_timer_end_rest(void)
{
	if (IsTransactionState())
		sweep_start_transaction_timeout();
}

/* This and all functions below are executed in a signal handler. PostgreSQL does not pass the timer, but has set its indicator. */
static void
ring(void)
{
	for (size_t i = 0; i < lengthof(timers); i++)
	{
		Timer	   *timer = &timers[i];

		if (timer->deadline_us == 0 || !get_timeout_indicator(timer->id, true))
			continue;
		if (sweep_monotonic_us() < timer->deadline_us)
			start(timer);
		else
			timer->fired();
	}
}

static void
start(Timer *timer)
{
	int64		left_us = Max(timer->deadline_us - sweep_monotonic_us(), 0);

	enable_timeout_after(timer->id, (int) Min(left_us / 1000 + 1, PG_INT32_MAX));
}

/* PostgreSQL then raises the error of its own statement timeout. */
static void
statement_fired(void)
{
	enable_timeout_after(STATEMENT_TIMEOUT, 1);
}
