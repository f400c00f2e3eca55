/*
 * timer.c
 *		Timers of a process that go by the monotonic clock.
 *
 * Called by engine/timers.c for runs and by process/consumer_handle.c for handlers. PostgreSQL orders its timeouts by the wall clock:
 * one fires early when that clock is set ahead. A timer of ours then looks at the monotonic clock, and is armed again for
 * what is left; that is also how it lasts longer than the 24.8 days that a timeout of PostgreSQL can. When the clock is set
 * back a timer is late, as all timeouts of PostgreSQL are then: the timeout of a run is watched from outside as well.
 */
#include "postgres.h"

#include "utils/timeout.h"

#include "base/clock.h"
#include "base/timer.h"

typedef struct Timer
{
	TimeoutId	id;
	int64		deadline_us;	/* 0 = not armed */
	void		(*fired) (void);	/* NULL = not registered */
} Timer;

static void ring(SweepTimer which);
static void start(Timer *timer);
static void ring_run(void);
static void ring_limit(void);
static void ring_statement(void);
static void statement_fired(void);

static Timer timers[SWEEP_TIMER_STATEMENT + 1];
static const timeout_handler_proc handlers[] = {ring_run, ring_limit, ring_statement};

StaticAssertDecl(lengthof(handlers) == lengthof(timers), "every timer has a handler");

void
sweep_timer_arm(SweepTimer which, int64 time_us, void (*fired) (void))
{
	Timer	   *timer = &timers[which];

	if (timer->fired == NULL)
		timer->id = RegisterTimeout(USER_TIMEOUT, handlers[which]);
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

/* An error that ends a statement of a session ends all timeouts. */
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

	/* In a session that of PostgreSQL is not ours. */
	if (timers[SWEEP_TIMER_STATEMENT].deadline_us == 0)
		return false;
	passed = sweep_timer_disarm(SWEEP_TIMER_STATEMENT);
	disable_timeout(STATEMENT_TIMEOUT, false);
	return passed;
}

/* In a signal handler, as all that follows. */
static void
ring(SweepTimer which)
{
	Timer	   *timer = &timers[which];

	if (timer->deadline_us == 0)
		return;
	if (sweep_monotonic_us() < timer->deadline_us)
		start(timer);
	else
		timer->fired();
}

static void
start(Timer *timer)
{
	int64		left_us = Max(timer->deadline_us - sweep_monotonic_us(), 0);

	enable_timeout_after(timer->id, (int) Min(left_us / 1000 + 1, PG_INT32_MAX));
}

static void
ring_run(void)
{
	ring(SWEEP_TIMER_RUN);
}

static void
ring_limit(void)
{
	ring(SWEEP_TIMER_LIMIT);
}

static void
ring_statement(void)
{
	ring(SWEEP_TIMER_STATEMENT);
}

/* The timeout of PostgreSQL says what the error is. */
static void
statement_fired(void)
{
	enable_timeout_after(STATEMENT_TIMEOUT, 1);
}
