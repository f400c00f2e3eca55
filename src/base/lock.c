/*
 * lock.c
 *		The right to run a job, and the other classes of locks.
 *
 * The process of a run holds its lock until it gives the lock back: it cannot expire while the process works, and is
 * released at once when the process ends. Transactions wait for the locks of queues; all others are only tried.
 *
 * The locks are in PostgreSQL's default lock method, where pg_advisory_unlock_all() and DISCARD ALL, which code of a job may
 * call, do not find them. In that method an abort releases session locks, too. A second lock with the same numbers bridges the
 * abort. It is in the method of advisory locks, which an abort does not release: the holder takes it before its locks are
 * released and gives it back once it has them again. A process gets a lock only if this second lock is free.
 *
 * Each role has keys of its own. With shared keys a role with one job could keep jobs of other roles from running by
 * using their keys; a check of rights at the choice of a key would not help, because the other job may be created
 * later.
 *
 * For lock numbers and the picked items of a run only hashes are compared. If the hash function had no secret, a user could
 * produce a collision on purpose. The secret is drawn while the library is preloaded, and every process inherits it. It is not
 * stored, so numbers that depend on it change with a restart of the server.
 */
#include "postgres.h"

#include "access/xact.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

#include "base/ask.h"
#include "base/compat.h"
#include "base/lock.h"
#include "base/shared.h"
#include "pure/siphash.h"

/* Initial number of entries. */
#define FIRST_ROOM 8

static uint64_t secret[2];

/* The locks of this process, with an entry for each time that a lock was taken. */
static SweepLock *held_locks = NULL;
static int	held_count = 0;
static int	held_room = 0;

/* Whether the process has taken second locks. */
static bool bridged = false;

/* Whether sweep._lock_is_held() has returned true. */
static bool seen_held = false;

static uint64 number_of(Oid role, uint16 lock_class, const char *name);
static SweepLock make_lock(Oid database, uint64 number, uint16 lock_class, LOCKMODE mode);
static SweepLock bridge_of(const SweepLock *lock);
static bool take(const SweepLock *lock, bool for_session, bool waits);
static void release(int index);
static void begin_bridge(XactEvent event, void *arg);
static void end_bridge(ResourceReleasePhase phase, bool is_commit, bool is_top_level, void *arg);
static void release_at_exit(int code, Datum arg);

PG_FUNCTION_INFO_V1(sweep_lock_run_is_alive);
PG_FUNCTION_INFO_V1(sweep_lock_probe);
PG_FUNCTION_INFO_V1(sweep_lock_try_ending);
PG_FUNCTION_INFO_V1(sweep_lock_number);

void
sweep_lock_draw_secret(void)
{
	if (!pg_strong_random(secret, sizeof(secret)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate random values")));
}

uint64
sweep_lock_hash(uint64 first, const void *data, Size size)
{
	return sweep_siphash(secret, first, data, size);
}

SweepLock
sweep_lock_of_job(Oid role, const char *key, LOCKMODE mode)
{
	return make_lock(MyDatabaseId, number_of(role, SWEEP_LOCK_JOB, key), SWEEP_LOCK_JOB, mode);
}

/* Memory for the entry is allocated before the lock is taken: a lock without an entry would never be given back. */
bool
sweep_lock_acquire(const SweepLock *lock)
{
	SweepLock	bridge = bridge_of(lock);

	if (held_room == 0)
	{
		held_locks = MemoryContextAlloc(TopMemoryContext, sizeof(SweepLock) * FIRST_ROOM);
		held_room = FIRST_ROOM;
		RegisterXactCallback(begin_bridge, NULL);
		RegisterResourceReleaseCallback(end_bridge, NULL);
		before_shmem_exit(release_at_exit, 0);
	}
	else if (held_count == held_room)
	{
		held_locks = repalloc(held_locks, sizeof(SweepLock) * held_room * 2);
		held_room *= 2;
	}
	if (!take(lock, true, false))
		return false;
	held_locks[held_count++] = *lock;
	/* The second lock is rarely held, and checking it is cheaper than taking it. */
	if (LockWaiterCount(&bridge.tag) == 0)
		return true;
	/* An error would leave the first lock held, so a full lock table counts as a lock of another process. */
	if (!sweep_lock_try_quietly(&bridge.tag, bridge.mode))
	{
		release(held_count - 1);
		return false;
	}
	LockRelease(&bridge.tag, lock->mode, true);
	return true;
}

void
sweep_lock_give_back(const SweepLock *lock)
{
	for (int i = held_count - 1; i >= 0; i--)
	{
		if (held_locks[i].mode != lock->mode || memcmp(&held_locks[i].tag, &lock->tag, sizeof(LOCKTAG)) != 0)
			continue;
		release(i);
		return;
	}
}

void
sweep_lock_give_back_all(void)
{
	while (held_count > 0)
		release(held_count - 1);
}

bool
sweep_lock_is_mine(const SweepLock *lock)
{
	SweepLock	bridge = bridge_of(lock);

	return sweep_lock_held_by_me(&lock->tag, lock->mode) || sweep_lock_held_by_me(&bridge.tag, lock->mode);
}

bool
sweep_lock_acquire_number(uint16 lock_class, int64 number)
{
	SweepLock	lock = make_lock(MyDatabaseId, (uint64) number, lock_class, ExclusiveLock);

	return sweep_lock_acquire(&lock);
}

void
sweep_lock_give_back_number(uint16 lock_class, int64 number)
{
	SweepLock	lock = make_lock(MyDatabaseId, (uint64) number, lock_class, ExclusiveLock);

	sweep_lock_give_back(&lock);
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
	SweepLock	lock = make_lock(MyDatabaseId, number_of(InvalidOid, lock_class, job), lock_class, ExclusiveLock);

	return take(&lock, false, false);
}

LockAcquireResult
sweep_lock_acquire_queue(int32 queue_id, LOCKMODE mode, bool wait)
{
	SweepLock	lock = make_lock(MyDatabaseId, (uint32) queue_id, SWEEP_LOCK_USE, mode);

	return LockAcquire(&lock.tag, lock.mode, false, !wait);
}

void
sweep_lock_hold_database(Oid database)
{
	SweepLock	lock = make_lock(InvalidOid, database, SWEEP_LOCK_DATABASE, ShareLock);

	(void) take(&lock, false, true);
}

bool
sweep_lock_database_is_held(Oid database)
{
	SweepLock	lock = make_lock(InvalidOid, database, SWEEP_LOCK_DATABASE, ExclusiveLock);

	if (!take(&lock, true, false))
		return true;
	LockRelease(&lock.tag, lock.mode, true);
	return false;
}

/* SQL: sweep._run_is_alive(run_id bigint) RETURNS boolean */
Datum
sweep_lock_run_is_alive(PG_FUNCTION_ARGS)
{
	SweepLock	lock = make_lock(MyDatabaseId, (uint64) PG_GETARG_INT64(0), SWEEP_LOCK_RUN, ExclusiveLock);

	if (sweep_lock_is_mine(&lock))
		PG_RETURN_BOOL(true);
	lock.mode = ShareLock;
	if (!sweep_lock_acquire(&lock))
		PG_RETURN_BOOL(true);
	sweep_lock_give_back(&lock);
	PG_RETURN_BOOL(false);
}

/*
 * SQL: sweep._lock_is_held(role oid, key text, shared boolean) RETURNS boolean
 *
 * If the process took the lock to test it, runs of other processes might be skipped meanwhile. An exclusive lock is
 * therefore only looked up. A shared lock is taken for the test, because that does not disturb other shares.
 */
Datum
sweep_lock_probe(PG_FUNCTION_ARGS)
{
	char	   *key = text_to_cstring(PG_GETARG_TEXT_PP(1));
	SweepLock	lock = sweep_lock_of_job(PG_GETARG_OID(0), key, ShareLock);
	SweepLock	bridge = bridge_of(&lock);
	bool		held = LockWaiterCount(&lock.tag) > 0 || LockWaiterCount(&bridge.tag) > 0;

	if (held && PG_GETARG_BOOL(2))
	{
		held = !sweep_lock_acquire(&lock);
		if (!held)
			sweep_lock_give_back(&lock);
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

/* Without a preloaded library the sessions share no secret. */
static uint64
number_of(Oid role, uint16 lock_class, const char *name)
{
	static const uint64_t known[2] = {0};

	return sweep_siphash(sweep_shared_exists() ? secret : known, (uint64) role << 32 | lock_class, name, strlen(name));
}

static SweepLock
make_lock(Oid database, uint64 number, uint16 lock_class, LOCKMODE mode)
{
	SweepLock	lock = {.mode = mode};

	SET_LOCKTAG_ADVISORY(lock.tag, database, (uint32) (number >> 32), (uint32) number, lock_class);
	lock.tag.locktag_lockmethodid = DEFAULT_LOCKMETHOD;
	return lock;
}

static SweepLock
bridge_of(const SweepLock *lock)
{
	SweepLock	bridge = *lock;

	bridge.tag.locktag_lockmethodid = USER_LOCKMETHOD;
	return bridge;
}

static bool
take(const SweepLock *lock, bool for_session, bool waits)
{
	return LockAcquire(&lock->tag, lock->mode, for_session, !waits) != LOCKACQUIRE_NOT_AVAIL;
}

static void
release(int index)
{
	SweepLock	lock = held_locks[index];
	SweepLock	bridge = bridge_of(&lock);

	held_locks[index] = held_locks[--held_count];
	if (bridged && sweep_lock_held_by_me(&bridge.tag, lock.mode))
		LockRelease(&bridge.tag, lock.mode, true);
	else if (sweep_lock_held_by_me(&lock.tag, lock.mode))
		LockRelease(&lock.tag, lock.mode, true);
}

/* Called before the locks are released. An abort must not fail, so a full lock table raises no error here. */
static void
begin_bridge(XactEvent event, void *arg)
{
	for (int i = 0; event == XACT_EVENT_ABORT && i < held_count; i++)
	{
		SweepLock	bridge = bridge_of(&held_locks[i]);

		if (sweep_lock_held_by_me(&held_locks[i].tag, bridge.mode))
			bridged |= sweep_lock_try_quietly(&bridge.tag, bridge.mode);
	}
}

/* Called after the locks were released. If another process has the lock at this moment only to test it, the second lock is kept. */
static void
end_bridge(ResourceReleasePhase phase, bool is_commit, bool is_top_level, void *arg)
{
	if (!bridged || phase != RESOURCE_RELEASE_AFTER_LOCKS || !is_top_level)
		return;
	bridged = false;
	for (int i = 0; i < held_count; i++)
	{
		SweepLock	bridge = bridge_of(&held_locks[i]);

		if (!sweep_lock_held_by_me(&bridge.tag, bridge.mode))
			continue;
		if (sweep_lock_try_quietly(&held_locks[i].tag, bridge.mode))
			LockRelease(&bridge.tag, bridge.mode, true);
		else
			bridged = true;
	}
}

/* At the exit of a process PostgreSQL releases only the locks of the transaction. The others are released here, after the end of the transaction. */
static void
release_at_exit(int code, Datum arg)
{
	bool		held = held_count > 0;

	AbortOutOfAnyTransaction();
	sweep_lock_give_back_all();
	/* A run may be waiting for one of these locks. */
	if (held)
		sweep_ask(MyDatabaseId);
}
