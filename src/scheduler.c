/*
 * scheduler.c
 *		One process per database: starts what is due, stops what is overdue.
 *
 * A tick: start a runner for every run that may start, end the records of runs whose process is gone,
 * queue a run for every job that is due and start those, move what has ended to the history. What is due and what may
 * start is decided by SQL functions that take the clock as an argument; this file owns time and
 * processes. It never runs SQL of a user, and its commits do not wait for the disk.
 *
 * Between ticks it sleeps until the next due moment, the end of the next lease or the next try to get a
 * worker, or until its latch is set: by a session that changed a job or asked for a run, by a run that
 * ended. Once a minute it looks anyhow, for a clock that was stepped and a wake-up that was lost with a
 * prepared transaction.
 *
 * Contexts: "scheduler" lives as long as the process, "tick" is reset at the top of each turn.
 */
#include "postgres.h"

#include <signal.h>

#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/ipc.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "consumer_pool.h"
#include "definition.h"
#include "lease.h"
#include "runner.h"
#include "scheduler.h"
#include "sql.h"
#include "worker.h"

#define HEARTBEAT_MS 60000
#define LOCK_TIMEOUT "1s"

/* Pauses between tries to get a worker, and after a tick that failed. */
#define FIRST_PAUSE_MS 1000
#define LONGEST_PAUSE_MS 30000

/* A run that is past its lease is asked again after this, and its process ended after so many times. */
#define WATCHDOG_STEP_MS 1000
#define WATCHDOG_PATIENCE 5

/* A worker that was registered by an earlier scheduler and never came up is given up after this. */
#define ORPHAN_AGE_MS 60000

typedef struct StartableRun
{
	SweepRun	run;			/* its id and definition */
	int64		expected_rows;
} StartableRun;

typedef struct Scheduler
{
	SweepDatabase *entry;
	uint64		generation;
	MemoryContext tick_context;
	BackgroundWorkerHandle **handles;	/* by slot: the runners that we registered */
	int		   *reminders;		/* by slot: how often the watchdog has asked */
	bool		absent;			/* the extension is not, or no longer, there */
	bool		booted;			/* @reboot jobs are queued */
	bool		news;			/* runs may start that could not when the tick began */
	List	   *startable;		/* of StartableRun */
	bool		history_locked;
	bool		tick_failed;
	const char *short_of;		/* the setting that keeps runs waiting, NULL when none waits */
	long		pause_ms;		/* until the next try, 0 when nothing has to be tried again */
	long		behind_ms;		/* pause because what is due stayed due, 0 when it did not */
	int64		age_out_us;		/* monotonic: when to look for history that is too old */
	int64		wake_in_us;		/* until the next due moment; PG_INT64_MAX = none */
} Scheduler;

static Scheduler scheduler;

static void scheduler_tick(void);
static bool transact(SweepWork work);
static void startable_work(void *arg);
static void due_work(void *arg);
static void start_runs(void);
static void note_shortage(const char *reason);
static void end_work(void *arg);
static List *collect_unopened(void);
static void watch_leases(long *wait_ms);
static long time_to_wait(void);
static void leave(int code, Datum arg);

bool
sweep_scheduler_start(Oid database, const char *name)
{
	SweepShared *shared = sweep_shared();
	SweepWorkerArgs args = {.database = database};
	SweepDatabase *entry = NULL;
	char		worker_name[BGW_MAXLEN];

	sweep_shared_lock(LW_EXCLUSIVE);
	for (int i = 0; i < SWEEP_MAX_DATABASES && entry == NULL; i++)
	{
		if (shared->databases[i].state == DATABASE_FREE)
			entry = &shared->databases[i];
	}
	if (entry != NULL)
	{
		memset(entry, 0, sizeof(*entry));
		entry->state = DATABASE_STARTING;
		entry->database = database;
		entry->generation = args.generation = ++shared->generation;
		entry->procno = INVALID_PROC_NUMBER;
		entry->claimed_at = GetCurrentTimestamp();
		args.index = entry - shared->databases;
	}
	sweep_shared_unlock();
	if (entry == NULL)
		return false;
	snprintf(worker_name, sizeof(worker_name), "pg_sweep scheduler %s", name);
	if (sweep_worker_register("pg_sweep scheduler", worker_name, "sweep_scheduler_main", &args, NULL))
		return true;
	sweep_shared_lock(LW_EXCLUSIVE);
	entry->state = DATABASE_FREE;
	sweep_shared_unlock();
	return false;
}

void
sweep_scheduler_main(Datum arg)
{
	SweepWorkerArgs args;
	bool		meant;

	sweep_worker_args(&args);
	scheduler.entry = &sweep_shared()->databases[args.index];
	scheduler.generation = args.generation;
	sweep_shared_lock(LW_EXCLUSIVE);
	meant = scheduler.entry->generation == args.generation && scheduler.entry->state == DATABASE_STARTING &&
		!scheduler.entry->leave;
	if (meant)
	{
		scheduler.entry->state = DATABASE_RUNNING;
		scheduler.entry->pid = MyProcPid;
		scheduler.entry->procno = MyProcNumber;
	}
	else if (scheduler.entry->generation == args.generation)
		scheduler.entry->state = DATABASE_FREE;
	sweep_shared_unlock();
	if (!meant)
		proc_exit(0);
	before_shmem_exit(leave, 0);
	sweep_worker_begin();
	sweep_worker_connect(args.database, InvalidOid);
	sweep_worker_set("synchronous_commit", "off");
	sweep_worker_set("lock_timeout", LOCK_TIMEOUT);
	sweep_worker_set("default_transaction_read_only", "off");
	sweep_worker_set("default_transaction_isolation", "read committed");
	sweep_worker_set("default_transaction_deferrable", "off");
	sweep_worker_set("row_security", "on");
	sweep_worker_set("application_name", "pg_sweep scheduler");

	scheduler.tick_context = AllocSetContextCreate(TopMemoryContext, "pg_sweep tick", ALLOCSET_DEFAULT_SIZES);
	scheduler.handles = MemoryContextAllocZero(TopMemoryContext, sizeof(*scheduler.handles) * sweep_shared()->slot_count);
	scheduler.reminders = MemoryContextAllocZero(TopMemoryContext, sizeof(int) * sweep_shared()->slot_count);
	for (;;)
	{
		MemoryContextReset(scheduler.tick_context);
		MemoryContextSwitchTo(scheduler.tick_context);
		scheduler_tick();
		if (scheduler.absent || scheduler.entry->leave)
		{
			sweep_consumer_pool_dismiss();
			proc_exit(0);
		}
		pgstat_report_activity(STATE_IDLE, NULL);
		sweep_worker_wait(time_to_wait());
	}
}

static void
scheduler_tick(void)
{
	scheduler.tick_failed = false;
	scheduler.wake_in_us = PG_INT64_MAX;
	/* What waits already comes first: somebody may be waiting for it. */
	if (transact(startable_work) && !scheduler.absent)
	{
		start_runs();
		if (transact(due_work) && scheduler.news && transact(startable_work))
			start_runs();
		if (transact(end_work) && !scheduler.absent)
			sweep_consumer_pool_adjust();
	}
	if (scheduler.tick_failed || scheduler.short_of != NULL)
		scheduler.pause_ms = Min(Max(scheduler.pause_ms * 2, FIRST_PAUSE_MS), LONGEST_PAUSE_MS);
	else
		scheduler.pause_ms = 0;
}

/* A failure is logged and ends the tick; a locked table must not end the process. */
static bool
transact(SweepWork work)
{
	ErrorData  *error = NULL;

	if (sweep_sql_transaction(work, NULL, scheduler.tick_context, &error))
		return true;
	scheduler.tick_failed = true;
	if (scheduler.pause_ms == 0)
		ereport(WARNING,
				(errcode(error->sqlerrcode),
				 errmsg("pg_sweep scheduler could not do its work: %s", error->message),
				 errdetail("It tries again every %d seconds at the latest.", LONGEST_PAUSE_MS / 1000)));
	return false;
}

/* Lists what may start. */
static void
startable_work(void *arg)
{
	Datum		now = TimestampTzGetDatum(GetCurrentTimestamp());
	uint64		count;

	scheduler.startable = NIL;
	scheduler.absent = !sweep_sql_open_gate();
	if (scheduler.absent)
		return;
	count = sweep_sql_execute(SWEEP_SQL_STARTABLE_RUNS, &now, NULL);
	for (uint64 i = 0; i < count; i++)
	{
		MemoryContext old = MemoryContextSwitchTo(scheduler.tick_context);
		StartableRun *startable = palloc0(sizeof(StartableRun));

		sweep_sql_row(i);
		startable->run.context = scheduler.tick_context;
		startable->run.run_id = sweep_sql_int64(1);
		startable->expected_rows = sweep_sql_int64(2);
		startable->run.extension = *sweep_sql_extension();
		startable->run.state.tid = sweep_sql_tid(3);
		sweep_definition_read(&startable->run, 4);
		scheduler.startable = lappend(scheduler.startable, startable);
		MemoryContextSwitchTo(old);
	}
}

/* Ends the records of lost runs and queues what is due: either may let runs start. */
static void
due_work(void *arg)
{
	Datum		now = TimestampTzGetDatum(GetCurrentTimestamp());

	scheduler.news = false;
	scheduler.absent = !sweep_sql_open_gate();
	if (scheduler.absent)
		return;
	if (!scheduler.booted)
		(void) sweep_sql_execute(SWEEP_SQL_REBOOT, NULL, NULL);
	(void) sweep_sql_execute(SWEEP_SQL_TICK, &now, NULL);
	scheduler.news = !scheduler.booted || sweep_sql_int32(1) > 0 || sweep_sql_int32(2) > 0;
	scheduler.booted = true;
}

static void
start_runs(void)
{
	const char *reason = NULL;
	ListCell   *cell;

	foreach(cell, scheduler.startable)
	{
		StartableRun *startable = lfirst(cell);
		BackgroundWorkerHandle *handle = NULL;
		MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
		int			slot;
		bool		started = sweep_runner_start(&startable->run, startable->expected_rows, &slot, &handle, &reason);

		MemoryContextSwitchTo(old);
		if (!started)
			break;
		if (slot < 0)
			continue;
		if (scheduler.handles[slot] != NULL)
			pfree(scheduler.handles[slot]);
		scheduler.handles[slot] = handle;
		scheduler.reminders[slot] = 0;
	}
	note_shortage(reason);
}

/* One line when runs begin to wait for a worker, one when they no longer do. */
static void
note_shortage(const char *reason)
{
	if (reason != NULL && (scheduler.short_of == NULL || strcmp(reason, scheduler.short_of) != 0))
		ereport(WARNING,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("pg_sweep runs are waiting for a background worker"),
				 errdetail("All of %s are in use.", reason),
				 errhint("Raise %s, which needs a restart of the server, or spread the schedules.", reason)));
	else if (reason == NULL && scheduler.short_of != NULL)
		ereport(LOG, (errmsg("pg_sweep runs no longer wait for a background worker")));
	scheduler.short_of = reason;
	scheduler.entry->short_of_workers = reason != NULL;
}

/* Records what has ended, keeps the history, and asks when to look again. */
static void
end_work(void *arg)
{
	List	   *unopened = collect_unopened();
	ListCell   *cell;
	Datum		age_out;
	Datum		now;

	scheduler.absent = !sweep_sql_open_gate();
	if (scheduler.absent)
		return;
	foreach(cell, unopened)
	{
		SweepSlot  *slot = lfirst(cell);
		Datum		values[] = {
			Int64GetDatum(slot->run_id), CStringGetTextDatum("08006"),
			PointerGetDatum(cstring_to_text("background worker ended before it began the run\n"
											"HINT: The server log says why; the role must be able to connect to the database."))
		};

		(void) sweep_sql_execute(SWEEP_SQL_FAIL_START, values,
								 (pg_atomic_read_u32(&slot->stop_request) & SWEEP_STOP_REQUEST_CANCEL) != 0 ? " nn" : "   ");
		sweep_shared_lock(LW_EXCLUSIVE);
		slot->state = SLOT_FREE;
		sweep_shared_unlock();
	}
	age_out = BoolGetDatum(sweep_monotonic_us() >= scheduler.age_out_us);
	if (DatumGetBool(age_out))
		scheduler.age_out_us = sweep_monotonic_us() + HEARTBEAT_MS * INT64CONST(1000);
	(void) sweep_sql_execute(SWEEP_SQL_ARCHIVE, &age_out, NULL);
	scheduler.history_locked = sweep_sql_is_null(2);
	sweep_consumer_pool_read();
	now = TimestampTzGetDatum(GetCurrentTimestamp());
	(void) sweep_sql_execute(SWEEP_SQL_NEXT_WAKE, &now, NULL);
	if (!sweep_sql_is_null(1))
		scheduler.wake_in_us = sweep_sql_int64(1);
	/* A job that is locked by somebody stays due: that must not become a spin. */
	scheduler.behind_ms = scheduler.wake_in_us > 0 ? 0 : Min(Max(scheduler.behind_ms * 2, 1), FIRST_PAUSE_MS);
}

/* Slots of runs whose process ended before it began, or never came up. */
static List *
collect_unopened(void)
{
	SweepShared *shared = sweep_shared();
	List	   *unopened = NIL;

	sweep_shared_lock(LW_EXCLUSIVE);
	for (int i = 0; i < shared->slot_count; i++)
	{
		SweepSlot  *slot = &shared->slots[i];
		pid_t		pid;

		if (slot->database != MyDatabaseId)
			continue;
		if (slot->state == SLOT_STARTING &&
			(scheduler.handles[i] != NULL ?
			 GetBackgroundWorkerPid(scheduler.handles[i], &pid) == BGWH_STOPPED :
			 TimestampDifferenceExceeds(slot->claimed_at, GetCurrentTimestamp(), ORPHAN_AGE_MS)))
			slot->state = SLOT_UNOPENED;
		if (slot->state == SLOT_UNOPENED)
			unopened = lappend(unopened, slot);
	}
	sweep_shared_unlock();
	return unopened;
}

/*
 * The watchdog: a run stops itself when its lease ends, unless its own timer or its SQL fails to. It is
 * asked again each second and at last its process is ended, never killed.
 */
static void
watch_leases(long *wait_ms)
{
	SweepShared *shared = sweep_shared();
	int64		now_us = sweep_monotonic_us();

	sweep_shared_lock(LW_SHARED);
	for (int i = 0; i < shared->slot_count; i++)
	{
		SweepSlot  *slot = &shared->slots[i];
		int64		deadline_us = (int64) pg_atomic_read_u64(&slot->lease_deadline_us);

		if (slot->state != SLOT_RUNNING || slot->database != MyDatabaseId || deadline_us == 0)
			continue;
		deadline_us += (int64) scheduler.reminders[i] * WATCHDOG_STEP_MS * 1000;
		if (now_us >= deadline_us && slot->pid != 0)
		{
			scheduler.reminders[i]++;
			pg_atomic_fetch_or_u32(&slot->stop_request, SWEEP_STOP_REQUEST_LEASE);
			kill(slot->pid, slot->worker && scheduler.reminders[i] > WATCHDOG_PATIENCE ? SIGTERM : SIGINT);
			deadline_us = now_us + WATCHDOG_STEP_MS * 1000;
		}
		*wait_ms = Min(*wait_ms, (long) ((deadline_us - now_us) / 1000 + 1));
	}
	sweep_shared_unlock();
}

static long
time_to_wait(void)
{
	long		wait_ms = HEARTBEAT_MS;

	if (scheduler.wake_in_us < (int64) HEARTBEAT_MS * 1000)
		wait_ms = Max((long) (scheduler.wake_in_us / 1000 + 1), scheduler.behind_ms);
	if (scheduler.pause_ms > 0)
		wait_ms = Min(wait_ms, scheduler.pause_ms);
	if (scheduler.tick_failed)
		wait_ms = scheduler.pause_ms;
	if (scheduler.history_locked)
		wait_ms = Min(wait_ms, LONGEST_PAUSE_MS);
	if (sweep_consumer_pool_pause() >= 0)
		wait_ms = Min(wait_ms, sweep_consumer_pool_pause());
	watch_leases(&wait_ms);
	return wait_ms;
}

static void
leave(int code, Datum arg)
{
	sweep_shared_lock(LW_EXCLUSIVE);
	if (scheduler.entry->generation == scheduler.generation)
		scheduler.entry->state = scheduler.absent ? DATABASE_ABSENT : DATABASE_FREE;
	sweep_shared_unlock();
	ConditionVariableBroadcast(&sweep_shared()->changed);
	sweep_shared_wake_launcher(false);
}
