/*
 * run.h
 *		One run of one job: begun, executed batch by batch, ended with its outcome.
 */
#ifndef SWEEP_RUN_H
#define SWEEP_RUN_H

#include "base/lease.h"
#include "base/shared.h"
#include "base/sql.h"
#include "engine/step.h"
#include "pure/loop.h"
#include "storage/itemptr.h"

/* What a batch changes in memory; it becomes the state of the run once the batch is committed. */
typedef struct SweepRunState
{
	SweepLoop	loop;
	Jsonb	   *cursor;
	Jsonb	   *detail;
	ItemPointerData tid;		/* where the row of the run is */
	int64		rescued;
	int64		quarantined;
} SweepRunState;

typedef struct SweepRun
{
	/* Definition, as it was when the run was started; see definition.c */
	int64		run_id;
	char	   *job;
	char	   *step_name;
	char	   *batch_sql;
	Jsonb	   *args;			/* of the job, with those of the run merged over them */
	Jsonb	   *run_args;		/* on the way from the scheduler: not merged yet */
	bool		unread;			/* in the scheduler: too large for it, the run reads its definition itself */
	TimestampTz as_of;			/* fixed by the args; 0 = the clock */
	Oid			run_as;
	SweepLimits limits;
	char	   *lease_key;
	int64		lease_ttl_us;	/* 0 = no hard limit */
	bool		waits_for_lease;	/* it was started, not due: put back while somebody else has the lease */
	int32		lock_retries;
	int64		lock_retry_delay_ms;
	bool		flush_batch;	/* each commit waits for the disk */
	bool		flush_may_wait; /* those that other servers take part in do */
	bool		keep_cursor;	/* it begins with that of the run before */
	bool		keep_cursor_always; /* also when that one drained */
	char	   *pick_name;		/* item jobs; NULL = the step finds its rows itself */
	char	   *rescue_name;
	bool		item_per_transaction;
	int32		row_retries;
	bool		has_children;
	int32		buckets;		/* divided jobs; 0 = not divided */
	char	   *bucket_store;
	int64		bucket_recovery_us;
	char	   *bucket_key;
	char	   *buckets_function;	/* NULL = there are always so many */
	int32		shares_left;	/* how many shares follow this one; -1 = not begun as a share */
	SweepExtension extension;	/* where the scheduler has found it */
	int32		wanted_bucket;	/* what the share before it has left unfinished; -1 = any */

	/* State */
	SweepRunState state;
	SweepRunState next;
	bool		begun;
	bool		put_back;		/* somebody else has its lease: it waits on, without this process */
	bool		ended;			/* the outcome is recorded, or there is nothing to record it in */
	bool		gate_closed;	/* the extension was being altered when the last transaction began */
	int64		batch_started_us;
	int64		last_batch_us;
	bool		no_progress;	/* pick has returned an item twice */
	bool		has_quarantine; /* items of the job are in sweep.quarantine */

	/* Outcome */
	const char *status;
	SweepStopReason reason;
	ErrorData  *error;
	char	   *lease_holder;	/* pid of who held the lease, when the run was skipped */

	/* Support */
	SweepStep  *step;
	SweepStep  *pick;
	SweepStep  *rescue;
	struct SweepSeenItems *seen;	/* item jobs: what this run has picked */
	struct SweepShare *share;	/* of a divided job, once it is opened; see share.h */
	SweepSlot  *slot;
	char	   *synchronous_commit; /* of the session */
	int64		statement_deadline_us;	/* 0 = not armed */
	bool		statement_timed_out;
	MemoryContext context;
	MemoryContext batch_context;
} SweepRun;

extern SweepRun *sweep_run_create(MemoryContext parent, SweepSlot *slot);

/* How the run holds its lease: alone, or together with the other shares of its job. */
extern SweepLeaseMode sweep_run_lease_mode(const SweepRun *run);

/*
 * Performs the run, whose lock the process holds: takes the lease, executes its batches, records the
 * outcome and gives lease and lock back. Does not raise for what the job does.
 */
extern void sweep_run_perform(SweepRun *run);

/* The settings a step runs with, for this transaction; a worker has them for good. */
extern void sweep_run_set_environment(void);

/* Waits without a transaction; a request to cancel ends the wait and becomes one to stop the run. */
extern void sweep_run_pause(SweepRun *run, long timeout_ms);

#endif							/* SWEEP_RUN_H */
