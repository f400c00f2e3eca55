/*
 * due.h
 *		Queues what is due, and lists what may start.
 */
#ifndef SWEEP_DUE_H
#define SWEEP_DUE_H

#include "datatype/timestamp.h"

#include "base/shared.h"
#include "base/sql.h"

typedef struct SweepDue
{
	bool		news;			/* runs may start that could not before */
	bool		more;			/* more is due than was queued: it is left to the next tick */
} SweepDue;

/*
 * Ends the records of lost runs and queues runs for the jobs that are due at this moment; both may let runs start. Each
 * transaction is executed by transact(); false when that has returned false.
 */
extern bool sweep_due_queue(TimestampTz now, bool (*transact) (SweepWork work), SweepDatabaseRecord *database, SweepDue *due);

/*
 * Whether runs may start in the database. After ALTER DATABASE with ALLOW_CONNECTIONS false their processes cannot connect, and a template has
 * no scheduler, so runs wait; the launcher is asked to read its list, and makes the scheduler and the consumers leave.
 */
extern bool sweep_due_is_open(void);

/*
 * Lists the waiting runs that may start, in the order in which they are to start: run_id, number of rows of the last run, ctid of the row, the job,
 * its role and priority, whether the run was started before, and its definition. A run whose process was started but has not begun it is still listed
 * as waiting. It does not count as the next run of its role, and must not be started again, because it may have ended meanwhile.
 */
extern uint64 sweep_due_list(TimestampTz now, Oid last_role);

/* Whether the last run of a job took longer than a minute. */
extern SweepStatement sweep_took_long_sql;

/* The time in microseconds from a moment until the scheduler has something to do; NULL = nothing is planned. */
extern SweepStatement sweep_next_wake_sql;

#endif							/* SWEEP_DUE_H */
