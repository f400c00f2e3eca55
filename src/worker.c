/*
 * worker.c
 *		The common life of our processes, and how sessions wake them.
 *
 * A worker gets little for free: it has no statement timeout, its clock stands still between
 * transactions, and its settings are those of its role. What must hold for all of ours is set here.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "commands/dbcommands.h"
#include "fmgr.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "settings.h"
#include "shared.h"
#include "worker.h"

StaticAssertDecl(sizeof(SweepWorkerArgs) <= BGW_EXTRALEN, "the arguments of a worker fit into bgw_extra");

static bool wake_at_commit = false;

static void wake_after_commit(XactEvent event, void *arg);
static void wake_now(void);
static void set_session(void);

PG_FUNCTION_INFO_V1(sweep_worker_wake);
PG_FUNCTION_INFO_V1(sweep_worker_available);
PG_FUNCTION_INFO_V1(sweep_worker_system_identifier);
PG_FUNCTION_INFO_V1(sweep_worker_require);

bool
sweep_worker_register(const char *type, const char *name, const char *entry_point,
					  const SweepWorkerArgs *args, BackgroundWorkerHandle **handle)
{
	BackgroundWorker worker = {0};

	strlcpy(worker.bgw_type, type, sizeof(worker.bgw_type));
	strlcpy(worker.bgw_name, name, sizeof(worker.bgw_name));
	strlcpy(worker.bgw_library_name, "pg_sweep", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, entry_point, sizeof(worker.bgw_function_name));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	worker.bgw_notify_pid = MyProcPid;
	memcpy(worker.bgw_extra, args, sizeof(*args));
	return RegisterDynamicBackgroundWorker(&worker, handle);
}

void
sweep_worker_args(SweepWorkerArgs *args)
{
	memcpy(args, MyBgworkerEntry->bgw_extra, sizeof(*args));
}

void
sweep_worker_begin(void)
{
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	/* A request to cancel means something while SQL of a job is executed, see sweep_worker_allow_cancel(). */
	pqsignal(SIGINT, SIG_IGN);
	BackgroundWorkerUnblockSignals();
}

void
sweep_worker_allow_cancel(bool allow)
{
	pqsignal(SIGINT, allow ? StatementCancelHandler : SIG_IGN);
	QueryCancelPending = false;
}

void
sweep_worker_connect(Oid database, Oid role)
{
	BackgroundWorkerInitializeConnectionByOid(database, role, SWEEP_CONNECT_FLAGS);
	set_session();
}

void
sweep_worker_reset_session(void)
{
	ResetAllOptions();
	set_session();
}

static void
set_session(void)
{
	sweep_worker_set("search_path", "pg_catalog, pg_temp");
	sweep_worker_set("jit", "off");
	sweep_worker_set("max_parallel_workers_per_gather", "0");
}

void
sweep_worker_set(const char *name, const char *value)
{
	SetConfigOption(name, value, PGC_USERSET, PGC_S_SESSION);
}

bool
sweep_worker_wait(long timeout_ms)
{
	bool		reload;

	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, timeout_ms, sweep_wait_event());
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	reload = ConfigReloadPending;
	ConfigReloadPending = false;
	if (reload)
		ProcessConfigFile(PGC_SIGHUP);
	return reload;
}

/* SQL: sweep._wake() RETURNS void */
Datum
sweep_worker_wake(PG_FUNCTION_ARGS)
{
	sweep_worker_wake_at_commit();
	PG_RETURN_VOID();
}

/*
 * The callback is registered once per process: it is never removed, and a list that grows with each
 * transaction would be walked at every commit.
 */
void
sweep_worker_wake_at_commit(void)
{
	static bool registered = false;

	if (!sweep_shared_exists())
		return;
	if (!registered)
		RegisterXactCallback(wake_after_commit, NULL);
	registered = true;
	wake_at_commit = true;
}

static void
wake_after_commit(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_COMMIT && wake_at_commit)
		wake_now();
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
		wake_at_commit = false;
}

/* Wakes the scheduler of this database, or has the launcher start one. */
static void
wake_now(void)
{
	SweepShared *shared = sweep_shared();
	bool		running = false;

	sweep_shared_lock(LW_SHARED);
	for (int i = 0; i < SWEEP_MAX_DATABASES; i++)
	{
		SweepDatabaseState state = shared->databases[i].state;

		if (shared->databases[i].database == MyDatabaseId && (state == DATABASE_STARTING || state == DATABASE_RUNNING))
			running = true;
	}
	sweep_shared_unlock();
	if (running)
		sweep_shared_ask_scheduler(MyDatabaseId);
	else
		sweep_shared_wake_launcher(true);
}

/* SQL: sweep._has_workers() RETURNS boolean */
Datum
sweep_worker_available(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(sweep_shared_exists());
}

/* SQL: sweep._system_identifier() RETURNS bigint: of the cluster, as pg_control_system() has it */
Datum
sweep_worker_system_identifier(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64((int64) GetSystemIdentifier());
}

/* SQL: sweep._require_workers() RETURNS void */
Datum
sweep_worker_require(PG_FUNCTION_ARGS)
{
	char	   *database = get_database_name(MyDatabaseId);

	if (!sweep_shared_exists())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("pg_sweep cannot start background workers"),
				 errdetail("The library was not loaded at server start."),
				 errhint("Set shared_preload_libraries = 'pg_sweep' and restart the server; CALL sweep.run() works without.")));
	if (!sweep_settings_allow_database(database))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("pg_sweep does not start background workers in database \"%s\"", database),
				 errhint("Add the database to pg_sweep.databases and reload the configuration.")));
	PG_RETURN_VOID();
}
