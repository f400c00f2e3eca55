/*
 * databases.h
 *		The launcher's list of the databases in which pg_sweep may work, with the moment at which each is next due.
 */
#ifndef SWEEP_DATABASES_H
#define SWEEP_DATABASES_H

#include "base/shared.h"
#include "utils/hsearch.h"

/* A database of the list. */
typedef struct SweepKnownDatabase
{
	Oid			database;
	char		name[NAMEDATALEN];
	uint32		listed;			/* the last reading in which it was there, and pg_sweep might work in it */
	bool		there;			/* has a scheduler */
	bool		is_short;		/* its scheduler has left while runs there waited for others to end */
	TimestampTz due_at;			/* due since or from this moment */
	long		pause_ms;		/* last pause after a failure */
	int64		next_try_us;	/* monotonic: no scheduler is started before */
	SweepDatabaseRecord record;
} SweepKnownDatabase;

/*
 * Reads the list of databases in a transaction of its own; false when a session has locked pg_database. To be called first. With
 * "warn", warns of names in pg_sweep.databases that no database has.
 */
extern bool sweep_databases_list(bool warn);

/* Makes all databases due that may have the extension. */
extern void sweep_databases_forget_moments(void);

/* The first looks a database up, or returns NULL; the second begins a scan with hash_seq_search(). */
extern SweepKnownDatabase *sweep_databases_find(Oid database);
extern void sweep_databases_scan(HASH_SEQ_STATUS *status);

#endif							/* SWEEP_DATABASES_H */
