/*
 * shared.h
 *		Shared memory: one entry per scheduler, one slot per run in progress and per process of a consumer.
 *
 * Without a preloaded library there is no shared memory: then sweep_shared_exists() is false, a run works with a slot
 * of its own process, and no other process sees its progress.
 */
#ifndef SWEEP_SHARED_H
#define SWEEP_SHARED_H

#include "base/clock.h"
#include "base/compat.h"
#include "base/quota.h"
#include "datatype/timestamp.h"
#include "miscadmin.h"
#include "storage/condition_variable.h"
#include "storage/proc.h"
#include "storage/spin.h"

/* Number of flags that databases without a scheduler share, by the hash of their OID. */
#define SWEEP_ASKED_BITS 4096

/* A scheduler waits for a moment that is nearer than this, in us; otherwise it leaves. */
#define SWEEP_STAY_US INT64CONST(60000000)

#define SWEEP_JOB_NAME_SIZE 64
#define SWEEP_DEFINITION_SIZE 4096
#define SWEEP_CONSUMER_ERROR_SIZE 512

/* Reasons for a request to stop a run, as bits. A consumer is only requested to leave after its turn. */
#define SWEEP_STOP_REQUEST_CANCEL	0x01
#define SWEEP_STOP_REQUEST_TIMEOUT	0x02

typedef enum SweepSlotState
{
	SLOT_FREE,					/* next: WANTED, STARTING (scheduler), RUNNING (a session) */
	SLOT_WANTED,				/* the launcher is to start a worker for it; next: STARTING (launcher), FREE, UNOPENED (launcher, DROP DATABASE) */
	SLOT_STARTING,				/* a worker is registered or woken for it; next: RUNNING, UNOPENED, FREE */
	SLOT_RUNNING,				/* its process is attached; next: FREE, IDLE, UNOPENED */
	SLOT_UNOPENED,				/* its process ended before it began the run; next: FREE (scheduler) */
	SLOT_IDLE,					/* its worker waits for another run of the role, see reuse.c; next: STARTING (scheduler), FREE */
} SweepSlotState;

typedef enum SweepPhase
{
	PHASE_STARTING,
	PHASE_LOCK,				/* trying to take the lock */
	PHASE_ESTIMATE,				/* executing the estimate */
	PHASE_STEP,					/* in a batch */
	PHASE_COMMIT,				/* committing it */
	PHASE_STANDBY,				/* its commit waits for a synchronous standby */
	PHASE_BRAKED,				/* in a pause between two batches */
	PHASE_ENDING,
} SweepPhase;

/* The columns of sweep.running; guarded by the mutex of the slot. */
typedef struct SweepLiveProgress
{
	SweepPhase	phase;
	int64		batches;
	int64		rows;
	int64		last_batch_us;
	int64		braked_us;		/* without the pause in progress */
	int64		braked_since_us;	/* begin of the pause in progress */
	int32		batch_size;		/* 0 = there are no batches */
	int64		estimated_rows; /* -1 = not known; before started_at the rows of the last run, 0 = not known */
	double		rows_per_second;	/* until the last commit */
	TimestampTz eta;			/* estimate of the last commit; 0 = not known */
	TimestampTz started_at;
	TimestampTz deadline;		/* the earlier one of stop_after and timeout; 0 = none */
} SweepLiveProgress;

typedef struct SweepSlot
{
	/* Guarded by the lock: shared to read, exclusive to change. */
	SweepSlotState state;
	bool		worker;			/* a background worker, not a session */
	bool		launched;		/* started by the launcher, which checks whether it comes up */
	uint64		generation;		/* changes with each claim, so that a slot is not mistaken for its successor */
	Oid			database;
	Oid			role;			/* of the job */
	int64		run_id;
	int32		consumer_id;	/* 0 = the slot is that of a run; the states of a consumer are free, starting, running */
	int64		follower;		/* run that this process performs next; 0 = none */
	int			pid;			/* 0 until the process is attached */
	ProcNumber	procno;			/* of the process; INVALID_PROC_NUMBER until then, except for a reused worker */
	bool		handed_over;	/* the definition is written: the idle worker may take the run */
	bool		put_back;		/* written by the run: it has not begun, and goes on waiting */
	bool		waits_on;		/* the idle worker has ended before it took the run, which goes on waiting */
	int64		claimed_us;
	char		job[SWEEP_JOB_NAME_SIZE];
	/* Set by any process, read by the run, or by the consumer between two turns. */
	pg_atomic_uint32 stop_request;
	/* CLOCK_MONOTONIC in microseconds at which the timeout has passed; 0 = never. */
	pg_atomic_uint64 timeout_deadline_us;
	int			reminders;		/* requests to end since then; only the launcher counts them */
	slock_t		mutex;
	SweepLiveProgress live;		/* of a consumer only started_at */
	/* The columns of sweep.consumers, see last_error; guarded by the mutex. */
	int64		handled;
	int64		failed;
	/* Written before the worker is registered, read by the worker, see definition.c; size 0 = the definition did not fit. */
	Size		definition_size;
	union
	{
		char		definition[SWEEP_DEFINITION_SIZE];
		char		last_error[SWEEP_CONSUMER_ERROR_SIZE];
	};
} SweepSlot;

typedef enum SweepDatabaseState
{
	DATABASE_FREE,				/* entry not used; next: STARTING (launcher) */
	DATABASE_STARTING,			/* scheduler registered; next: RUNNING, FREE */
	DATABASE_RUNNING,			/* scheduler attached; next: LEFT */
	DATABASE_LEFT,				/* scheduler has left; next: FREE (launcher, which reads next_at and record) */
} SweepDatabaseState;

/* Knowledge that a scheduler of a database hands to the next one; the launcher keeps it in between. All zero: nothing is known. */
typedef struct SweepDatabaseRecord
{
	bool		booted;			/* @reboot jobs are queued */
	bool		runs_counted;	/* crash notes of runs are read */
	bool		consumers_counted;	/* crash notes of consumers are read */
	long		pause_ms;		/* last pause after a tick that failed, or while runs wait for a process */
	SweepShortage runs;			/* shortages that were logged, of runs and consumers */
	SweepShortage consumers;
	int64		minute_us;		/* monotonic: next time for the work of once a minute */
	int64		ahead_us;		/* the clock less the monotonic one, as last seen; 0 = never */
	Oid			last_role;		/* role whose run was started last */
} SweepDatabaseRecord;

typedef struct SweepDatabase
{
	SweepDatabaseState state;
	Oid			database;
	uint64		generation;
	ProcNumber	procno;
	pg_atomic_uint32 asked;		/* OID of the database: the scheduler is asked for; 0: it is not, cleared at each tick */
	bool		ended;			/* a run has ended; cleared at each tick */
	bool		news;			/* a queue has a notification to send; cleared before that */
	bool		leave;			/* the scheduler is asked to end */
	SweepRefusal short_of;		/* limit that its runs wait for; any run may end that; written by the scheduler */
	bool		crowded;		/* more runs wait than may be in progress; written by the scheduler */
	int64		claimed_us;
	TimestampTz next_at;		/* LEFT: when the database is due; DT_NOBEGIN = not known, DT_NOEND = when asked */
	SweepDatabaseRecord record; /* RUNNING: the scheduler's own */
} SweepDatabase;

typedef struct SweepShared
{
	uint64		generation;
	ProcNumber	launcher;		/* INVALID_PROC_NUMBER when there is none */
	int64		launcher_left_us;	/* monotonic: since when there is no launcher */
	pg_atomic_uint64 runs_said_us;	/* see SweepCapacity; also for schedulers that cannot be started */
	pg_atomic_uint64 consumers_said_us;
	bool		rescan;			/* the launcher is asked to read the list of databases again */
	bool		line;			/* databases wait for a scheduler: existing ones leave after a tick; by the launcher */
	bool		left_short;		/* schedulers have left whose runs wait for others to end; by the launcher */
	bool		released;		/* a run has ended since; cleared by the launcher */
	ConditionVariable changed;	/* a run has ended, or a scheduler has left */
	pg_atomic_uint32 asked[SWEEP_ASKED_BITS / 32];
	pg_atomic_uint32 prepared[SWEEP_ASKED_BITS / 32];	/* transactions prepared since server start must ask at their end */
	int			slot_count;
	SweepSlot	slots[FLEXIBLE_ARRAY_MEMBER];
} SweepShared;

/* Request and initialize the memory, only while the server starts, see pg_sweep.c. */
extern void sweep_shared_request(void);
extern void sweep_shared_initialize(void);
extern bool sweep_shared_exists(void);
extern SweepShared *sweep_shared(void);
extern void sweep_shared_lock(LWLockMode mode);
extern void sweep_shared_unlock(void);

/* The run or the consumer that a slot is claimed for. */
typedef struct SweepClaimant
{
	Oid			role;			/* of the job */
	bool		unlimited;		/* see sweep_quota_is_unlimited */
	bool		worker;			/* in the background, not in a session */
	bool		preferred;		/* its priority is above 0: it may use reserved slots */
	int64		run_id;
	int32		consumer_id;	/* 0 = a run */
	const char *job;			/* or queue */
} SweepClaimant;

/*
 * Claims a slot for a run or a consumer of this database. Background runs are bounded by pg_sweep.max_running_jobs, consumers by
 * pg_sweep.max_consumers, and sessions by their own number, so that none can take the slots of the others. NULL when no slot is left (*refusal says
 * why), and also when the run has a slot already, or the scheduler is to leave. If the slot has a proc number, it has an
 * idle worker. The caller has the lock.
 */
extern SweepSlot *sweep_shared_claim(const SweepClaimant *claimant, SweepRefusal *refusal);

/* Takes back a claim whose process could not be started. No process is woken, because no process has become free. The caller has the lock. */
extern void sweep_shared_unclaim(SweepSlot *slot);

/* Attaches a worker to the slot that it was started for; false when the slot has another owner now. */
extern bool sweep_shared_attach(SweepSlot *slot, uint64 generation);

/*
 * Frees the slot and wakes the processes that wait for a run or a consumer to end. "opened": the run had begun; "stays": the worker
 * of that run waits for another one.
 */
extern void sweep_shared_release(SweepSlot *slot, bool opened, bool stays);

/* Called when a run or a consumer in the database has ended, or (InvalidOid) a scheduler has left. Wakes the processes that wait for that. */
extern void sweep_shared_note_end(Oid database);

/* Keeps the next share for the process of the slot; called before other processes can see that run. 0: any process may have it. */
extern void sweep_shared_keep_follower(SweepSlot *slot, int64 run_id);

/* Ends the run of the slot and gives the slot to its follower, which must exist; false when other runs or databases wait for a process. */
extern bool sweep_shared_go_on(SweepSlot *slot);

/* Copies the slot of a run or a consumer; false when this database does not use it, or there is no slot of that number. */
extern bool sweep_shared_look(int index, SweepSlot *copy);

/* Whether the slot has a run or a consumer that is in progress or is to begin; the caller has the lock. */
static inline bool
sweep_shared_is_claimed(const SweepSlot *slot)
{
	return slot->state == SLOT_WANTED || slot->state == SLOT_STARTING || slot->state == SLOT_RUNNING;
}

/* Whether the slot is that of a run of this database; the caller has the lock. */
static inline bool
sweep_shared_has_run(const SweepSlot *slot)
{
	return slot->state != SLOT_FREE && slot->state != SLOT_IDLE && slot->consumer_id == 0 && slot->database == MyDatabaseId;
}

/* Whether the slot has the process of a consumer that was not asked to leave; the caller has the lock. */
static inline bool
sweep_shared_has_consumer(SweepSlot *slot)
{
	return slot->consumer_id != 0 && slot->state != SLOT_FREE && pg_atomic_read_u32(&slot->stop_request) == 0;
}

/* Whether a database has processes of consumers, or such that have not attached yet. */
extern bool sweep_shared_any_consumer(Oid database, bool starting);

/* Asks processes of a database to leave: "surplus" ones of a consumer, or of all consumers if the id is negative. The caller has the lock. */
extern void sweep_shared_dismiss(Oid database, int32 consumer_id, int surplus);

/* The number of further runs without preference that pg_sweep.max_running_jobs allows, and the limit that refuses a run. The caller has the lock. */
extern int	sweep_shared_room_for_runs(Oid role, bool unlimited);
extern SweepRefusal sweep_shared_refuses_run(Oid role, bool unlimited, bool preferred);

/* The entries of databases: as many as there can be background workers. */
extern int	sweep_shared_database_count(void);
extern SweepDatabase *sweep_shared_database(int index);

/* Wakes a process by its number; harmless when it has ended. */
extern void sweep_shared_wake(ProcNumber procno);
extern void sweep_shared_wake_launcher(bool rescan);

/* The entry of a database with a scheduler that has not left, or NULL; the caller has the lock. */
extern SweepDatabase *sweep_shared_find_database(Oid database);

/* Whether the scheduler of this entry is to leave because databases or runs wait for a process; the caller has the lock. */
extern bool sweep_shared_gives_way(const SweepDatabase *entry);
extern void sweep_shared_wake_schedulers(void);

/* Read and set a flag of an entry, under the lock. */
extern bool sweep_shared_is_set(const bool *flag);
extern void sweep_shared_set(bool *flag, bool value);

/* Asks for a scheduler in the database, see ask.h: sets the flag. The caller has the lock, and wakes the returned process afterwards. */
extern ProcNumber sweep_shared_ask(Oid database);

/* The number of the flag of a database without a scheduler, below SWEEP_ASKED_BITS. */
extern uint32 sweep_shared_bit(Oid database);

/* Whether the scheduler of an entry was asked; without the lock. */
static inline bool
sweep_shared_is_asked(SweepDatabase *entry)
{
	return pg_atomic_read_u32(&entry->asked) != 0;
}

#endif							/* SWEEP_SHARED_H */
