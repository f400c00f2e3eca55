/*
 * cancel.h
 *		Requests to cancel a statement: the only file that uses PostgreSQL's flag for one.
 *
 * PostgreSQL raises a pending request at the next check for interrupts. The engine answers some of them itself, and drops one that
 * was for code of a job which has ended meanwhile; otherwise it would end a statement of the engine, or the next run. The tests
 * cancel, statement_timeout and estimate_runs fail where the flag means something else; without it each statement of the engine
 * would have to be tried again after a cancel.
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
 * Whether an error is a request to cancel that this process was sent. Code of a job can raise one with the same SQLSTATE, as when a
 * statement timeout of another server ends its query on a foreign table: only the C function that has raised the error tells them apart.
 * Where a version of PostgreSQL raises it elsewhere, the test estimate_runs fails.
 */
static inline bool
sweep_cancel_is_error(const ErrorData *error)
{
	return error->sqlerrcode == ERRCODE_QUERY_CANCELED && error->funcname != NULL && strcmp(error->funcname, "ProcessInterrupts") == 0;
}

/* Answers all interrupts but a request to cancel, which stays pending. */
static inline void
sweep_cancel_answer_others(void)
{
	HOLD_CANCEL_INTERRUPTS();
	CHECK_FOR_INTERRUPTS();
	RESUME_CANCEL_INTERRUPTS();
}

/* Waits until the latch is set or the time is over, in ms, and answers interrupts like that. */
static inline void
sweep_cancel_wait(long time_ms, uint32 wait_event)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, time_ms, wait_event);
	ResetLatch(MyLatch);
	sweep_cancel_answer_others();
}

#endif							/* SWEEP_CANCEL_H */
