/*
 * availability.c
 *		Whether the jobs of this database can be started in the background, and what keeps them from it.
 *
 * Called by SQL: by what creates, starts or resumes a job, and by the views.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xlog.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "base/clock.h"
#include "base/settings.h"
#include "base/shared.h"

/* Time for which the launcher may be away without a word: the postmaster starts it again. */
#define AWAY_US (10 * INT64CONST(1000000))

typedef struct Obstacle
{
	const char *reason;			/* NULL: there is none */
	const char *hint;
} Obstacle;

static Obstacle find_obstacle(void);
static bool is_template(void);
static bool is_launcher_away(void);

PG_FUNCTION_INFO_V1(sweep_availability_has_workers);
PG_FUNCTION_INFO_V1(sweep_availability_obstacle);
PG_FUNCTION_INFO_V1(sweep_availability_require);

/* SQL: sweep._has_workers() RETURNS boolean */
Datum
sweep_availability_has_workers(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(sweep_shared_exists());
}

/* SQL: sweep._no_scheduler(OUT reason text, OUT hint text): NULLs when a scheduler comes where something is due */
Datum
sweep_availability_obstacle(PG_FUNCTION_ARGS)
{
	Obstacle	found = find_obstacle();
	bool		nulls[2] = {found.reason == NULL, found.reason == NULL};
	Datum		values[2] = {0};
	TupleDesc	description;

	if (get_call_result_type(fcinfo, NULL, &description) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	if (found.reason != NULL)
	{
		values[0] = CStringGetTextDatum(found.reason);
		values[1] = CStringGetTextDatum(found.hint);
	}
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(description), values, nulls)));
}

static Obstacle
find_obstacle(void)
{
	if (!sweep_shared_exists())
		return (Obstacle) {"pg_sweep is not in shared_preload_libraries",
						   "Add pg_sweep to shared_preload_libraries and restart the server; CALL sweep.run() works without, for a job that has batches."};
	if (RecoveryInProgress())
		return (Obstacle) {"the server is a standby", "Jobs run on the primary, and here after a promotion."};
	if (!sweep_enabled)
		return (Obstacle) {"pg_sweep.enabled is off", "Set pg_sweep.enabled to on and reload the configuration."};
	if (sweep_start_paused)
		return (Obstacle) {"pg_sweep.start_paused is on", "Set pg_sweep.start_paused to off and reload the configuration."};
	if (!sweep_settings_allow_database(get_database_name(MyDatabaseId)))
		return (Obstacle) {"the database is not in pg_sweep.databases", "Add the database to pg_sweep.databases and reload the configuration."};
	if (is_template())
		return (Obstacle) {"the database is a template", "ALTER DATABASE with IS_TEMPLATE false makes it an ordinary one."};
	if (is_launcher_away())
		return (Obstacle) {"the launcher is not running", "The postmaster starts it again, if max_worker_processes lets it; the server log has the error that ended it."};
	return (Obstacle) {NULL};
}

static bool
is_template(void)
{
	HeapTuple	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(MyDatabaseId));
	bool		template = HeapTupleIsValid(tuple) && ((Form_pg_database) GETSTRUCT(tuple))->datistemplate;

	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return template;
}

static bool
is_launcher_away(void)
{
	SweepShared *shared = sweep_shared();
	bool		away;

	sweep_shared_lock(LW_SHARED);
	away = shared->launcher == INVALID_PROC_NUMBER && sweep_monotonic_us() - shared->launcher_left_us >= AWAY_US;
	sweep_shared_unlock();
	return away;
}

/* SQL: sweep._require_workers() RETURNS void */
Datum
sweep_availability_require(PG_FUNCTION_ARGS)
{
	char	   *database = get_database_name(MyDatabaseId);

	if (!sweep_shared_exists())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("pg_sweep cannot start background workers"),
				 errdetail("The library was not loaded at server start."),
				 errhint("Add pg_sweep to shared_preload_libraries and restart the server; CALL sweep.run() works without, for a job that has batches.")));
	if (!sweep_settings_allow_database(database))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("pg_sweep does not start background workers in database \"%s\"", database),
				 errhint("Add the database to pg_sweep.databases and reload the configuration.")));
	PG_RETURN_VOID();
}
