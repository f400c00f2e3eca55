/*
 * lease.c
 *		The right to run a job, and what else is known by a lock.
 *
 * A lease is a session advisory lock held by the process that runs: it cannot expire under its holder,
 * and it is gone at once when the process is. Only ever tried, never waited for. A session may take
 * one by SQL, to keep runs away or to do by hand what the job does; it can give back only what it took
 * so, not the lease of the run it is part of.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "compat.h"
#include "lease.h"

/* Keys this session took by sweep.try_lease, one entry per call. */
static List *taken_keys = NIL;

static LOCKMODE lock_mode(SweepLeaseMode mode);
static void set_tag(LOCKTAG *tag, Oid database, uint64 number, uint16 lock_class);
static ListCell *find_taken_key(const char *key);

PG_FUNCTION_INFO_V1(sweep_lease_try);
PG_FUNCTION_INFO_V1(sweep_lease_release);
PG_FUNCTION_INFO_V1(sweep_lease_run_is_alive);

void
sweep_lease_tag(LOCKTAG *tag, const char *key)
{
	set_tag(tag, MyDatabaseId, hash_bytes_extended((const unsigned char *) key, strlen(key), 0), SWEEP_LOCK_LEASE);
}

bool
sweep_lease_acquire(const char *key, SweepLeaseMode mode)
{
	LOCKTAG		tag;

	sweep_lease_tag(&tag, key);
	return LockAcquire(&tag, lock_mode(mode), true, true) != LOCKACQUIRE_NOT_AVAIL;
}

void
sweep_lease_give_back(const char *key, SweepLeaseMode mode)
{
	LOCKTAG		tag;

	sweep_lease_tag(&tag, key);
	if (sweep_lock_held_by_me(&tag, lock_mode(mode)))
		LockRelease(&tag, lock_mode(mode), true);
}

bool
sweep_lease_is_held(const char *key, SweepLeaseMode mode)
{
	LOCKTAG		tag;

	sweep_lease_tag(&tag, key);
	return sweep_lock_held_by_me(&tag, lock_mode(mode));
}

bool
sweep_lease_acquire_dispatch(const char *job)
{
	LOCKTAG		tag;

	set_tag(&tag, MyDatabaseId, hash_bytes_extended((const unsigned char *) job, strlen(job), 0), SWEEP_LOCK_DISPATCH);
	return LockAcquire(&tag, ExclusiveLock, false, true) != LOCKACQUIRE_NOT_AVAIL;
}

bool
sweep_lease_acquire_run(int64 run_id)
{
	LOCKTAG		tag;

	set_tag(&tag, MyDatabaseId, (uint64) run_id, SWEEP_LOCK_RUN);
	return LockAcquire(&tag, ExclusiveLock, true, true) != LOCKACQUIRE_NOT_AVAIL;
}

void
sweep_lease_give_back_run(int64 run_id)
{
	LOCKTAG		tag;

	set_tag(&tag, MyDatabaseId, (uint64) run_id, SWEEP_LOCK_RUN);
	if (sweep_lock_held_by_me(&tag, ExclusiveLock))
		LockRelease(&tag, ExclusiveLock, true);
}

void
sweep_lease_hold_database(Oid database)
{
	LOCKTAG		tag;

	set_tag(&tag, InvalidOid, database, SWEEP_LOCK_DATABASE);
	(void) LockAcquire(&tag, ShareLock, false, false);
}

bool
sweep_lease_database_is_held(Oid database)
{
	LOCKTAG		tag;

	set_tag(&tag, InvalidOid, database, SWEEP_LOCK_DATABASE);
	if (LockAcquire(&tag, ExclusiveLock, true, true) == LOCKACQUIRE_NOT_AVAIL)
		return true;
	LockRelease(&tag, ExclusiveLock, true);
	return false;
}

/* SQL: sweep.try_lease(key text) RETURNS boolean */
Datum
sweep_lease_try(PG_FUNCTION_ARGS)
{
	char	   *key = text_to_cstring(PG_GETARG_TEXT_PP(0));
	MemoryContext old;

	if (!sweep_lease_acquire(key, LEASE_ALONE))
		PG_RETURN_BOOL(false);
	old = MemoryContextSwitchTo(TopMemoryContext);
	taken_keys = lappend(taken_keys, pstrdup(key));
	MemoryContextSwitchTo(old);
	PG_RETURN_BOOL(true);
}

/* SQL: sweep.release_lease(key text) RETURNS boolean */
Datum
sweep_lease_release(PG_FUNCTION_ARGS)
{
	char	   *key = text_to_cstring(PG_GETARG_TEXT_PP(0));
	ListCell   *cell = find_taken_key(key);

	if (cell == NULL)
	{
		ereport(WARNING,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("lease \"%s\" was not taken by this session", key),
				 errhint("sweep.try_lease() takes it.")));
		PG_RETURN_BOOL(false);
	}
	taken_keys = list_delete_cell(taken_keys, cell);
	sweep_lease_give_back(key, LEASE_ALONE);
	PG_RETURN_BOOL(true);
}

/* SQL: sweep._run_is_alive(run_id bigint) RETURNS boolean */
Datum
sweep_lease_run_is_alive(PG_FUNCTION_ARGS)
{
	LOCKTAG		tag;

	set_tag(&tag, MyDatabaseId, (uint64) PG_GETARG_INT64(0), SWEEP_LOCK_RUN);
	if (sweep_lock_held_by_me(&tag, ExclusiveLock))
		PG_RETURN_BOOL(true);
	if (LockAcquire(&tag, ShareLock, true, true) == LOCKACQUIRE_NOT_AVAIL)
		PG_RETURN_BOOL(true);
	LockRelease(&tag, ShareLock, true);
	PG_RETURN_BOOL(false);
}

static LOCKMODE
lock_mode(SweepLeaseMode mode)
{
	return mode == LEASE_SHARED ? ShareLock : ExclusiveLock;
}

static void
set_tag(LOCKTAG *tag, Oid database, uint64 number, uint16 lock_class)
{
	SET_LOCKTAG_ADVISORY(*tag, database, (uint32) (number >> 32), (uint32) number, lock_class);
}

static ListCell *
find_taken_key(const char *key)
{
	ListCell   *cell;

	foreach(cell, taken_keys)
	{
		if (strcmp(lfirst(cell), key) == 0)
			return cell;
	}
	return NULL;
}
