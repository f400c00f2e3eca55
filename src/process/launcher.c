/*
 * launcher.c
 *		One process per cluster: starts a scheduler in each database that is due, and watches the timeouts of runs.
 *
 * The launcher keeps the moment at which each database is next due. A scheduler that leaves puts its moment into its entry in shared
 * memory. A database without a known moment is due at once: when the server starts or a standby is promoted, when the launcher was
 * restarted, after CREATE DATABASE, when a scheduler has died, and when a commit has asked for a scheduler (see ask.c). The launcher is
 * connected to no database and cannot look into one: a scheduler that finds no extension leaves with the moment "when asked".
 *
 * Runs that schedulers have left to the launcher are started first. At most half of the processes that no run has are
 * schedulers, but at least one. Databases that are due take turns in the order in which they began to wait; while they wait,
 * each scheduler leaves after one tick.
 *
 * Moments are compared with the wall clock. Once a minute the launcher checks whether that clock was set back, which makes all
 * moments unknown, and reads the list of databases.
 *
 * No scheduler is started in a template, nor while a session is about to drop, rename, move or copy the database, see utility.c.
 */
#include "postgres.h"

#include <signal.h>

#include "storage/ipc.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/lock.h"
#include "base/processes.h"
#include "base/shared.h"
#include "base/worker.h"
#include "process/databases.h"
#include "process/launcher.h"
#include "process/pool.h"
#include "process/runner.h"

#define LIST_MS 60000

/* Backward step of the wall clock after which moments are no longer known, in us. */
#define STEP_US (5 * INT64CONST(1000000))

/* Time by which a scheduler is started before its moment, in us, so that it is ready then. */
#define AHEAD_US INT64CONST(100000)

/* First and longest pause after a scheduler has died or did not come up, and while a session has a hold on the database, in ms. */
#define FIRST_PAUSE_MS 1000
#define LONGEST_PAUSE_MS 60000
#define HELD_PAUSE_MS 200

/* If a scheduler dies after more than this time, in ms, the pauses begin anew. */
#define LONG_LIFE_MS 10000

/* Pause after a refused registration, unless a process of pg_sweep ends before, in ms. */
#define REFUSED_PAUSE_MS 200

/* Time between two requests to a run that is past its timeout, and requests after which its process is terminated. */
#define WATCHDOG_STEP_MS 1000
#define WATCHDOG_PATIENCE 5

/* Age after which a slot is freed that no scheduler has looked at, in ms. */
#define UNOPENED_AGE_MS 600000

static SweepPool pool = {NULL};
static SweepPool runners = {NULL};
static int64 list_us = 0;		/* monotonic: when the list of databases is read next */
static int64 ahead_us = 0;		/* the clock less the monotonic one, as last seen; 0 = never */

static void compare_clocks(void);
static bool is_asked(void);
static void collect(bool take_asked);
static void pass_on(SweepDatabase *entry, const uint32 *asked);
static bool is_bit_set(const uint32 *asked, Oid database);
static void collect_entry(int index);
static void free_slot(int index);
static void take_moment(SweepKnownDatabase *database, const SweepDatabase *entry);
static void look_again(SweepKnownDatabase *database);
static long start_due(void);
static SweepKnownDatabase *next_due(TimestampTz now, int64 now_us, long *wait_ms);
static bool start_scheduler(SweepKnownDatabase *database, int64 now_us);
static SweepDatabase *claim(const SweepKnownDatabase *database, SweepWorkerArgs *args);
static void unclaim(SweepDatabase *entry);
static void note_refusal(const SweepKnownDatabase *database, int64 now_us);
static void say_line(bool line);
static void watch_timeouts(long *wait_ms);
static bool awaits_standby(SweepSlot *slot);
static void retire(int code, Datum arg);

void
sweep_launcher_register(void)
{
	(void) sweep_worker_register("pg_sweep launcher", "pg_sweep launcher", "sweep_launcher_main", &(SweepWorkerArgs) {0}, NULL);
}

void
sweep_launcher_main(Datum arg)
{
	bool		reload = true;

	sweep_worker_begin();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	sweep_worker_set("lock_timeout", "0");
	sweep_pool_prepare(&pool, sweep_shared_database_count());
	sweep_pool_prepare(&runners, sweep_shared()->slot_count);
	sweep_shared_lock(LW_EXCLUSIVE);
	sweep_shared()->launcher = MyProcNumber;
	sweep_shared()->line = sweep_shared()->left_short = false;
	sweep_shared_unlock();
	before_shmem_exit(retire, 0);
	for (;;)
	{
		bool		listed = false;
		long		wait_ms;

		if (reload || sweep_monotonic_us() >= list_us || is_asked())
		{
			compare_clocks();
			listed = sweep_databases_list(reload);
			list_us = sweep_monotonic_us() + (listed ? LIST_MS : REFUSED_PAUSE_MS) * INT64CONST(1000);
		}
		/* New settings may let runs start, or keep less of the history. */
		if (reload)
			sweep_databases_forget_moments();
		collect(listed);
		wait_ms = start_due();
		watch_timeouts(&wait_ms);
		wait_ms = Min(wait_ms, Max((long) ((list_us - sweep_monotonic_us()) / 1000 + 1), 1));
		reload = sweep_worker_wait(wait_ms);
	}
}

static void
compare_clocks(void)
{
	int64		ahead = GetCurrentTimestamp() - sweep_monotonic_us();

	if (ahead_us != 0 && ahead_us - ahead > STEP_US)
		sweep_databases_forget_moments();
	ahead_us = ahead;
}

static bool
is_asked(void)
{
	SweepShared *shared = sweep_shared();
	bool		asked;

	sweep_shared_lock(LW_EXCLUSIVE);
	asked = shared->rescan;
	shared->rescan = false;
	sweep_shared_unlock();
	for (int i = 0; i < (int) lengthof(shared->asked) && !asked; i++)
		asked = pg_atomic_read_u32(&shared->asked[i]) != 0;
	return asked;
}

/*
 * Takes over the moments of schedulers that have left, and the flags of databases without a scheduler. Several databases share a flag. It
 * is cleared only if the list of databases was read after the flag was set, because the session that set it may have created a database.
 */
static void
collect(bool take_asked)
{
	static uint32 asked[SWEEP_ASKED_BITS / 32];
	SweepShared *shared = sweep_shared();
	TimestampTz now = GetCurrentTimestamp();
	HASH_SEQ_STATUS status;
	SweepKnownDatabase *database;
	bool		released;

	sweep_databases_scan(&status);
	while ((database = hash_seq_search(&status)) != NULL)
		database->there = false;
	sweep_shared_lock(LW_EXCLUSIVE);
	for (int i = 0; i < sweep_shared_database_count(); i++)
		collect_entry(i);
	for (int i = 0; i < shared->slot_count; i++)
		free_slot(i);
	for (int i = 0; i < (int) lengthof(asked); i++)
		asked[i] = take_asked ? pg_atomic_exchange_u32(&shared->asked[i], 0) : 0;
	for (int i = 0; i < sweep_shared_database_count(); i++)
		pass_on(sweep_shared_database(i), asked);
	released = shared->released;
	shared->released = false;
	sweep_shared_unlock();

	sweep_databases_scan(&status);
	while ((database = hash_seq_search(&status)) != NULL)
	{
		if (!database->there && (is_bit_set(asked, database->database) || (released && database->is_short)))
			database->due_at = Min(database->due_at, now);
	}
}

/*
 * Asks schedulers that were started since the flag was set: such a scheduler may have done its tick before a later commit that
 * found the flag set already. The caller has the lock.
 */
static void
pass_on(SweepDatabase *entry, const uint32 *asked)
{
	if ((entry->state != DATABASE_STARTING && entry->state != DATABASE_RUNNING) || !is_bit_set(asked, entry->database))
		return;
	pg_atomic_write_u32(&entry->asked, entry->database);
	sweep_shared_wake(entry->procno);
}

static bool
is_bit_set(const uint32 *asked, Oid database)
{
	uint32		bit = sweep_shared_bit(database);

	return (asked[bit / 32] & (1U << bit % 32)) != 0;
}

/* The caller has the lock. */
static void
collect_entry(int index)
{
	SweepDatabase *entry = sweep_shared_database(index);
	SweepKnownDatabase *database;

	if (entry->state == DATABASE_FREE)
		return;
	database = sweep_databases_find(entry->database);
	if (entry->state == DATABASE_STARTING && sweep_pool_has_lost(&pool, index, entry->claimed_us))
	{
		entry->state = DATABASE_LEFT;
		entry->next_at = DT_NOBEGIN;
	}
	if (entry->state == DATABASE_LEFT)
	{
		if (database != NULL)
			take_moment(database, entry);
		pg_atomic_write_u32(&entry->asked, 0);
		entry->state = DATABASE_FREE;
	}
	else if (database != NULL)
		database->there = true;
	else if (!entry->leave)
	{
		entry->leave = true;
		sweep_shared_wake(entry->procno);
	}
}

/*
 * Frees the slot of a run that never began if no scheduler has looked at it for long. If its worker was started here and never
 * came up, asks a scheduler to look at the slot. The caller has the lock.
 */
static void
free_slot(int index)
{
	SweepSlot  *slot = &sweep_shared()->slots[index];

	if (slot->state == SLOT_STARTING && slot->launched && sweep_pool_has_lost(&runners, index, slot->claimed_us))
	{
		slot->state = SLOT_UNOPENED;
		sweep_shared_wake(sweep_shared_ask(slot->database));
	}
	if (slot->state == SLOT_UNOPENED && sweep_monotonic_us() - slot->claimed_us >= UNOPENED_AGE_MS * INT64CONST(1000))
		slot->state = SLOT_FREE;
}

static void
take_moment(SweepKnownDatabase *database, const SweepDatabase *entry)
{
	bool		failed = TIMESTAMP_IS_NOBEGIN(entry->next_at);
	bool		lived = sweep_monotonic_us() - entry->claimed_us > LONG_LIFE_MS * INT64CONST(1000);

	database->record = entry->record;
	database->is_short = entry->short_of != REFUSED_NOT;
	database->due_at = failed ? GetCurrentTimestamp() : entry->next_at;
	database->pause_ms = failed ? Min(Max(lived ? 0 : database->pause_ms * 2, FIRST_PAUSE_MS), LONGEST_PAUSE_MS) : 0;
	database->next_try_us = sweep_monotonic_us() + database->pause_ms * INT64CONST(1000);
	if (entry->leave)
		look_again(database);
}

/* A session has a hold on the database and may drop it, so the list is read again before the next try. */
static void
look_again(SweepKnownDatabase *database)
{
	database->next_try_us = sweep_monotonic_us() + HELD_PAUSE_MS * INT64CONST(1000);
	list_us = Min(list_us, database->next_try_us);
}

/* Starts the runs that schedulers have left to the launcher, then schedulers of due databases; returns the time until the next try, in ms. */
static long
start_due(void)
{
	TimestampTz now = GetCurrentTimestamp();
	int64		now_us = sweep_monotonic_us();
	bool		line = sweep_runner_start_wanted(&runners);
	long		wait_ms = line ? REFUSED_PAUSE_MS : LIST_MS;
	int			room = -1;
	SweepKnownDatabase *database;

	while (!line && (database = next_due(now, now_us, &wait_ms)) != NULL)
	{
		if (room < 0)
			room = sweep_processes_for_schedulers();
		if (room-- > 0 && start_scheduler(database, now_us))
			continue;
		/* A scheduler that is started ahead of its moment takes no process from others, so its refusal is no shortage. */
		line = database->due_at <= now;
		wait_ms = Min(wait_ms, line ? REFUSED_PAUSE_MS : (long) ((database->due_at - now) / 1000 + 1));
		break;
	}
	say_line(line);
	return wait_ms;
}

/* The due database that has waited longest. If there is none, NULL, and *wait_ms is at most the time until the first one is due. */
static SweepKnownDatabase *
next_due(TimestampTz now, int64 now_us, long *wait_ms)
{
	HASH_SEQ_STATUS status;
	SweepKnownDatabase *database;
	SweepKnownDatabase *first = NULL;

	sweep_databases_scan(&status);
	while ((database = hash_seq_search(&status)) != NULL)
	{
		int64		left_us = Max(database->due_at - AHEAD_US - now, database->next_try_us - now_us);

		if (database->there || TIMESTAMP_IS_NOEND(database->due_at))
			continue;
		if (left_us > 0)
			*wait_ms = (long) Min(*wait_ms, left_us / 1000 + 1);
		else if (first == NULL || database->due_at < first->due_at)
			first = database;
	}
	return first;
}

/* False when no process is available. The entry is claimed before the hold is checked, see clear_database() in utility.c. */
static bool
start_scheduler(SweepKnownDatabase *database, int64 now_us)
{
	SweepWorkerArgs args = {.database = database->database};
	SweepDatabase *entry = claim(database, &args);
	char		name[BGW_MAXLEN];

	if (entry == NULL)
		return false;
	if (sweep_lock_database_is_held(database->database))
	{
		unclaim(entry);
		look_again(database);
		return true;
	}
	snprintf(name, sizeof(name), "pg_sweep scheduler %s", database->name);
	database->there = sweep_pool_register(&pool, "pg_sweep scheduler", name, "sweep_scheduler_main", &args);
	if (!database->there)
	{
		unclaim(entry);
		note_refusal(database, now_us);
	}
	return database->there;
}

static SweepDatabase *
claim(const SweepKnownDatabase *database, SweepWorkerArgs *args)
{
	SweepShared *shared = sweep_shared();
	SweepDatabase *entry = NULL;
	int			index = 0;

	sweep_shared_lock(LW_EXCLUSIVE);
	while (index < sweep_shared_database_count() && sweep_shared_database(index)->state != DATABASE_FREE)
		index++;
	if (index < sweep_shared_database_count())
	{
		entry = sweep_shared_database(index);
		args->index = index;
		entry->state = DATABASE_STARTING;
		entry->database = database->database;
		entry->generation = args->generation = ++shared->generation;
		entry->procno = INVALID_PROC_NUMBER;
		entry->ended = entry->news = entry->leave = entry->crowded = false;
		entry->short_of = REFUSED_NOT;
		entry->claimed_us = sweep_monotonic_us();
		entry->record = database->record;
	}
	sweep_shared_unlock();
	return entry;
}

/* The database stays due, so requests that came meanwhile are not lost. */
static void
unclaim(SweepDatabase *entry)
{
	sweep_shared_lock(LW_EXCLUSIVE);
	pg_atomic_write_u32(&entry->asked, 0);
	entry->state = DATABASE_FREE;
	sweep_shared_unlock();
	ConditionVariableBroadcast(&sweep_shared()->changed);
}

static void
note_refusal(const SweepKnownDatabase *database, int64 now_us)
{
	if (!sweep_quota_may_say(&sweep_shared()->runs_said_us, now_us - (GetCurrentTimestamp() - database->due_at)))
		return;
	ereport(WARNING,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("pg_sweep could not start a scheduler for database \"%s\"", database->name),
			 errdetail("All of max_worker_processes = %d are in use; parallel queries may use max_parallel_workers = %d of them.",
					   max_worker_processes, max_parallel_workers),
			 errhint("Raise max_worker_processes, which needs a restart of the server, or lower max_parallel_workers.")));
}

/* Tells schedulers whether databases wait for a process: then they leave instead of waiting for their next moment. */
static void
say_line(bool line)
{
	SweepShared *shared = sweep_shared();
	HASH_SEQ_STATUS status;
	SweepKnownDatabase *database;
	bool		left_short = false;

	sweep_databases_scan(&status);
	while ((database = hash_seq_search(&status)) != NULL)
		left_short |= database->is_short && !database->there;
	if (line == shared->line && left_short == shared->left_short)
		return;
	sweep_shared_lock(LW_EXCLUSIVE);
	if (line && !shared->line)
		sweep_shared_wake_schedulers();
	shared->line = line;
	shared->left_short = left_short;
	sweep_shared_unlock();
}

/*
 * A run normally stops itself when its timeout has passed. If it does not, it is asked again each second, and at last its process is
 * terminated, but never killed. Shortens *wait_ms to the next check.
 */
static void
watch_timeouts(long *wait_ms)
{
	SweepShared *shared = sweep_shared();
	int64		now_us = sweep_monotonic_us();

	sweep_shared_lock(LW_SHARED);
	for (int i = 0; i < shared->slot_count; i++)
	{
		SweepSlot  *slot = &shared->slots[i];
		int64		deadline_us = (int64) pg_atomic_read_u64(&slot->timeout_deadline_us);

		if (slot->state != SLOT_RUNNING || deadline_us == 0)
			continue;
		deadline_us += (int64) slot->reminders * WATCHDOG_STEP_MS * 1000;
		/* Ending the wait for a standby would not undo the commit. */
		if (now_us >= deadline_us && awaits_standby(slot))
			deadline_us = now_us + WATCHDOG_STEP_MS * 1000;
		else if (now_us >= deadline_us && slot->pid != 0)
		{
			slot->reminders++;
			pg_atomic_fetch_or_u32(&slot->stop_request, SWEEP_STOP_REQUEST_TIMEOUT);
			kill(slot->pid, slot->worker && slot->reminders > WATCHDOG_PATIENCE ? SIGTERM : SIGINT);
			deadline_us = now_us + WATCHDOG_STEP_MS * 1000;
		}
		*wait_ms = Min(*wait_ms, (long) ((deadline_us - now_us) / 1000 + 1));
	}
	sweep_shared_unlock();
}

static bool
awaits_standby(SweepSlot *slot)
{
	SweepPhase	phase;

	SpinLockAcquire(&slot->mutex);
	phase = slot->live.phase;
	SpinLockRelease(&slot->mutex);
	return phase == PHASE_STANDBY;
}

static void
retire(int code, Datum arg)
{
	sweep_shared_lock(LW_EXCLUSIVE);
	if (sweep_shared()->launcher == MyProcNumber)
	{
		sweep_shared()->launcher = INVALID_PROC_NUMBER;
		sweep_shared()->launcher_left_us = sweep_monotonic_us();
	}
	sweep_shared_unlock();
}
