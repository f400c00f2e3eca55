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
	bool		is_short;		/* its scheduler has left while runs waited for others to end */
	TimestampTz due_at;			/* since when it waits, or from when on */
	long		pause_ms;		/* last one after a failure */
	int64		next_try_us;	/* monotonic: not before */
	SweepDatabaseRecord record;
} SweepKnownDatabase;

/*
 * Reads the list of databases, in a transaction of its own; false when a session has locked it. To be called first. Warns, if it is
 * to, of names in pg_sweep.databases that are of no database.
 */
extern bool sweep_databases_list(bool warn);

/* Makes all of them due that have the extension, as far as is known. */
extern void sweep_databases_forget_moments(void);

/* Looks one up, or returns NULL; begins a scan with hash_seq_search(). */
extern SweepKnownDatabase *sweep_databases_find(Oid database);
extern void sweep_databases_scan(HASH_SEQ_STATUS *status);

#endif							/* SWEEP_DATABASES_H */
