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

/* What a batch changes in memory; it becomes the state of the run once the batch is committed. */
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

/* The buckets of a divided job, as a run of it or of its parent sees them; see bucket_run.c. */
typedef struct SweepBuckets
{
	char	   *store_name;
	char	   *function_name;	/* says how many there are just now; NULL = all of the job */
	Jsonb	   *args;			/* for that function */
	char	   *delay;			/* children: interval after which their shares are due */
	SweepStep  *function;
	int32		count;			/* how many there were when the run began */
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
	SweepRunState state;
	SweepRunState next;
	bool		as_user;		/* its role was sweep_user when it began, and it runs while it is */
	uint64		role_checked_at;	/* sweep_role_changes() then; 0 = not yet */
	bool		begun;
	bool		put_back;		/* somebody else has its lock: it waits on, without this process */
	bool		is_share;		/* it was begun as one of those that divide a job */
	bool		ends_apart;		/* its outcome is recorded in a transaction of its own, which sees what others have committed */
	bool		ending;			/* that is the one in progress */
	bool		another_ends;	/* another share of the job, which has the lock for that: nothing was recorded */
	bool		ended;			/* the outcome is recorded, or there is nothing to record it in */
	int64		work_started_us;	/* when its first batch began */
	int64		batch_started_us;
	int64		last_batch_us;
	int64		braked_batches;	/* committed when the last pause began */
	bool		no_progress;	/* pick has returned an item twice, or batches report rows without an end */
	ErrorData  *endless;		/* the error of the second case */
	bool		has_quarantine; /* items of the job are in sweep.quarantine */

	/* Outcome */
	const char *status;
	SweepStopReason reason;
	ErrorData  *error;
	char	   *lock_holder;	/* pid of who held the lock, when the run was skipped */

	/* Support */
	SweepStep  *step;
	SweepStep  *pick;
	SweepStep  *rescue;
	SweepWatch *watch;			/* what it works on, once it may be endless; see watch.c */
	HTAB	   *seen;			/* item jobs: what this run has picked, by hash */
	SweepBuckets *buckets;		/* of a divided job, once it is opened */
	SweepTxnHook *hooks;		/* of its transactions */
	SweepSlot  *slot;
	char	   *synchronous_commit; /* of the session, or the job */
	bool		records_only;	/* the transaction in progress executes nothing of the job */
	SweepMeaning *meaning;		/* with which each call of the job's code begins; NULL = there was none */
	int			awaited;		/* what the commit in progress waits for, see remote.h */
	bool		unreplicated;	/* the last commit that waited for a standby was not confirmed by it */
	bool		environment_failed; /* the settings of the job cannot be set */
	bool		statement_timed_out;
	MemoryContext context;
	MemoryContext batch_context;
} SweepRun;

extern SweepRun *sweep_run_create(MemoryContext parent, SweepSlot *slot);

/* Raises unless current, session and authenticated user are the job's role: nobody runs another's code with his own rights. */
extern void sweep_run_check_role(const SweepRun *run);

/* Raises unless the args of a run are an object, and not too large. */
extern void sweep_run_check_args(Jsonb *args, const char *job);

/* Takes the clock of the run from its args, if they fix it; raises when that is no moment. */
extern void sweep_run_read_clock(SweepRun *run);

/* How the run holds its lock: alone, or together with the other shares of its job. */
static inline SweepLockMode
sweep_run_lock_mode(const SweepRun *run)
{
	return run->bucket_count > 0 ? LOCK_SHARED : LOCK_ALONE;
}

/* Whether the transaction in progress records the outcome. */
static inline bool
sweep_run_is_ending(const SweepRun *run)
{
	return run->reason != SWEEP_STOP_NONE && (run->ending || !run->ends_apart);
}

/* What its loop is limited by. */
extern SweepLimits sweep_run_limits(const SweepRun *run);

/* A request to cancel that is pending becomes one to stop the run. */
extern void sweep_run_note_cancel(SweepRun *run);

#endif							/* SWEEP_RUN_STATE_H */
