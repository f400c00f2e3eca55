/*
 * run_state.h
 *		One run of one job, as all files of the engine see it.
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

/* Changed by a batch in memory; it becomes the state of the run once the batch is committed. */
typedef struct SweepRunState
{
	SweepLoop	loop;
	Jsonb	   *cursor;
	Jsonb	   *detail;
	ItemPointerData tid;		/* where the row of the run is */
	int64		rescued;
	int64		quarantined;
	int64		braked_us;		/* spent between batches on purpose */
	SweepRunaway runaway;
} SweepRunState;

/* The buckets of a divided job, for a run of it or of its parent; see bucket_run.c. */
typedef struct SweepBuckets
{
	char	   *store_name;
	char	   *function_name;	/* returns their current number; NULL = all of the job */
	Jsonb	   *args;			/* for that function */
	char	   *delay;			/* children: interval after which their shares are due */
	SweepStep  *function;
	int32		count;			/* when the run began */
	SweepFence	fence;			/* store and request; of the run's own job, its bucket as well */
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

/* The statement timeout of a worker, for the code of the job that is or was executed last. */
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
	RUN_PUT_BACK,				/* its row waits on, for another process: another session has the lock */
	RUN_BEGUN,					/* its row says that it is in progress, or has ended before it was */
	RUN_ENDING,					/* its last batch is committed, its outcome is being recorded */
	RUN_ENDED,					/* the outcome is recorded, or there is no row for it */
} SweepRunStage;

/* The current transaction of a run. */
typedef struct SweepRunTransaction
{
	bool		records_only;	/* it executes nothing of the job */
	bool		another_ends;	/* it has recorded nothing: another share of the job is ending */
	int			awaited;		/* the confirmation that its commit waits for, see remote.h */
} SweepRunTransaction;

/* When the run did what; monotonic clock. */
typedef struct SweepRunTimes
{
	int64		work_started_us;	/* its first batch */
	int64		batch_started_us;
	int64		last_batch_us;	/* duration */
	int64		braked_batches;	/* number of batches when the last pause began */
} SweepRunTimes;

typedef struct SweepRun
{
	/* Definition, as it was when the run was started; see definition.c */
	int64		run_id;
	char	   *job;
	SWEEP_JOB_SETTINGS(SWEEP_DECLARE_SETTING)
	SWEEP_RUN_SETTINGS(SWEEP_DECLARE_SETTING)
	SweepExtension extension;	/* where the scheduler has found it */
	bool		unread;			/* in the scheduler: too large for it, the run reads its definition itself */
	TimestampTz as_of;			/* fixed by the args; 0 = the clock */

	/* State */
	SweepRunStage stage;
	SweepRunState state;
	SweepRunState next;
	SweepRunTransaction txn;
	SweepRunTimes times;
	bool		as_user;		/* its role was sweep_user when it began, and it runs while it is */
	uint64		role_checked_at;	/* sweep_role_changes() then; 0 = not yet */
	int			conflicts;		/* tries of a batch of one row that failed by other transactions, in a row */
	bool		is_share;		/* it was begun as a share of a divided job */
	bool		ends_apart;		/* its outcome is recorded in a transaction of its own, which sees what others have committed */
	bool		no_progress;	/* pick has returned an item twice, or batches report rows without an end */
	ErrorData  *endless;		/* the error of the second case */
	bool		has_quarantine; /* items of the job are in sweep.quarantine */

	/* Outcome */
	const char *status;
	SweepStopReason reason;
	ErrorData  *error;
	char	   *lock_holder;	/* pid of the process that held the lock, when the run was skipped */
	bool		unreplicated;	/* the last commit that waited for a standby was not confirmed by it */

	/* Support */
	SweepLock	lock;			/* of the job, or of its shares together */
	SweepStep  *step;
	SweepStep  *pick;
	SweepStep  *rescue;
	SweepWatch *watch;			/* what it works on, once it may be endless; see watch.c */
	HTAB	   *seen;			/* item jobs: hashes of the items that this run has picked */
	SweepBuckets *buckets;		/* of a divided job, once it is opened */
	SweepTxnHook *hooks;		/* of its transactions */
	SweepSlot  *slot;
	char	   *synchronous_commit; /* of the session, or the job */
	SweepMeaning *meaning;		/* with which each call of the job's code begins; NULL = there was none */
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
