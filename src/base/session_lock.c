/*
 * session_lock.c
 *		Locks that a session takes by SQL.
 *
 * A session takes the lock of a job by sweep.try_lock to keep runs of the job from starting, for example while it does the work by
 * hand. By SQL it can give back only locks that it took in this way, and not the lock of the run that it performs. sweep.try_lock
 * takes the lock for its own role and for all roles that have jobs with this key and for which the session may act.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "base/ask.h"
#include "base/extension.h"
#include "base/lock.h"
#include "base/session_lock.h"
#include "base/sql.h"
#include "base/txn.h"

static SweepStatement lock_roles_sql = {
	.text = "SELECT $2 AS role UNION SELECT sweep._role_oid(j.run_as) FROM sweep.job_definition j WHERE j.lock_key = $1 "
		"AND sweep._role_oid(j.run_as) IS NOT NULL AND sweep._may_act_on($2, j.run_as, true) ORDER BY role",
	.types = {TEXTOID, OIDOID}};

/* Number of locks that a session may have by sweep.try_lock. */
#define MAX_LOCKS 1000

/* The locks of one call of sweep.try_lock. */
typedef struct TakenLock
{
	char	   *key;
	int			count;
	int			taken;			/* number of locks taken, the first ones of the array */
	SweepLock	locks[FLEXIBLE_ARRAY_MEMBER];	/* one for each role */
} TakenLock;

/* Locks of this session, one entry per call. */
static List *taken_locks = NIL;

static TakenLock *find_roles(text *key);
static void take_all(void *arg);
static void forget_last(void *arg);
static void release_taken(const TakenLock *lock);
static ListCell *find_taken(const char *key);

PG_FUNCTION_INFO_V1(sweep_lock_try);
PG_FUNCTION_INFO_V1(sweep_lock_release);

void
sweep_session_lock_release_all(void)
{
	sweep_lock_give_back_all();
	LockReleaseAll(USER_LOCKMETHOD, true);
	list_free_deep(taken_locks);
	taken_locks = NIL;
}

void
sweep_session_lock_release_taken(void)
{
	ListCell   *cell;

	foreach(cell, taken_locks)
		release_taken(lfirst(cell));
	if (taken_locks != NIL)
		sweep_ask(MyDatabaseId);
	list_free_deep(taken_locks);
	taken_locks = NIL;
}

/* SQL: sweep.try_lock(key text) RETURNS boolean */
Datum
sweep_lock_try(PG_FUNCTION_ARGS)
{
	TakenLock *lock;
	MemoryContext old;

	sweep_require_usable("sweep.try_lock()");
	/* A parallel worker would give the lock back at its end. */
	PreventCommandIfParallelMode("sweep.try_lock()");
	/* Limited, because all sessions share the lock table. */
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
	sweep_txn_undo_on_error(take_all, forget_last, lock);
	if (lock->taken == lock->count)
		PG_RETURN_BOOL(true);
	forget_last(lock);
	PG_RETURN_BOOL(false);
}

/* Finds the roles whose lock is taken: the current one, and the roles of jobs with this key for which it may act. */
static TakenLock *
find_roles(text *key)
{
	Datum		values[] = {PointerGetDatum(key), ObjectIdGetDatum(GetUserId())};
	char	   *name = text_to_cstring(key);
	TakenLock *lock;
	uint64		count;

	sweep_sql_begin_call();
	count = sweep_sql_execute(&lock_roles_sql, values, NULL);
	lock = MemoryContextAlloc(TopMemoryContext, offsetof(TakenLock, locks) + sizeof(SweepLock) * count + strlen(name) + 1);
	lock->count = (int) count;
	lock->taken = 0;
	for (uint64 i = 0; i < count; i++)
	{
		sweep_sql_row(i);
		lock->locks[i] = sweep_lock_of_job(sweep_sql_oid(1), name, ExclusiveLock);
	}
	lock->key = memcpy(&lock->locks[count], name, strlen(name) + 1);
	sweep_sql_end_call();
	return lock;
}

/* Stops at the first lock that another process has. Raises when the lock table is full. */
static void
take_all(void *arg)
{
	TakenLock *lock = arg;

	while (lock->taken < lock->count && sweep_lock_acquire(&lock->locks[lock->taken]))
		lock->taken++;
}

/* If one lock is not free, gives back all that were taken. */
static void
forget_last(void *arg)
{
	TakenLock *lock = arg;

	release_taken(lock);
	taken_locks = list_delete_last(taken_locks);
	pfree(lock);
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
	/* A run may be waiting for the lock. */
	sweep_ask(MyDatabaseId);
	PG_RETURN_BOOL(true);
}

static void
release_taken(const TakenLock *lock)
{
	for (int i = 0; i < lock->taken; i++)
		sweep_lock_give_back(&lock->locks[i]);
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
