/*
 * databases.c
 *		The launcher's list of the databases in which pg_sweep may work, with the moment at which each is next due.
 *
 * Called by launcher.c. Nothing is kept across a restart of the launcher: a database that is new to it is due at once.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "pgstat.h"
#include "storage/lmgr.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/varlena.h"

#include "base/settings.h"
#include "base/shared.h"
#include "process/databases.h"

static HTAB *known = NULL;		/* of SweepKnownDatabase */
static uint32 reading = 0;		/* number of times that the list was read */

static void enter_database(Oid oid, const char *name);
static List *strike(List *names, const char *name);
static void warn_of_missing(List *names);
static void forget_unlisted(void);

/*
 * Shared catalogs can be read without a database, but without SQL. False when a session has locked pg_database: the launcher
 * tries again soon, and can watch the timeouts of runs meanwhile.
 */
bool
sweep_databases_list(bool warn)
{
	HASHCTL		control = {.keysize = sizeof(Oid), .entrysize = sizeof(SweepKnownDatabase)};
	Relation	relation;
	TableScanDesc scan;
	HeapTuple	tuple;
	List	   *missing = NIL;
	bool		locked;

	if (known == NULL)
		known = hash_create("pg_sweep databases", 128, &control, HASH_ELEM | HASH_BLOBS);
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	locked = ConditionalLockRelationOid(DatabaseRelationId, AccessShareLock);
	if (locked)
	{
		reading++;
		(void) SplitIdentifierString(pstrdup(sweep_databases ? sweep_databases : ""), ',', &missing);
		(void) GetTransactionSnapshot();
		relation = table_open(DatabaseRelationId, NoLock);
		scan = table_beginscan_catalog(relation, 0, NULL);
		while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
		{
			Form_pg_database form = (Form_pg_database) GETSTRUCT(tuple);

			missing = strike(missing, NameStr(form->datname));
			/* A connection limit of -2 marks a database whose DROP DATABASE was interrupted. */
			if (sweep_enabled && !sweep_start_paused && form->datallowconn && !form->datistemplate && form->datconnlimit != -2 &&
				sweep_settings_allow_database(NameStr(form->datname)))
				enter_database(form->oid, NameStr(form->datname));
		}
		table_endscan(scan);
		table_close(relation, AccessShareLock);
		if (warn)
			warn_of_missing(missing);
	}
	CommitTransactionCommand();
	pgstat_report_stat(false);
	if (locked)
		forget_unlisted();
	return locked;
}

/* A new name means that the database is treated as a new one. */
static void
enter_database(Oid oid, const char *name)
{
	bool		found;
	SweepKnownDatabase *database = hash_search(known, &oid, HASH_ENTER, &found);

	if (!found || strcmp(database->name, name) != 0)
	{
		memset(database, 0, sizeof(*database));
		database->database = oid;
		strlcpy(database->name, name, sizeof(database->name));
		database->due_at = GetCurrentTimestamp();
	}
	database->listed = reading;
}

static List *
strike(List *names, const char *name)
{
	ListCell   *cell;

	foreach(cell, names)
	{
		if (strcmp(lfirst(cell), name) == 0)
			names = foreach_delete_current(names, cell);
	}
	return names;
}

static void
warn_of_missing(List *names)
{
	ListCell   *cell;

	foreach(cell, names)
		ereport(WARNING,
				(errcode(ERRCODE_UNDEFINED_DATABASE),
				 errmsg("database \"%s\", which pg_sweep.databases names, does not exist", (char *) lfirst(cell)),
				 errhint("Names in capitals, or with a comma, are enclosed in double quotes.")));
}

/* Removes databases that do not exist or are not in pg_sweep.databases, and all while pg_sweep.enabled is off or pg_sweep.start_paused on. */
static void
forget_unlisted(void)
{
	HASH_SEQ_STATUS status;
	SweepKnownDatabase *database;

	hash_seq_init(&status, known);
	while ((database = hash_seq_search(&status)) != NULL)
	{
		if (database->listed == reading)
			continue;
		sweep_shared_lock(LW_SHARED);
		sweep_shared_dismiss(database->database, -1, PG_INT32_MAX);
		sweep_shared_unlock();
		(void) hash_search(known, &database->database, HASH_REMOVE, NULL);
	}
}

void
sweep_databases_forget_moments(void)
{
	HASH_SEQ_STATUS status;
	SweepKnownDatabase *database;

	hash_seq_init(&status, known);
	while ((database = hash_seq_search(&status)) != NULL)
	{
		if (!TIMESTAMP_IS_NOEND(database->due_at))
			database->due_at = GetCurrentTimestamp();
	}
}

SweepKnownDatabase *
sweep_databases_find(Oid database)
{
	return known == NULL ? NULL : hash_search(known, &database, HASH_FIND, NULL);
}

void
sweep_databases_scan(HASH_SEQ_STATUS *status)
{
	hash_seq_init(status, known);
}
