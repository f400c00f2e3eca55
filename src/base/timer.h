/*
 * timer.h
 *		Timers of a process that go by the monotonic clock.
 */
#ifndef SWEEP_TIMER_H
#define SWEEP_TIMER_H

typedef enum SweepTimer
{
	SWEEP_TIMER_RUN,			/* timeout of a run */
	SWEEP_TIMER_LIMIT,			/* limit of an estimate */
	SWEEP_TIMER_STATEMENT,		/* statement_timeout of a worker */
} SweepTimer;

/* Calls the function in a signal handler when the time has passed. */
extern void sweep_timer_arm(SweepTimer timer, int64 time_us, void (*fired) (void));

/* Returns whether the time has passed. The timer need not be armed. */
extern bool sweep_timer_disarm(SweepTimer timer);

extern bool sweep_timer_is_armed(SweepTimer timer);

/* In a worker PostgreSQL does not arm statement_timeout, but these functions do. The limit is in ms, 0 = none. */
extern void sweep_timer_arm_statement(int limit_ms);
extern bool sweep_timer_disarm_statement(void);

/*
 * Called around a wait between two transactions of a CALL, so that transaction_timeout does not end the session: SPI has begun the next
 * transaction with the commit. A process without a transaction may call them, too.
 */
extern void sweep_timer_begin_rest(void);
extern void sweep_timer_end_rest(void);

#endif							/* SWEEP_TIMER_H */
