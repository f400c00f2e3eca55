/*
 * lock.c
 *		The right to run a job, and the other classes of locks.
 *
 * A lock is an advisory lock that the process of the run has until it gives it back: it cannot expire under its holder,
 * and it is gone at once when the process is. It is tried, and never waited for. A session may take one by SQL (sweep.try_lock), to
 * keep runs away or to do the work of the job by hand. By SQL it can give back only locks that it took in this way, and not the lock
 * of the run that it is part of.
 *
 * The keys of each role are its own. Were they shared, a role with one job could keep those of all other
 * roles from running, by their keys; a check of rights when a key is chosen or taken would pass before the other
 * job exists. A session takes the key of those roles whose jobs use it and for which it may act, otherwise that of its
 * own role.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "base/ask.h"
#include "base/extension.h"
#include "base/held_lock.h"
#include "base/lock.h"
#include "base/secret.h"
#include "base/shared.h"
#include "base/sql.h"
#include "pure/siphash.h"

static SweepStatement lock_roles_sql = {
	.text = "SELECT $2 AS role UNION SELECT sweep._role_oid(j.run_as) FROM sweep.job_definition j WHERE j.lock_key = $1 "
		"AND sweep._role_oid(j.run_as) IS NOT NULL AND sweep._may_act_on($2, j.run_as, true) ORDER BY role",
	.types = {TEXTOID, OIDOID}};

/* Number of locks that a session may have by sweep.try_lock. */
#define MAX_LOCKS 1000

/* The locks of one sweep.try_lock. */
typedef struct TakenLock
{
	char	   *key;
	int			role_count;
	Oid			roles[FLEXIBLE_ARRAY_MEMBER];
} TakenLock;

/* Locks of this session, one entry per call. */
static List *taken_locks = NIL;

/* sweep._lock_is_held() has returned true. */
static bool seen_held = false;

static LOCKMODE lock_mode(SweepLockMode mode);
static void set_tag(LOCKTAG *tag, Oid database, uint64 number, uint16 lock_class);
static uint64 number_of(Oid role, uint16 lock_class, const char *name);
static TakenLock *find_roles(text *key);
static bool take_all(const TakenLock *lock);
static void release_taken(const TakenLock *lock);
static ListCell *find_taken(const char *key);

PG_FUNCTION_INFO_V1(sweep_lock_try);
PG_FUNCTION_INFO_V1(sweep_lock_release);
PG_FUNCTION_INFO_V1(sweep_lock_run_is_alive);
PG_FUNCTION_INFO_V1(sweep_lock_probe);
PG_FUNCTION_INFO_V1(sweep_lock_try_ending);
PG_FUNCTION_INFO_V1(sweep_lock_number);

void
sweep_lock_tag(LOCKTAG *tag, Oid role, const char *key)
{
	set_tag(tag, MyDatabaseId, number_of(role, SWEEP_LOCK_JOB, key), SWEEP_LOCK_JOB);
}

bool
sweep_lock_acquire(Oid role, const char *key, SweepLockMode mode)
{
	LOCKTAG		tag;

	sweep_lock_tag(&tag, role, key);
	return sweep_held_lock_acquire(&tag, lock_mode(mode));
}

void
sweep_lock_give_back(Oid role, const char *key, SweepLockMode mode)
{
	LOCKTAG		tag;

	sweep_lock_tag(&tag, role, key);
	sweep_held_lock_give_back(&tag, lock_mode(mode));
}

bool
sweep_lock_is_held(Oid role, const char *key, SweepLockMode mode)
{
	LOCKTAG		tag;

	sweep_lock_tag(&tag, role, key);
	return sweep_held_lock_is_mine(&tag, lock_mode(mode));
}

bool
sweep_lock_has_seen_held(void)
{
	bool		seen = seen_held;

	seen_held = false;
	return seen;
}

bool
sweep_lock_acquire_divided(uint16 lock_class, const char *job)
{
	LOCKTAG		tag;

	set_tag(&tag, MyDatabaseId, number_of(InvalidOid, lock_class, job), lock_class);
	return LockAcquire(&tag, ExclusiveLock, false, true) != LOCKACQUIRE_NOT_AVAIL;
}

LockAcquireResult
sweep_lock_acquire_queue(int32 queue_id, SweepLockMode mode, bool wait)
{
	LOCKTAG		tag;

	set_tag(&tag, MyDatabaseId, (uint32) queue_id, SWEEP_LOCK_USE);
	return LockAcquire(&tag, lock_mode(mode), false, !wait);
}

bool
sweep_lock_acquire_number(uint16 lock_class, int64 number)
{
	LOCKTAG		tag;

	set_tag(&tag, MyDatabaseId, (uint64) number, lock_class);
	return sweep_held_lock_acquire(&tag, ExclusiveLock);
}

void
sweep_lock_give_back_number(uint16 lock_class, int64 number)
{
	LOCKTAG		tag;

	set_tag(&tag, MyDatabaseId, (uint64) number, lock_class);
	sweep_held_lock_give_back(&tag, ExclusiveLock);
}

void
sweep_lock_release_all(void)
{
	sweep_held_lock_give_back_all();
	LockReleaseAll(USER_LOCKMETHOD, true);
	list_free_deep(taken_locks);
	taken_locks = NIL;
}

void
sweep_lock_release_taken(void)
{
	ListCell   *cell;

	foreach(cell, taken_locks)
		release_taken(lfirst(cell));
	if (taken_locks != NIL)
		sweep_ask(MyDatabaseId);
	list_free_deep(taken_locks);
	taken_locks = NIL;
}

void
sweep_lock_hold_database(Oid database)
{
	LOCKTAG		tag;

	set_tag(&tag, InvalidOid, database, SWEEP_LOCK_DATABASE);
	(void) LockAcquire(&tag, ShareLock, false, false);
}

bool
sweep_lock_database_is_held(Oid database)
{
	LOCKTAG		tag;

	set_tag(&tag, InvalidOid, database, SWEEP_LOCK_DATABASE);
	if (LockAcquire(&tag, ExclusiveLock, true, true) == LOCKACQUIRE_NOT_AVAIL)
		return true;
	LockRelease(&tag, ExclusiveLock, true);
	return false;
}

/* SQL: sweep.try_lock(key text) RETURNS boolean */
Datum
sweep_lock_try(PG_FUNCTION_ARGS)
{
	TakenLock *lock;
	MemoryContext old;

	sweep_require_usable("sweep.try_lock()");
	/* Locks are in a table that all sessions share. */
	if (list_length(taken_locks) >= MAX_LOCKS)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("lock \"%s\" cannot be taken: the session has %d already", text_to_cstring(PG_GETARG_TEXT_PP(0)), MAX_LOCKS),
				 errhint("sweep.release_lock() gives one back.")));
	lock = find_roles(PG_GETARG_TEXT_PP(0));
	/* The entry is made before the lock is taken, so that an error for lack of memory leaves no lock without an entry. */
	old = MemoryContextSwitchTo(TopMemoryContext);
	taken_locks = lappend(taken_locks, lock);
	MemoryContextSwitchTo(old);
	if (take_all(lock))
		PG_RETURN_BOOL(true);
	taken_locks = list_delete_last(taken_locks);
	pfree(lock);
	PG_RETURN_BOOL(false);
}

/* The roles whose key is taken: the own one, and those of the jobs that the role may act on. */
static TakenLock *
find_roles(text *key)
{
	Datum		values[] = {PointerGetDatum(key), ObjectIdGetDatum(GetUserId())};
	char	   *name = text_to_cstring(key);
	TakenLock *lock;
	uint64		count;

	sweep_sql_begin_call();
	count = sweep_sql_execute(&lock_roles_sql, values, NULL);
	lock = MemoryContextAlloc(TopMemoryContext, offsetof(TakenLock, roles) + sizeof(Oid) * count + strlen(name) + 1);
	lock->role_count = (int) count;
	for (uint64 i = 0; i < count; i++)
	{
		sweep_sql_row(i);
		lock->roles[i] = sweep_sql_oid(1);
	}
	lock->key = memcpy(&lock->roles[count], name, strlen(name) + 1);
	sweep_sql_end_call();
	return lock;
}

/* All or nothing. */
static bool
take_all(const TakenLock *lock)
{
	for (int i = 0; i < lock->role_count; i++)
	{
		if (sweep_lock_acquire(lock->roles[i], lock->key, LOCK_ALONE))
			continue;
		while (--i >= 0)
			sweep_lock_give_back(lock->roles[i], lock->key, LOCK_ALONE);
		return false;
	}
	return true;
}

/* SQL: sweep.release_lock(key text) RETURNS boolean */
Datum
sweep_lock_release(PG_FUNCTION_ARGS)
{
	char	   *key = text_to_cstring(PG_GETARG_TEXT_PP(0));
	ListCell   *cell = find_taken(key);
	TakenLock *lock;

	sweep_require_usable("sweep.release_lock()");
	if (cell == NULL)
	{
		ereport(WARNING,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("lock \"%s\" was not taken by this session", key),
				 errhint("sweep.try_lock() takes it.")));
		PG_RETURN_BOOL(false);
	}
	lock = lfirst(cell);
	taken_locks = list_delete_cell(taken_locks, cell);
	release_taken(lock);
	pfree(lock);
	/* Something may have been started that waits for it. */
	sweep_ask(MyDatabaseId);
	PG_RETURN_BOOL(true);
}

static void
release_taken(const TakenLock *lock)
{
	for (int i = 0; i < lock->role_count; i++)
		sweep_lock_give_back(lock->roles[i], lock->key, LOCK_ALONE);
}

/* SQL: sweep._run_is_alive(run_id bigint) RETURNS boolean */
Datum
sweep_lock_run_is_alive(PG_FUNCTION_ARGS)
{
	LOCKTAG		tag;

	set_tag(&tag, MyDatabaseId, (uint64) PG_GETARG_INT64(0), SWEEP_LOCK_RUN);
	if (sweep_held_lock_is_mine(&tag, ExclusiveLock) || !sweep_held_lock_acquire(&tag, ShareLock))
		PG_RETURN_BOOL(true);
	sweep_held_lock_give_back(&tag, ShareLock);
	PG_RETURN_BOOL(false);
}

/*
 * SQL: sweep._lock_is_held(role oid, key text, shared boolean) RETURNS boolean
 *
 * A process that took the lock to see whether it is free would hold up others, whose runs might be skipped for it.
 * A lock that cannot be shared is therefore only counted; to share a shared one is in the way of no other share.
 */
Datum
sweep_lock_probe(PG_FUNCTION_ARGS)
{
	Oid			role = PG_GETARG_OID(0);
	char	   *key = text_to_cstring(PG_GETARG_TEXT_PP(1));
	LOCKTAG		tag;
	bool		held;

	sweep_lock_tag(&tag, role, key);
	held = sweep_held_lock_is_wanted(&tag);
	if (held && PG_GETARG_BOOL(2))
	{
		held = !sweep_held_lock_acquire(&tag, ShareLock);
		if (!held)
			sweep_held_lock_give_back(&tag, ShareLock);
	}
	seen_held |= held;
	PG_RETURN_BOOL(held);
}

/* SQL: sweep._try_lock_ending(job text) RETURNS boolean */
Datum
sweep_lock_try_ending(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(sweep_lock_acquire_divided(SWEEP_LOCK_ENDING, text_to_cstring(PG_GETARG_TEXT_PP(0))));
}

/* SQL: sweep._lock_number(role oid, key text) RETURNS bigint */
Datum
sweep_lock_number(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64((int64) number_of(PG_GETARG_OID(0), SWEEP_LOCK_JOB, text_to_cstring(PG_GETARG_TEXT_PP(1))));
}

static LOCKMODE
lock_mode(SweepLockMode mode)
{
	return mode == LOCK_SHARED ? ShareLock : ExclusiveLock;
}

static void
set_tag(LOCKTAG *tag, Oid database, uint64 number, uint16 lock_class)
{
	SET_LOCKTAG_ADVISORY(*tag, database, (uint32) (number >> 32), (uint32) number, lock_class);
	/* See held_lock.c. */
	tag->locktag_lockmethodid = DEFAULT_LOCKMETHOD;
}

/* Sessions of a server that does not preload the library share no secret. */
static uint64
number_of(Oid role, uint16 lock_class, const char *name)
{
	static const uint64_t known[2] = {0};
	uint64		first = (uint64) role << 32 | lock_class;

	return sweep_shared_exists() ? sweep_secret_hash(first, name, strlen(name)) : sweep_siphash(known, first, name, strlen(name));
}

/* Finds the last entry of the key: the session may have taken it again as another role. */
static ListCell *
find_taken(const char *key)
{
	for (int i = list_length(taken_locks) - 1; i >= 0; i--)
	{
		const TakenLock *lock = list_nth(taken_locks, i);

		if (strcmp(lock->key, key) == 0)
			return list_nth_cell(taken_locks, i);
	}
	return NULL;
}
