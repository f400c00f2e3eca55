/*
 * ask.c
 *		Asks for a scheduler in a database.
 *
 * A flag is set after the commit with the work has become visible. It is cleared, under the lock, before the snapshot in which
 * the scheduler looks for work. A process that finds the flag set therefore need not do anything. While the database has a
 * scheduler, the flag is in its entry; the scheduler decides under the same lock whether it may leave. Otherwise the flag is a
 * bit that several databases share: the launcher clears it, starts a scheduler in each of these databases that has none, and
 * sets the flags of schedulers that were started since. Model: test/model/idle.pml.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xlog.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "base/ask.h"
#include "base/settings.h"

/* Time without a launcher, in us, after which its absence is reported: the postmaster normally starts it again. */
#define AWAY_US (10 * INT64CONST(1000000))

static const char *find_obstacle(void);
static bool is_template(void);
static bool is_launcher_away(void);

PG_FUNCTION_INFO_V1(sweep_ask_has_workers);
PG_FUNCTION_INFO_V1(sweep_ask_obstacle);

void
sweep_ask(Oid database)
{
	uint32		bit;
	ProcNumber	asked;

	if (!sweep_shared_exists())
		return;
	bit = sweep_shared_bit(database);
	/* The commit must be visible before the flags are read. */
	pg_memory_barrier();
	if (pg_atomic_read_u32(&sweep_shared()->asked[bit / 32]) & (1U << bit % 32))
		return;
	for (int i = 0; i < sweep_shared_database_count(); i++)
	{
		if (pg_atomic_read_u32(&sweep_shared_database(i)->asked) == database)
			return;
	}
	sweep_shared_lock(LW_EXCLUSIVE);
	asked = sweep_shared_ask(database);
	sweep_shared_unlock();
	sweep_shared_wake(asked);
}

void
sweep_ask_to_notify(Oid database)
{
	SweepDatabase *entry;
	ProcNumber	asked;

	sweep_shared_lock(LW_EXCLUSIVE);
	entry = sweep_shared_find_database(database);
	if (entry != NULL)
		entry->news = true;
	asked = entry != NULL ? entry->procno : sweep_shared_ask(database);
	sweep_shared_unlock();
	sweep_shared_wake(asked);
}

/* It is not known which prepared transaction has ended. sweep._next_wake() covers those from before the start of the server. */
void
sweep_ask_for_prepared(void)
{
	uint32		bit = sweep_shared_bit(MyDatabaseId);

	if (pg_atomic_read_u32(&sweep_shared()->prepared[bit / 32]) & (1U << bit % 32))
		sweep_ask(MyDatabaseId);
}

void
sweep_ask_note_prepared(void)
{
	uint32		bit = sweep_shared_bit(MyDatabaseId);

	pg_atomic_fetch_or_u32(&sweep_shared()->prepared[bit / 32], 1U << bit % 32);
}

/* SQL: sweep._has_workers() RETURNS boolean */
Datum
sweep_ask_has_workers(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(sweep_shared_exists());
}

/* SQL: sweep._no_scheduler() RETURNS text: NULL when a scheduler is started in a database in which something is due */
Datum
sweep_ask_obstacle(PG_FUNCTION_ARGS)
{
	const char *obstacle = find_obstacle();

	if (obstacle == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(obstacle));
}

/* sweep._warn_no_scheduler has a hint for each. */
static const char *
find_obstacle(void)
{
	return !sweep_shared_exists() ? "pg_sweep is not in shared_preload_libraries" :
		RecoveryInProgress() ? "the server is a standby" :
		!sweep_enabled ? "pg_sweep.enabled is off" :
		sweep_start_paused ? "pg_sweep.start_paused is on" :
		!sweep_settings_allow_database(get_database_name(MyDatabaseId)) ? "the database is not in pg_sweep.databases" :
		is_template() ? "the database is a template" :
		is_launcher_away() ? "the launcher is not running" : NULL;
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
	const SweepShared *shared = sweep_shared();
	bool		away;

	sweep_shared_lock(LW_SHARED);
	away = shared->launcher == INVALID_PROC_NUMBER && sweep_monotonic_us() - shared->launcher_left_us >= AWAY_US;
	sweep_shared_unlock();
	return away;
}
