/*
 * held_lock.c
 *		Locks that a process has until it gives them back, whatever code of users does meanwhile.
 *
 * Called by lock.c. Only ever tried, never waited for.
 *
 * The locks are in PostgreSQL's default lock method, where pg_advisory_unlock_all() and DISCARD ALL, which code of a job may
 * call, do not find them. There an abort releases the locks of the session as well. A second lock with the same numbers, in the
 * method of advisory locks, which an abort leaves alone, therefore bridges the abort: the holder takes it before its locks
 * are released and gives it back once it has them again, and a lock is had only by a process that has found this one free.
 */
#include "postgres.h"

#include "access/xact.h"
#include "storage/ipc.h"
#include "storage/lock.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

#include "base/ask.h"
#include "base/compat.h"
#include "base/held_lock.h"
#include "base/shared.h"

/* Entries of a process at first. */
#define FIRST_ROOM 8

/* A lock of this process, an entry for each time that it was taken. */
typedef struct HeldLock
{
	LOCKTAG		tag;
	LOCKMODE	mode;
} HeldLock;

static HeldLock *held_locks = NULL;
static int	held_count = 0;
static int	held_room = 0;

/* Some of them have their second lock. */
static bool bridged = false;

static void release(int index);
static LOCKTAG bridge_of(const LOCKTAG *tag);
static void begin_bridge(XactEvent event, void *arg);
static void end_bridge(ResourceReleasePhase phase, bool is_commit, bool is_top_level, void *arg);
static void release_at_exit(int code, Datum arg);

/* Memory for the entry is allocated before the lock is taken: a lock without an entry would never be given back. */
bool
sweep_held_lock_acquire(const LOCKTAG *tag, LOCKMODE mode)
{
	LOCKTAG		bridge = bridge_of(tag);

	if (held_room == 0)
	{
		held_locks = MemoryContextAlloc(TopMemoryContext, sizeof(HeldLock) * FIRST_ROOM);
		held_room = FIRST_ROOM;
		RegisterXactCallback(begin_bridge, NULL);
		RegisterResourceReleaseCallback(end_bridge, NULL);
		before_shmem_exit(release_at_exit, 0);
	}
	else if (held_count == held_room)
	{
		held_locks = repalloc(held_locks, sizeof(HeldLock) * held_room * 2);
		held_room *= 2;
	}
	if (LockAcquire(tag, mode, true, true) == LOCKACQUIRE_NOT_AVAIL)
		return false;
	held_locks[held_count++] = (HeldLock) {*tag, mode};
	/* The second lock is rarely held, and looking at it is cheaper than taking it. */
	if (LockWaiterCount(&bridge) == 0)
		return true;
	if (LockAcquire(&bridge, mode, true, true) == LOCKACQUIRE_NOT_AVAIL)
	{
		release(held_count - 1);
		return false;
	}
	LockRelease(&bridge, mode, true);
	return true;
}

void
sweep_held_lock_give_back(const LOCKTAG *tag, LOCKMODE mode)
{
	for (int i = held_count - 1; i >= 0; i--)
	{
		if (held_locks[i].mode != mode || memcmp(&held_locks[i].tag, tag, sizeof(LOCKTAG)) != 0)
			continue;
		release(i);
		return;
	}
}

void
sweep_held_lock_give_back_all(void)
{
	while (held_count > 0)
		release(held_count - 1);
}

bool
sweep_held_lock_is_mine(const LOCKTAG *tag, LOCKMODE mode)
{
	LOCKTAG		bridge = bridge_of(tag);

	return sweep_lock_held_by_me(tag, mode) || sweep_lock_held_by_me(&bridge, mode);
}

bool
sweep_held_lock_is_wanted(const LOCKTAG *tag)
{
	LOCKTAG		bridge = bridge_of(tag);

	return LockWaiterCount(tag) > 0 || LockWaiterCount(&bridge) > 0;
}

static void
release(int index)
{
	HeldLock	lock = held_locks[index];
	LOCKTAG		bridge = bridge_of(&lock.tag);

	held_locks[index] = held_locks[--held_count];
	if (bridged && sweep_lock_held_by_me(&bridge, lock.mode))
		LockRelease(&bridge, lock.mode, true);
	else if (sweep_lock_held_by_me(&lock.tag, lock.mode))
		LockRelease(&lock.tag, lock.mode, true);
}

static LOCKTAG
bridge_of(const LOCKTAG *tag)
{
	LOCKTAG		bridge = *tag;

	bridge.locktag_lockmethodid = USER_LOCKMETHOD;
	return bridge;
}

/* Called before the locks are released. An abort must not fail, so a table of locks that is full raises nothing here. */
static void
begin_bridge(XactEvent event, void *arg)
{
	for (int i = 0; event == XACT_EVENT_ABORT && i < held_count; i++)
	{
		LOCKTAG		bridge = bridge_of(&held_locks[i].tag);

		if (sweep_lock_held_by_me(&held_locks[i].tag, held_locks[i].mode))
			bridged |= sweep_lock_try_quietly(&bridge, held_locks[i].mode);
	}
}

/* Called after the locks were released. If a process that only tests the lock has it at this moment, the second lock stays. */
static void
end_bridge(ResourceReleasePhase phase, bool is_commit, bool is_top_level, void *arg)
{
	if (!bridged || phase != RESOURCE_RELEASE_AFTER_LOCKS || !is_top_level)
		return;
	bridged = false;
	for (int i = 0; i < held_count; i++)
	{
		LOCKTAG		bridge = bridge_of(&held_locks[i].tag);

		if (!sweep_lock_held_by_me(&bridge, held_locks[i].mode))
			continue;
		if (sweep_lock_try_quietly(&held_locks[i].tag, held_locks[i].mode))
			LockRelease(&bridge, held_locks[i].mode, true);
		else
			bridged = true;
	}
}

/* At the exit of a process PostgreSQL releases only the locks of its transaction. The others are given back here, after that has ended. */
static void
release_at_exit(int code, Datum arg)
{
	bool		held = held_count > 0;

	AbortOutOfAnyTransaction();
	sweep_held_lock_give_back_all();
	/* A run may wait for one of them. */
	if (held)
		sweep_ask(MyDatabaseId);
}
