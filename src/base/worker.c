/*
 * worker.c
 *		Common functions of the processes of pg_sweep, and how sessions wake them.
 *
 * PostgreSQL does little for a background worker: it has no statement timeout, the time of its statements does not
 * advance by itself, and it has the settings of its role. This file sets up what all processes of pg_sweep need.
 */
#include "postgres.h"

#include <signal.h>

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/namespace.h"
#include "commands/prepare.h"
#include "commands/sequence.h"
#include "common/hashfn.h"
#include "fmgr.h"
#include "jit/jit.h"
#include "miscadmin.h"
#include "optimizer/cost.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/latch.h"
#include "storage/pmsignal.h"
#include "storage/proc.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/portal.h"
#include "utils/snapmgr.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "base/ask.h"
#include "base/cancel.h"
#include "base/clock.h"
#include "base/extension.h"
#include "base/log_context.h"
#include "base/session_lock.h"
#include "base/shared.h"
#include "base/worker.h"

StaticAssertDecl(sizeof(SweepWorkerArgs) <= BGW_EXTRALEN, "the arguments of a worker fit into bgw_extra");

#define POSTMASTER_WATCH_MS 1000
#define RESTART_SECONDS 2

/*
 * Values of settings that would otherwise change the meaning of the engine's statements, or end them, if they are set
 * for the database or the bootstrap superuser. A process that needs other values sets them itself.
 */
static const struct
{
	const char *name;
	const char *value;
}			engine_settings[] = {
	{"search_path", "pg_catalog, pg_temp"},
	{"default_transaction_read_only", "off"},
	{"default_transaction_isolation", "read committed"},
	{"default_transaction_deferrable", "off"},
	{"row_security", "on"},
	{"session_replication_role", "origin"},
	{"restrict_nonsystem_relation_kind", ""},
	{"statement_timeout", "0"},
	{"transaction_timeout", "0"},
	{"standard_conforming_strings", "on"},
	{"transform_null_equals", "off"},
	{"array_nulls", "on"},
	{"DateStyle", "ISO, MDY"},
	{"IntervalStyle", "postgres"},
	{"quote_all_identifiers", "off"},
	{"plpgsql.variable_conflict", "error"},
	{"plpgsql.extra_warnings", "none"},
	{"plpgsql.extra_errors", "none"},
};

static bool wake_at_commit = false;
static volatile sig_atomic_t cancel_allowed = false;

static void postmaster_timer_fired(void);
static void handle_cancel(SIGNAL_ARGS);
static void wake_after_commit(XactEvent event, void *arg);
static void restore_identity(void);
static void load_session_libraries(void);
static void set_session(void);
static void bound_statements(void);

PG_FUNCTION_INFO_V1(sweep_worker_wake);
PG_FUNCTION_INFO_V1(sweep_worker_system_identifier);
PG_FUNCTION_INFO_V1(sweep_worker_is_home);

/* Line ends and tabs are kept, which pg_clean_ascii() would also replace, because statements are shown. */
char *
sweep_worker_ascii(const char *text)
{
	char	   *copy = pstrdup(text);

	for (char *byte = copy; *byte != '\0'; byte++)
	{
		if (IS_HIGHBIT_SET(*byte))
			*byte = '?';
	}
	return copy;
}

bool
sweep_worker_register(const char *type, const char *name, const char *entry_point,
					  const SweepWorkerArgs *args, BackgroundWorkerHandle **handle)
{
	BackgroundWorker worker = {0};
	char	   *ascii;

	strlcpy(worker.bgw_type, type, sizeof(worker.bgw_type));
	ascii = sweep_worker_ascii(name);
	strlcpy(worker.bgw_name, ascii, sizeof(worker.bgw_name));
	pfree(ascii);
	strlcpy(worker.bgw_library_name, "pg_sweep", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, entry_point, sizeof(worker.bgw_function_name));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = handle != NULL ? BGW_NEVER_RESTART : RESTART_SECONDS;
	worker.bgw_notify_pid = handle != NULL ? MyProcPid : 0;
	memcpy(worker.bgw_extra, args, sizeof(*args));
	if (handle == NULL)
		RegisterBackgroundWorker(&worker);
	return handle == NULL || RegisterDynamicBackgroundWorker(&worker, handle);
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
	pqsignal(SIGINT, handle_cancel);
	/* Until now SIGHUP was ignored, so the settings that were inherited from the postmaster may be outdated. */
	ConfigReloadPending = true;
	SetLatch(MyLatch);
	BackgroundWorkerUnblockSignals();
}

void
sweep_worker_allow_cancel(bool allow)
{
	cancel_allowed = allow;
	sweep_cancel_drop();
}

/*
 * PostgreSQL notices the end of the postmaster only while it waits. A run that commits batch after batch, or a long
 * statement, would go on without a postmaster, and no server could be started meanwhile.
 */
void
sweep_worker_watch_postmaster(bool on)
{
	static TimeoutId timer = MAX_TIMEOUTS;

	if (timer == MAX_TIMEOUTS && !on)
		return;
	if (timer == MAX_TIMEOUTS)
		timer = RegisterTimeout(USER_TIMEOUT, postmaster_timer_fired);
	if (on)
		enable_timeout_every(timer, TimestampTzPlusMilliseconds(GetCurrentTimestamp(), POSTMASTER_WATCH_MS), POSTMASTER_WATCH_MS);
	else
		disable_timeout(timer, false);
}

/* Executed in a signal handler. */
static void
postmaster_timer_fired(void)
{
	if (!PostmasterIsAlive())
		kill(MyProcPid, SIGTERM);
}

/*
 * A request to cancel counts only while SQL of a job is executed. lock_timeout and statement_timeout use the same
 * signal, which the process sends to itself; they always count.
 */
static void
handle_cancel(SIGNAL_ARGS)
{
	if (cancel_allowed || get_timeout_indicator(LOCK_TIMEOUT, false) || get_timeout_indicator(STATEMENT_TIMEOUT, false))
		StatementCancelHandler(SWEEP_SIGNAL_ARGUMENTS);
}

void
sweep_worker_connect(Oid database, Oid role)
{
	/* PostgreSQL would connect an invalid role as the bootstrap superuser. */
	if (!OidIsValid(role))
		ereport(FATAL, (errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("role of a pg_sweep process does not exist")));
	BackgroundWorkerInitializeConnectionByOid(database, role, SWEEP_CONNECT_FLAGS);
	restore_identity();
	set_session();
	sweep_log_context_begin(true);
	load_session_libraries();
}

/*
 * A background worker does not load them by itself, but auto_explain, and a module that forbids or masks something, are to hold for a job
 * as for a login of its role. A library that cannot be loaded ends the process, as it ends a login. PostgreSQL loads them in a transaction, too.
 */
static void
load_session_libraries(void)
{
	if (*session_preload_libraries_string == '\0' && *local_preload_libraries_string == '\0')
		return;
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	sweep_log_context_look_up();
	process_session_preload_libraries();
	CommitTransactionCommand();
}

void
sweep_worker_connect_engine(Oid database)
{
	/* A value that the encoding of the database cannot be converted to would end the process while it connects. */
	SetConfigOption("client_encoding", "SQL_ASCII", PGC_USERSET, PGC_S_OVERRIDE);
	BackgroundWorkerInitializeConnectionByOid(database, InvalidOid, 0);
	restore_identity();
	set_session();
	sweep_log_context_begin(false);
	for (size_t i = 0; i < lengthof(engine_settings); i++)
	{
		/* Some versions and builds do not have all of these settings. */
		if (GetConfigOption(engine_settings[i].name, true, false) != NULL)
			SetConfigOption(engine_settings[i].name, engine_settings[i].value, PGC_SUSET, PGC_S_SESSION);
	}
}

/*
 * ALTER DATABASE and ALTER ROLE can set role and session_authorization like any other setting. But a process must have the
 * role that it was connected as: otherwise a scheduler could not do its work, and a job would run as the wrong role.
 */
static void
restore_identity(void)
{
	if (GetSessionUserId() != GetAuthenticatedUserId())
	{
		SetCurrentStatementStartTimestamp();
		StartTransactionCommand();
		sweep_worker_set("session_authorization", GetUserNameFromId(GetAuthenticatedUserId(), false));
		CommitTransactionCommand();
	}
	sweep_worker_set("role", "none");
}

void
sweep_worker_reset_session(void)
{
	restore_identity();
	ResetAllOptions();
	set_session();
}

void
sweep_worker_report_activity(const char *text)
{
	char	   *shown = pnstrdup(text, pgstat_track_activity_query_size);
	char	   *ascii = sweep_worker_ascii(shown);

	pgstat_report_activity(STATE_RUNNING, ascii);
	pfree(ascii);
	pfree(shown);
}

/* The plans of the engine are kept, because they make the reuse of the process cheap, and hold no data of a user. */
void
sweep_worker_discard_session(void)
{
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	PortalHashTableDeleteAll();
	DropAllPreparedStatements();
	sweep_session_lock_release_all();
	/* Catalogue rows with long values are deleted, which needs a snapshot. */
	PushActiveSnapshot(GetTransactionSnapshot());
	ResetTempTableNamespace();
	PopActiveSnapshot();
	ResetSequenceCaches();
	CommitTransactionCommand();
	sweep_worker_reset_session();
}

static void
set_session(void)
{
	sweep_worker_set("jit", "off");
	sweep_worker_set("max_parallel_workers_per_gather", "0");
	/* Steps of pg_sweep itself compare names as text. */
	sweep_worker_set("quote_all_identifiers", "off");
	/* An error must end only the batch, or the handling of a message; if it ended the process, it could not be recorded. */
	sweep_worker_set("exit_on_error", "off");
	/* A serializable read-only transaction could otherwise wait for ever for transactions that write. */
	sweep_worker_set("default_transaction_deferrable", "off");
	bound_statements();
}

void
sweep_worker_set_local(void)
{
	/* If the value is right already, setting and resetting it for each batch is saved. */
	if (jit_enabled)
		(void) set_config_option("jit", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
	if (max_parallel_workers_per_gather != 0)
		(void) set_config_option("max_parallel_workers_per_gather", "0", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
	if (quote_all_identifiers)
		(void) set_config_option("quote_all_identifiers", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
	if (ExitOnAnyError)
		(void) set_config_option("exit_on_error", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
}

/*
 * PostgreSQL 17 and later: transaction_timeout would end the process, and the run would be lost. Because a batch is
 * one transaction, it is used as a statement timeout instead, which is an error.
 */
static void
bound_statements(void)
{
	const char *limit = GetConfigOption("transaction_timeout", true, false);
	int			limit_ms = limit != NULL ? (int) strtol(limit, NULL, 10) : 0;
	char		value[32];

	if (limit_ms <= 0)
		return;
	snprintf(value, sizeof(value), "%d", StatementTimeout > 0 ? Min(StatementTimeout, limit_ms) : limit_ms);
	sweep_worker_set("statement_timeout", value);
	sweep_worker_set("transaction_timeout", "0");
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

	sweep_cancel_wait(timeout_ms, sweep_wait_event(SWEEP_WAIT_IDLE));
	/* No statement is in progress, and an error here would end the process. */
	sweep_cancel_drop();
	reload = ConfigReloadPending;
	ConfigReloadPending = false;
	if (reload)
	{
		ProcessConfigFile(PGC_SIGHUP);
		bound_statements();
	}
	return reload;
}

void
sweep_worker_pause(long pause_ms, pg_atomic_uint32 *ended)
{
	int64		end_us = sweep_monotonic_us() + pause_ms * INT64CONST(1000);
	bool		reloaded = false;

	while (!reloaded && pg_atomic_read_u32(ended) == 0 && sweep_monotonic_us() < end_us)
		reloaded = sweep_worker_wait((long) Max((end_us - sweep_monotonic_us()) / 1000, 1));
}

/* SQL: sweep._wake() RETURNS void */
Datum
sweep_worker_wake(PG_FUNCTION_ARGS)
{
	sweep_worker_wake_at_commit();
	PG_RETURN_VOID();
}

/*
 * The callback is registered once per process and never removed: a list that grows with each transaction would slow
 * down every commit.
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
		sweep_ask(MyDatabaseId);
	if (event == XACT_EVENT_PREPARE && wake_at_commit)
		sweep_ask_note_prepared();
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
		wake_at_commit = false;
}

/*
 * SQL: sweep._system_identifier() RETURNS bigint
 *
 * CREATE EXTENSION is part of it, because a dump may be restored into the database that it is of (pg_restore --clean).
 */
Datum
sweep_worker_system_identifier(PG_FUNCTION_ARGS)
{
	Oid			extension = sweep_extension_find() ? sweep_extension()->id : InvalidOid;

	PG_RETURN_DATUM(hash_uint32_extended(extension, GetSystemIdentifier()));
}

/* SQL: sweep._is_home(system_identifier bigint, database oid) RETURNS boolean */
Datum
sweep_worker_is_home(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(PG_GETARG_INT64(0) == DatumGetInt64(sweep_worker_system_identifier(fcinfo)) && PG_GETARG_OID(1) == MyDatabaseId);
}
