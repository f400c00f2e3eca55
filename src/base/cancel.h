/*
 * cancel.h
 *		Requests to cancel a statement: the only file that uses PostgreSQL's flag for them.
 *
 * PostgreSQL raises a pending request at the next check for interrupts. The engine processes some requests itself. It drops a
 * request for code of a job that has ended meanwhile, because that would cancel a statement of the engine, or the next run. If a
 * version of PostgreSQL uses the flag in another way, the tests cancel, statement_timeout and estimate_runs fail; without the flag
 * each statement of the engine would have to be tried again after a cancel.
 */
#ifndef SWEEP_CANCEL_H
#define SWEEP_CANCEL_H

#include "miscadmin.h"
#include "storage/latch.h"

static inline bool
sweep_cancel_is_pending(void)
{
	return QueryCancelPending;
}

static inline void
sweep_cancel_drop(void)
{
	QueryCancelPending = false;
}

/*
 * Whether an error comes from a request to cancel this process. Code of a job can raise an error with the same SQLSTATE, for example
 * when a query on a foreign table fails by the statement timeout of the other server; the two differ only in the C function that has
 * raised them. If a version of PostgreSQL raises it in another function, the test estimate_runs fails.
 */
static inline bool
sweep_cancel_is_error(const ErrorData *error)
{
	return error->sqlerrcode == ERRCODE_QUERY_CANCELED && error->funcname != NULL && strcmp(error->funcname, "ProcessInterrupts") == 0;
}

/* Processes all interrupts except a request to cancel, which stays pending. */
static inline void
sweep_cancel_answer_others(void)
{
	HOLD_CANCEL_INTERRUPTS();
	CHECK_FOR_INTERRUPTS();
	RESUME_CANCEL_INTERRUPTS();
}

/* Waits for the latch, time_ms milliseconds at most, and processes interrupts in the same way. */
static inline void
sweep_cancel_wait(long time_ms, uint32 wait_event)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, time_ms, wait_event);
	ResetLatch(MyLatch);
	sweep_cancel_answer_others();
}

#endif							/* SWEEP_CANCEL_H */
