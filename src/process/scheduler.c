/*
 * scheduler.c
 *		One process per database: starts what is due.
 *
 * A tick sends notifications, starts a runner for every run that may start, ends the records of runs whose process is gone, queues a
 * run for every job that is due and starts these runs, and moves ended runs to the history. SQL functions that take the clock as an
 * argument decide which jobs are due and which runs may start. No SQL of a user runs here, and no commit waits for the disk.
 *
 * Between ticks the scheduler sleeps until the next due moment or the next try to get a worker, or until it is asked, see ask.c. When
 * nothing is due within a minute, or other databases wait for a scheduler, it leaves its next moment to the launcher. When no process is
 * free for a run, and no other run is likely to end soon, it ends to free its own process, in which the launcher then starts the run.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "pgstat.h"
#include "storage/ipc.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/lock.h"
#include "base/processes.h"
#include "base/settings.h"
#include "base/shared.h"
#include "base/txn.h"
#include "base/worker.h"
#include "engine/definition.h"
#include "engine/run_row.h"
#include "process/consumer_pool.h"
#include "process/crash_note.h"
#include "process/due.h"
#include "process/notify.h"
#include "process/pool.h"
#include "process/runner.h"

/* Longest time until the next tick, in ms, so that old rows are pruned. */
#define LONGEST_REST_MS 86400000
#define LOCK_TIMEOUT "1s"

/* Pause of a tick after it has started runs, and longest time for which it starts the runs of one list, in ms. */
#define START_PAUSE_MS 5
#define START_MS 100

/* Time for which a scheduler stays after it has started a run or was asked, if no other database waits: another run may follow. */
#define LINGER_US INT64CONST(1000000)

/* Number of runs that sweep._archive_runs moves to the history at once: after so many there may be more. */
#define MANY_ENDED 100

typedef struct StartableRun
{
	SweepRun	run;			/* its id and definition */
	int64		expected_rows;
	char	   *role_name;
	bool		unlimited;		/* see quota.h */
	bool		preferred;		/* its priority is above 0 */
	bool		takes_long;		/* its last run did: it does not get the last process */
} StartableRun;

typedef struct Scheduler
{
	SweepDatabase *entry;
	uint64		generation;
	MemoryContext tick_context;
	SweepPool	runners;
	bool		absent;			/* the extension is not, or no longer, there */
	SweepDue	due;			/* what was queued in this tick */
	TimestampTz now;			/* the one clock of the tick */
	List	   *startable;		/* of StartableRun */
	bool		lock_held;		/* a run waits for a lock that another process has */
	long		lock_pause_ms;	/* the last pause because of that */
	bool		waits_on;		/* a run that was started waits again */
	bool		left_run;		/* the launcher starts a run in place of this process */
	bool		history_locked;
	bool		tick_failed;
	SweepRefusal short_of;		/* limit that keeps runs waiting */
	SweepDatabaseRecord *record;	/* its pause_ms is 0 when nothing has to be tried again */
	long		starting_ms;	/* time until the first starting process of a run is given up */
	long		behind_ms;		/* pause because a due job stayed due, 0 when none did */
	int64		wake_in_us;		/* until the next due moment; PG_INT64_MAX = none */
	int64		linger_until_us;
} Scheduler;

static Scheduler scheduler;

extern PGDLLEXPORT void sweep_scheduler_main(Datum arg);

static void scheduler_tick(void);
static bool transact(SweepWork work);
static void startable_work(void *arg);
static void start_runs(void);
static bool start_listed(SweepPool *pool, SweepRefusal *shortage, const char **role_name);
static void note_long(void *arg);
static void note_shortage(SweepRefusal refusal, const char *role_name);
static void end_work(void *arg);
static long time_to_wait(void);
static bool may_leave(long wait_ms);
static void leave_entry(TimestampTz next_at);
static void rest(long timeout_ms);
static bool is_called(void);
static void leave(int code, Datum arg);

void
sweep_scheduler_main(Datum arg)
{
	SweepWorkerArgs args;
	bool		meant;
	long		wait_ms;

	sweep_worker_args(&args);
	scheduler.entry = sweep_shared_database(args.index);
	scheduler.record = &scheduler.entry->record;
	scheduler.generation = args.generation;
	sweep_shared_lock(LW_EXCLUSIVE);
	meant = scheduler.entry->generation == args.generation && scheduler.entry->state == DATABASE_STARTING &&
		!scheduler.entry->leave;
	if (meant)
	{
		scheduler.entry->state = DATABASE_RUNNING;
		scheduler.entry->procno = MyProcNumber;
	}
	else if (scheduler.entry->generation == args.generation)
		leave_entry(GetCurrentTimestamp());
	sweep_shared_unlock();
	if (!meant)
		proc_exit(0);
	before_shmem_exit(leave, 0);
	sweep_worker_begin();
	sweep_worker_connect_engine(args.database);
	sweep_worker_set("synchronous_commit", "off");
	sweep_worker_set("lock_timeout", LOCK_TIMEOUT);
	/*
	 * The plans live as long as the process, and most are made while the tables are nearly empty. Generic plans are
	 * forced, because custom planning takes longer than executing the statements.
	 */
	sweep_worker_set("enable_seqscan", "off");
	sweep_worker_set("plan_cache_mode", "force_generic_plan");
	sweep_worker_set("application_name", "pg_sweep scheduler");

	scheduler.tick_context = AllocSetContextCreate(TopMemoryContext, "pg_sweep tick", ALLOCSET_DEFAULT_SIZES);
	sweep_pool_prepare(&scheduler.runners, sweep_shared()->slot_count);
	for (;;)
	{
		MemoryContextReset(scheduler.tick_context);
		MemoryContextSwitchTo(scheduler.tick_context);
		scheduler_tick();
		pgstat_report_activity(STATE_IDLE, NULL);
		wait_ms = time_to_wait();
		if (may_leave(wait_ms))
			proc_exit(0);
		rest(wait_ms * INT64CONST(1000) >= SWEEP_STAY_US ? LINGER_US / 1000 : wait_ms);
	}
}

static void
scheduler_tick(void)
{
	scheduler.tick_failed = false;
	scheduler.lock_held = scheduler.waits_on = scheduler.left_run = false;
	scheduler.wake_in_us = PG_INT64_MAX;
	scheduler.starting_ms = LONGEST_REST_MS;
	sweep_shared_lock(LW_EXCLUSIVE);
	if (sweep_shared_is_asked(scheduler.entry))
		scheduler.linger_until_us = sweep_monotonic_us() + LINGER_US;
	pg_atomic_write_u32(&scheduler.entry->asked, 0);
	/* The background worker of a run that has ended is not free at once, so another try follows soon after a refusal. */
	if (scheduler.entry->ended && scheduler.short_of != REFUSED_NOT)
		scheduler.record->pause_ms = 0;
	scheduler.entry->ended = scheduler.entry->news = false;
	sweep_shared_unlock();

	/*
	 * The clock is read once, after the flag is cleared. If a session queues a run that is due later, it sets the
	 * flag again, or the tick sees the run when it asks when to wake. If that query used a later clock, a run that
	 * fell due in between would be neither started nor waited for.
	 */
	scheduler.now = GetCurrentTimestamp();
	(void) sweep_notify_send(LOCK_TIMEOUT);
	/* Waiting runs are started before due jobs are queued, because sessions may be waiting for them. */
	if (sweep_crash_note_count(NOTE_OF_RUN, transact, &scheduler.record->runs_counted) && transact(startable_work))
	{
		bool		minute = sweep_monotonic_us() >= scheduler.record->minute_us;

		start_runs();
		if (sweep_due_queue(scheduler.now, transact, scheduler.record, &scheduler.due) && scheduler.due.news && transact(startable_work))
			start_runs();
		if (sweep_crash_note_count(NOTE_OF_CONSUMER, transact, &scheduler.record->consumers_counted) && transact(end_work))
		{
			sweep_consumer_pool_adjust(scheduler.record);
			if (minute)
				scheduler.record->minute_us = sweep_monotonic_us() + INT64CONST(60000000);
		}
	}
	scheduler.record->pause_ms = scheduler.tick_failed || scheduler.short_of != REFUSED_NOT ? sweep_pool_next_pause(scheduler.record->pause_ms) : 0;
	scheduler.lock_pause_ms = scheduler.lock_held ? sweep_pool_next_pause(scheduler.lock_pause_ms) : 0;
}

/* False ends the tick. A failure is logged; a locked table must not end the process. */
static bool
transact(SweepWork work)
{
	ErrorData  *error = NULL;
	SweepTxnEnd end = sweep_txn_execute(&(SweepTxnPolicy) {.error_context = scheduler.tick_context}, work, NULL, &error);

	scheduler.absent = end == TXN_ABSENT;
	if (end != TXN_FAILED)
		return end == TXN_COMMITTED;
	scheduler.tick_failed = true;
	if (scheduler.record->pause_ms == 0)
		ereport(WARNING,
				(errcode(error->sqlerrcode),
				 errmsg("pg_sweep scheduler could not do its work: %s", error->message),
				 errdetail("It tries again every %d seconds at the latest.", SWEEP_POOL_LONGEST_PAUSE_MS / 1000),
				 error->hint ? errhint("%s", error->hint) : 0));
	return false;
}

static void
startable_work(void *arg)
{
	uint64		count;

	scheduler.startable = NIL;
	if (!sweep_due_is_open())
		return;
	count = sweep_due_list(scheduler.now, scheduler.record->last_role);
	for (uint64 i = 0; i < count; i++)
	{
		MemoryContext old;
		StartableRun *startable;

		sweep_sql_row(i);
		if (sweep_sql_bool(7))
			continue;
		old = MemoryContextSwitchTo(scheduler.tick_context);
		startable = palloc0(sizeof(StartableRun));
		startable->run.context = scheduler.tick_context;
		startable->run.run_id = sweep_sql_int64(1);
		startable->expected_rows = sweep_sql_int64(2);
		startable->run.extension = *sweep_extension();
		startable->run.state.tid = sweep_sql_tid(3);
		startable->run.job = sweep_sql_text(4, scheduler.tick_context);
		startable->run.run_as = sweep_sql_oid(5);
		startable->unlimited = sweep_quota_is_unlimited(startable->run.run_as);
		startable->role_name = GetUserNameFromId(startable->run.run_as, true);
		startable->preferred = sweep_sql_int32(6) > 0;
		sweep_definition_read_small(&startable->run, 8);
		scheduler.startable = lappend(scheduler.startable, startable);
		MemoryContextSwitchTo(old);
	}
	scheduler.lock_held |= sweep_lock_has_seen_held();
	sweep_shared_set(&scheduler.entry->crowded, count > (uint64) sweep_max_running_jobs);
}

/*
 * When more runs may start than there is room for, the rest of the list is started as other runs end, for START_MS: a new list
 * after each end would take longer than the runs. A run that was cancelled or changed meanwhile notices that itself. A new
 * request ends this, because its run may have to start before those of the list.
 */
static void
start_runs(void)
{
	int64		end_us = sweep_monotonic_us() + START_MS * INT64CONST(1000);
	SweepRefusal shortage;
	const char *role_name;
	bool		any;
	bool		hurry;			/* databases wait for a process, and no run is to end soon */

	any = start_listed(&scheduler.runners, &shortage, &role_name);
	note_shortage(shortage, role_name);
	hurry = shortage == REFUSED_PROCESSES && sweep_shared_is_set(&sweep_shared()->line) && !sweep_runner_any_young();
	while (shortage != REFUSED_NOT && !hurry && sweep_monotonic_us() < end_us && !sweep_shared_is_asked(scheduler.entry) && !sweep_shared_is_set(&scheduler.entry->leave))
	{
		(void) sweep_worker_wait((long) ((end_us - sweep_monotonic_us()) / 1000 + 1));
		if (!sweep_shared_is_asked(scheduler.entry))
			any |= start_listed(&scheduler.runners, &shortage, &role_name);
	}
	/* All processes are in use, and no run is likely to end soon: this process makes room for a run. */
	if (shortage == REFUSED_PROCESSES && !scheduler.left_run && !sweep_runner_any_young() && transact(note_long))
	{
		scheduler.left_run = start_listed(NULL, &shortage, &role_name);
		shortage = scheduler.startable == NIL ? REFUSED_NOT : REFUSED_PROCESSES;
	}
	note_shortage(shortage, role_name);
	/* Sessions may be waiting for these runs, and the rest of the tick would compete with them for a processor. */
	if (any && shortage == REFUSED_NOT)
		rest(START_PAUSE_MS);
}

/* Starts the runs of the list that there is room for. Without a pool it claims a slot for one run, which the launcher starts. */
static bool
start_listed(SweepPool *pool, SweepRefusal *shortage, const char **role_name)
{
	List	   *refused = NIL;	/* roles */
	bool		any = false;
	ListCell   *cell;

	*shortage = REFUSED_NOT;
	*role_name = NULL;
	foreach(cell, scheduler.startable)
	{
		StartableRun *startable = lfirst(cell);
		SweepRefusal refusal;
		bool		started;

		if (list_member_oid(refused, startable->run.run_as) || (pool == NULL && startable->takes_long))
			continue;
		refusal = sweep_runner_start(pool, &startable->run, startable->expected_rows, startable->unlimited, startable->preferred, &started);
		if (refusal != REFUSED_NOT)
		{
			*shortage = refusal;
			*role_name = startable->role_name;
			if (refusal != REFUSED_ROLE && refusal != REFUSED_ROLE_PROCESSES)
				break;
			refused = lappend_oid(refused, startable->run.run_as);
			continue;
		}
		scheduler.startable = foreach_delete_current(scheduler.startable, cell);
		if (!started)
			continue;
		scheduler.record->last_role = startable->run.run_as;
		scheduler.linger_until_us = sweep_monotonic_us() + LINGER_US;
		any = true;
		if (pool == NULL)
			break;
	}
	return any;
}

/*
 * With three processes or more, a job whose last run took longer than a minute does not get the last one: such runs would soon have
 * all processes.
 */
static void
note_long(void *arg)
{
	ListCell   *cell;

	if (sweep_processes_count() < 2)
		return;
	foreach(cell, scheduler.startable)
	{
		StartableRun *startable = lfirst(cell);
		Datum		job = CStringGetTextDatum(startable->run.job);

		(void) sweep_sql_execute(&sweep_took_long_sql, &job, NULL);
		startable->takes_long = sweep_sql_bool(1);
	}
}

static void
note_shortage(SweepRefusal refusal, const char *role_name)
{
	SweepCapacity capacity = {"runs", sweep_max_running_jobs, "pg_sweep.max_running_jobs", "spread the schedules", sweep_processes_count, &sweep_shared()->runs_said_us};

	sweep_quota_log_shortage(&capacity, refusal, &scheduler.record->runs, role_name);
	sweep_shared_lock(LW_EXCLUSIVE);
	if (refusal == REFUSED_PROCESSES && scheduler.short_of != refusal)
		sweep_shared_wake_schedulers();
	scheduler.short_of = scheduler.entry->short_of = refusal;
	sweep_shared_unlock();
}

/* Records what has ended, keeps the history, and asks when to look again. */
static void
end_work(void *arg)
{
	List	   *unopened = sweep_runner_collect_unopened(&scheduler.runners, &scheduler.starting_ms, &scheduler.waits_on);
	ListCell   *cell;
	Datum		age_out = BoolGetDatum(sweep_monotonic_us() >= scheduler.record->minute_us);
	Datum		now = TimestampTzGetDatum(scheduler.now);
	int64		due_in_us = PG_INT64_MAX;	/* counted from the clock of the tick */
	bool		more;

	foreach(cell, unopened)
		sweep_runner_fail_start(lfirst(cell));
	(void) sweep_sql_execute(&sweep_archive_sql, &age_out, NULL);
	scheduler.history_locked = sweep_sql_is_null(2);
	more = sweep_sql_int32(2) >= MANY_ENDED;
	sweep_consumer_pool_read(scheduler.record);
	(void) sweep_sql_execute(&sweep_next_wake_sql, &now, NULL);
	if (!sweep_sql_is_null(1))
	{
		due_in_us = sweep_sql_int64(1);
		scheduler.wake_in_us = due_in_us - (GetCurrentTimestamp() - scheduler.now);
	}
	/* Runs that wait for the lock of a run that has not begun can start now. */
	if (more || unopened != NIL || scheduler.waits_on || scheduler.due.more)
		scheduler.wake_in_us = 0;
	/* A due job whose row a session has locked stays due; a growing pause keeps the scheduler from spinning. */
	scheduler.behind_ms = due_in_us > 0 || scheduler.due.more ? 0 : Min(Max(scheduler.behind_ms * 2, 1), SWEEP_POOL_FIRST_PAUSE_MS);
}

static long
time_to_wait(void)
{
	long		wait_ms = Min(Min(scheduler.starting_ms, sweep_consumer_pool_rest()), sweep_notify_rest());

	if (scheduler.wake_in_us < wait_ms * INT64CONST(1000))
		wait_ms = Max((long) (scheduler.wake_in_us / 1000 + 1), scheduler.behind_ms);
	if (scheduler.lock_held)
		wait_ms = Min(wait_ms, scheduler.lock_pause_ms);
	if (scheduler.record->pause_ms > 0)
		wait_ms = Min(wait_ms, scheduler.record->pause_ms);
	if (scheduler.tick_failed)
		wait_ms = scheduler.record->pause_ms;
	if (scheduler.history_locked)
		wait_ms = Min(wait_ms, SWEEP_POOL_LONGEST_PAUSE_MS);
	return wait_ms;
}

/* The caller has the lock. */
static void
leave_entry(TimestampTz next_at)
{
	scheduler.entry->state = DATABASE_LEFT;
	scheduler.entry->next_at = next_at;
}

/* Decided under the lock: later requests go to the launcher. */
static bool
may_leave(long wait_ms)
{
	SweepDatabase *entry = scheduler.entry;
	TimestampTz now = GetCurrentTimestamp();
	bool		lingers = sweep_monotonic_us() < scheduler.linger_until_us;
	bool		asked;
	bool		dismissed;
	bool		leaves;

	sweep_shared_lock(LW_EXCLUSIVE);
	dismissed = entry->leave || scheduler.absent;
	asked = sweep_shared_is_asked(entry) || entry->ended || entry->news;
	leaves = dismissed || scheduler.left_run || (!asked && !sweep_notify_has_unsent() && ((!lingers && wait_ms * INT64CONST(1000) >= SWEEP_STAY_US) || sweep_shared_gives_way(entry)));
	/* A session that has asked since the tick may have created the extension. */
	if (leaves)
		leave_entry(asked || entry->leave ? now : scheduler.absent ? DT_NOEND : TimestampTzPlusMilliseconds(now, wait_ms));
	if (leaves && dismissed)
		sweep_shared_dismiss(MyDatabaseId, -1, PG_INT32_MAX);
	sweep_shared_unlock();
	return leaves;
}

/*
 * Waits so long, or until there is something to do. A set latch alone is no reason to end the wait, because the postmaster sets it for each
 * worker that starts or ends. It is only a reason while runs or consumers wait for a worker.
 */
static void
rest(long timeout_ms)
{
	int64		end_us = sweep_monotonic_us() + timeout_ms * INT64CONST(1000);
	/* If the process of a consumer ends before it is attached, only the latch says so. */
	bool		waits_for_worker = scheduler.record->pause_ms > 0 || sweep_consumer_pool_pause() >= 0 || sweep_shared_any_consumer(MyDatabaseId, true);

	do
	{
		long		wait_ms;

		sweep_shared_set(&scheduler.entry->news, false);
		wait_ms = sweep_notify_send(LOCK_TIMEOUT);
		wait_ms = is_called() ? 0 : Min(wait_ms, Max((long) ((end_us - sweep_monotonic_us()) / 1000 + 1), 0));
		if (sweep_worker_wait(wait_ms))
			return;
	} while (!waits_for_worker && !is_called() && sweep_monotonic_us() < end_us);
}

/* Whether a session or the launcher has asked for this scheduler, or a runner has ended before it took its slot. */
static bool
is_called(void)
{
	bool		called;

	sweep_shared_lock(LW_SHARED);
	called = sweep_shared_is_asked(scheduler.entry) || scheduler.entry->ended || scheduler.entry->leave ||
		(sweep_shared_gives_way(scheduler.entry) && !sweep_notify_has_unsent());
	for (int i = 0; i < sweep_shared()->slot_count && !called && !scheduler.tick_failed; i++)
		called = sweep_runner_is_starting(i) && sweep_pool_has_ended(&scheduler.runners, i);
	sweep_shared_unlock();
	return called;
}

/* When a scheduler dies, the next moment of its database is not known. */
static void
leave(int code, Datum arg)
{
	sweep_shared_lock(LW_EXCLUSIVE);
	if (scheduler.entry->generation == scheduler.generation)
	{
		if (scheduler.entry->state == DATABASE_RUNNING)
			leave_entry(DT_NOBEGIN);
		scheduler.entry->procno = INVALID_PROC_NUMBER;
	}
	sweep_shared_unlock();
	sweep_shared_note_end(InvalidOid);
	sweep_shared_wake_launcher(false);
}
