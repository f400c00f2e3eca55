/*
 * launcher.c
 *		One process per cluster: keeps a scheduler in every database that has the extension.
 *
 * It reconciles: which databases there are, which of them have a scheduler, start what is missing. It is
 * connected to no database, so it is in nobody's way, and cannot look into one; a scheduler is started
 * in each database to see whether the extension is there, and leaves again if not. What is known is kept
 * in this process only: after a restart everything is found out again.
 *
 * It never starts a scheduler where a session is about to drop, rename, move or copy the database, see
 * utility.c, and none in a template.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "pgstat.h"
#include "storage/ipc.h"
#include "utils/snapmgr.h"

#include "base/clock.h"
#include "base/lock.h"
#include "base/settings.h"
#include "base/worker.h"
#include "process/known.h"
#include "process/launcher.h"
#include "process/scheduler.h"

#define RESTART_SECONDS 2
#define IDLE_MS 60000

/* Pauses before a scheduler that ended is started again. */
#define FIRST_PAUSE_MS 200
#define LONGEST_PAUSE_MS 60000

/* A slot that no scheduler has looked at is freed after this. */
#define UNOPENED_AGE_MS 600000

/* So many databases are looked into at a time. */
#define MOST_STARTING 2

/* What the launcher knows of a database. */
typedef struct KnownDatabase
{
	Oid			database;
	char		name[NAMEDATALEN];
	bool		listed;			/* is there, and we may work in it */
	bool		absent;			/* has no extension, as far as we know */
	long		pause_ms;
	int64		next_try_us;
	int64		started_us;
} KnownDatabase;

StaticAssertDecl(offsetof(KnownDatabase, database) == 0, "it is found by its first field");

static List *known = NIL;		/* of KnownDatabase */
static bool shortage_noted = false;

static void list_databases(void);
static void forget_unlisted(void);
static void take_news(void);
static long reconcile(void);
static SweepDatabaseState look_up(Oid database, int *starting);
static bool start_scheduler(KnownDatabase *database, int64 now_us);
static void retire(int code, Datum arg);

void
sweep_launcher_register(void)
{
	BackgroundWorker worker = {0};

	strlcpy(worker.bgw_type, "pg_sweep launcher", sizeof(worker.bgw_type));
	strlcpy(worker.bgw_name, "pg_sweep launcher", sizeof(worker.bgw_name));
	strlcpy(worker.bgw_library_name, "pg_sweep", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "sweep_launcher_main", sizeof(worker.bgw_function_name));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = RESTART_SECONDS;
	RegisterBackgroundWorker(&worker);
}

void
sweep_launcher_main(Datum arg)
{
	sweep_worker_begin();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	/* Nothing here catches an error; who locks the catalogue of databases is waited for. */
	sweep_worker_set("lock_timeout", "0");
	sweep_shared_lock(LW_EXCLUSIVE);
	sweep_shared()->launcher = MyProcNumber;
	sweep_shared_unlock();
	before_shmem_exit(retire, 0);
	for (;;)
	{
		list_databases();
		forget_unlisted();
		take_news();
		sweep_worker_wait(reconcile());
	}
}

/* Shared catalogs can be read without a database; there is no SQL here. */
static void
list_databases(void)
{
	Relation	relation;
	TableScanDesc scan;
	HeapTuple	tuple;
	ListCell   *cell;

	foreach(cell, known)
		((KnownDatabase *) lfirst(cell))->listed = false;
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	(void) GetTransactionSnapshot();
	relation = table_open(DatabaseRelationId, AccessShareLock);
	scan = table_beginscan_catalog(relation, 0, NULL);
	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		Form_pg_database form = (Form_pg_database) GETSTRUCT(tuple);

		/* A connection limit of -2 marks what an interrupted DROP DATABASE has left. */
		if (!sweep_start_paused && form->datallowconn && !form->datistemplate && form->datconnlimit != -2 &&
			sweep_settings_allow_database(NameStr(form->datname)))
		{
			KnownDatabase *database = sweep_known_find(&known, form->oid, sizeof(KnownDatabase));

			strlcpy(database->name, NameStr(form->datname), sizeof(database->name));
			database->listed = true;
		}
	}
	table_endscan(scan);
	table_close(relation, AccessShareLock);
	CommitTransactionCommand();
	pgstat_report_stat(false);
}

static void
forget_unlisted(void)
{
	ListCell   *cell;

	foreach(cell, known)
	{
		KnownDatabase *database = lfirst(cell);
		ProcNumber	scheduler = INVALID_PROC_NUMBER;
		SweepDatabase *entry;

		if (database->listed)
			continue;
		/* No longer among pg_sweep.databases, no longer there, or pg_sweep.start_paused is on. */
		sweep_shared_lock(LW_EXCLUSIVE);
		entry = sweep_shared_find_database(database->database);
		if (entry != NULL)
		{
			entry->leave = true;
			scheduler = entry->procno;
		}
		sweep_shared_unlock();
		sweep_shared_wake(scheduler);
		known = foreach_delete_current(known, cell);
		pfree(database);
	}
}

/* What schedulers found out, and whether to look everywhere again. */
static void
take_news(void)
{
	SweepShared *shared = sweep_shared();
	bool		rescan;
	ListCell   *cell;

	sweep_shared_lock(LW_EXCLUSIVE);
	rescan = shared->rescan;
	shared->rescan = false;
	for (int i = 0; i < SWEEP_MAX_DATABASES; i++)
	{
		if (shared->databases[i].state == DATABASE_STARTING &&
			sweep_monotonic_us() - shared->databases[i].claimed_us >= LONGEST_PAUSE_MS * INT64CONST(1000))
			shared->databases[i].state = DATABASE_FREE; /* registered, and never came up */
		if (shared->databases[i].state != DATABASE_ABSENT)
			continue;
		foreach(cell, known)
		{
			if (((KnownDatabase *) lfirst(cell))->database == shared->databases[i].database)
				((KnownDatabase *) lfirst(cell))->absent = true;
		}
		shared->databases[i].state = DATABASE_FREE;
	}
	/* What a run left for a scheduler that is no more. */
	for (int i = 0; i < shared->slot_count; i++)
	{
		if (shared->slots[i].state == SLOT_UNOPENED &&
			sweep_monotonic_us() - shared->slots[i].claimed_us >= UNOPENED_AGE_MS * INT64CONST(1000))
			shared->slots[i].state = SLOT_FREE;
	}
	sweep_shared_unlock();
	if (!rescan)
		return;
	foreach(cell, known)
	{
		((KnownDatabase *) lfirst(cell))->absent = false;
		((KnownDatabase *) lfirst(cell))->next_try_us = 0;
	}
}

/* Starts what is missing; returns how long to wait until something is to be tried again. */
static long
reconcile(void)
{
	int64		now_us = sweep_monotonic_us();
	long		wait_ms = IDLE_MS;
	ListCell   *cell;

	foreach(cell, known)
	{
		KnownDatabase *database = lfirst(cell);
		int			starting = 0;

		if (database->absent || look_up(database->database, &starting) != DATABASE_FREE)
			continue;
		if (starting >= MOST_STARTING)
			break;				/* the one that ends its start wakes us */
		if (now_us >= database->next_try_us && start_scheduler(database, now_us))
			continue;
		wait_ms = Min(wait_ms, Max((long) ((database->next_try_us - now_us) / 1000), 1));
	}
	return wait_ms;
}

static SweepDatabaseState
look_up(Oid database, int *starting)
{
	SweepShared *shared = sweep_shared();
	SweepDatabaseState found = DATABASE_FREE;

	sweep_shared_lock(LW_SHARED);
	for (int i = 0; i < SWEEP_MAX_DATABASES; i++)
	{
		if (shared->databases[i].state == DATABASE_STARTING)
			(*starting)++;
		if (shared->databases[i].state != DATABASE_FREE && shared->databases[i].database == database)
			found = shared->databases[i].state;
	}
	sweep_shared_unlock();
	return found;
}

static bool
start_scheduler(KnownDatabase *database, int64 now_us)
{
	bool		held = sweep_lock_database_is_held(database->database);
	bool		started = !held && sweep_scheduler_start(database->database, database->name);

	/* One that ran for long before it ended is started again at once, one that fails ever more slowly. */
	if (database->started_us != 0 && now_us - database->started_us >= LONGEST_PAUSE_MS * INT64CONST(1000))
		database->pause_ms = 0;
	database->pause_ms = held ? FIRST_PAUSE_MS : Min(Max(database->pause_ms * 2, FIRST_PAUSE_MS), LONGEST_PAUSE_MS);
	database->next_try_us = now_us + database->pause_ms * INT64CONST(1000);
	if (started)
		database->started_us = now_us;
	if (!started && !held && !shortage_noted)
		ereport(WARNING,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("pg_sweep could not start a scheduler for database \"%s\"", database->name),
				 errdetail("All of max_worker_processes are in use."),
				 errhint("Raise max_worker_processes, which needs a restart of the server, or restrict pg_sweep.databases.")));
	shortage_noted = !started && !held;
	return started;
}

static void
retire(int code, Datum arg)
{
	sweep_shared_lock(LW_EXCLUSIVE);
	if (sweep_shared()->launcher == MyProcNumber)
		sweep_shared()->launcher = INVALID_PROC_NUMBER;
	sweep_shared_unlock();
}
