/*
 * run_state.h
 *		The data of one run, which all files of the engine share.
 */
#ifndef SWEEP_RUN_STATE_H
#define SWEEP_RUN_STATE_H

#include "base/door.h"
#include "base/extension.h"
#include "job/job_settings.h"
#include "base/lock.h"
#include "base/shared.h"
#include "base/sql.h"
#include "bucket/bucket.h"
#include "engine/step.h"
#include "pure/loop.h"
#include "pure/runaway.h"
#include "storage/itemptr.h"
#include "utils/hsearch.h"

/* State that a batch changes in memory; it becomes the state of the run when the batch is committed. */
typedef struct SweepRunState
{
	SweepLoop	loop;
	Jsonb	   *cursor;
	Jsonb	   *detail;
	ItemPointerData tid;		/* place of the row of the run */
	int64		rescued;
	int64		quarantined;
	int64		braked_us;		/* time of all pauses between batches */
	SweepRunaway runaway;
} SweepRunState;

/* The buckets of a divided job, for a run of it or of its parent; see bucket_run.c. */
typedef struct SweepBuckets
{
	char	   *store_name;
	char	   *function_name;	/* returns their current number; NULL = the job has a fixed number */
	Jsonb	   *args;			/* args for that function */
	char	   *delay;			/* children: interval after which their shares are due */
	SweepStep  *function;
	int32		count;			/* their number when the run began */
	SweepFence	fence;			/* store and request; for the run's own job also its bucket */
} SweepBuckets;

/* The C type of each kind of setting. */
#define SWEEP_TYPE_TEXT char *
#define SWEEP_TYPE_JSONB Jsonb *
#define SWEEP_TYPE_INT32 int32
#define SWEEP_TYPE_INT32_OR(if_null) int32
#define SWEEP_TYPE_INT64 int64
#define SWEEP_TYPE_INTERVAL(if_null) int64
#define SWEEP_TYPE_BOOL bool
#define SWEEP_TYPE_ROLE Oid
#define SWEEP_TYPE_IS_NULL bool
#define SWEEP_TYPE_IS(word) bool
#define SWEEP_DECLARE_SETTING(kind, member, ...) SWEEP_TYPE_##kind member;

typedef struct SweepWatch SweepWatch;

/* State of the statement timeout of a worker, for the latest call of the job's code. */
typedef enum SweepStatementTimer
{
	STATEMENT_UNTIMED,
	STATEMENT_TIMED,			/* the timer is armed */
	STATEMENT_TIMED_OUT,		/* its time had passed when it was disarmed, so that it may be what ended the call */
} SweepStatementTimer;

/* How far a run has come. */
typedef enum SweepRunStage
{
	RUN_WAITING,				/* its row waits */
	RUN_PUT_BACK,				/* its row still waits, for another process, because the lock is held */
	RUN_BEGUN,					/* its row says that it is in progress, or that it has ended without a begin */
	RUN_ENDING,					/* its last batch is committed, its outcome is being recorded */
	RUN_ENDED,					/* the outcome is recorded, or there is no row to record it in */
} SweepRunStage;

/* The current transaction of a run. */
typedef struct SweepRunTransaction
{
	bool		records_only;	/* it executes no code of the job */
	bool		another_ends;	/* it recorded nothing, because another share of the job is ending */
	int			awaited;		/* the confirmation that its commit waits for, see remote.h */
} SweepRunTransaction;

/* Times of the run, by the monotonic clock. */
typedef struct SweepRunTimes
{
	int64		work_started_us;	/* begin of its first batch */
	int64		batch_started_us;
	int64		last_batch_us;	/* duration */
	int64		braked_batches;	/* number of batches when the last pause began */
} SweepRunTimes;

typedef struct SweepRun
{
	/* Definition at the start of the run; see definition.c */
	int64		run_id;
	char	   *job;
	SWEEP_JOB_SETTINGS(SWEEP_DECLARE_SETTING)
	SWEEP_RUN_SETTINGS(SWEEP_DECLARE_SETTING)
	SweepExtension extension;	/* OIDs that the scheduler has found */
	bool		unread;			/* in the scheduler: the definition is too large for the slot, and the run reads it itself */
	TimestampTz as_of;			/* fixed by the args; 0 = the clock */

	/* State */
	SweepRunStage stage;
	SweepRunState state;
	SweepRunState next;
	SweepRunTransaction txn;
	SweepRunTimes times;
	bool		as_user;		/* its role was a member of sweep_user at the begin, and must remain one */
	uint64		role_checked_at;	/* sweep_role_changes() at the last check of the role; 0 = not yet */
	int			conflicts;		/* successive tries of a batch of one row that failed by conflicts */
	bool		is_share;		/* it was begun as a share of a divided job */
	bool		ends_apart;		/* its outcome is recorded in a transaction of its own, which sees all earlier commits */
	bool		no_progress;	/* pick has returned an item twice, or batches report rows without an end */
	ErrorData  *endless;		/* the error for batches without an end */
	bool		has_quarantine; /* items of the job are in sweep.quarantine */

	/* Outcome */
	const char *status;
	SweepStopReason reason;
	ErrorData  *error;
	char	   *lock_holder;	/* pid of the process that held the lock, when the run was skipped */
	bool		unreplicated;	/* the last commit that waited for a standby was not confirmed by it */

	/* Support */
	SweepLock	lock;			/* of the job; shared by its shares */
	SweepStep  *step;
	SweepStep  *pick;
	SweepStep  *rescue;
	SweepWatch *watch;			/* its tables, once it may be endless; see watch.c */
	HTAB	   *seen;			/* item jobs: hashes of the items that this run has picked */
	SweepBuckets *buckets;		/* of a divided job, once it is opened */
	SweepTxnHook *hooks;		/* of its transactions */
	SweepSlot  *slot;
	char	   *synchronous_commit; /* of the session, or the job */
	SweepMeaning *meaning;		/* session state that is restored before each call of the job's code; NULL = no call yet */
	bool		environment_failed; /* the settings of the job cannot be set */
	SweepStatementTimer statement_timer;
	MemoryContext context;
	MemoryContext batch_context;
} SweepRun;

/* Whether the transaction in progress records the outcome. */
static inline bool
sweep_run_is_ending(const SweepRun *run)
{
	return run->reason != SWEEP_STOP_NONE && (run->stage == RUN_ENDING || !run->ends_apart);
}

#endif							/* SWEEP_RUN_STATE_H */
