/*
 * pool.c
 *		The workers that a scheduler has registered, by their slots in shared memory.
 *
 * Runners (scheduler.c) and consumers (consumer_pool.c) have a pool each. The scheduler first claims a slot in
 * shared memory, then registers a worker, which takes the slot over once it is up. A worker that ends before that
 * leaves its slot claimed. The scheduler finds such a slot by the handle of the worker, or by its age if the
 * scheduler that had the handle has ended.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "base/clock.h"
#include "base/reuse.h"
#include "process/pool.h"

/* A worker that was registered by an earlier scheduler and never came up is given up after this. */
#define ORPHAN_AGE_MS 60000

void
sweep_pool_prepare(SweepPool *pool, int slot_count)
{
	if (pool->handles == NULL)
		pool->handles = MemoryContextAllocZero(TopMemoryContext, sizeof(*pool->handles) * slot_count);
}

bool
sweep_pool_register(SweepPool *pool, const char *type, const char *name, const char *function, const SweepWorkerArgs *args)
{
	BackgroundWorkerHandle **handle = &pool->handles[args->index];
	MemoryContext old;
	bool		registered;

	if (*handle != NULL)
		pfree(*handle);
	*handle = NULL;
	old = MemoryContextSwitchTo(TopMemoryContext);
	registered = sweep_worker_register(type, name, function, args, handle);
	MemoryContextSwitchTo(old);
	/* The end of that process wakes the scheduler like the end of any worker, and it tries again. */
	if (!registered)
		sweep_reuse_dismiss();
	return registered;
}

bool
sweep_pool_has_ended(const SweepPool *pool, int slot)
{
	pid_t		pid;

	return pool->handles[slot] != NULL && GetBackgroundWorkerPid(pool->handles[slot], &pid) == BGWH_STOPPED;
}

bool
sweep_pool_has_lost(const SweepPool *pool, int slot, int64 claimed_us)
{
	if (pool->handles[slot] != NULL)
		return sweep_pool_has_ended(pool, slot);
	return sweep_pool_patience(claimed_us) == 0;
}

long
sweep_pool_patience(int64 claimed_us)
{
	return (long) Max(ORPHAN_AGE_MS - (sweep_monotonic_us() - claimed_us) / 1000, 0);
}

long
sweep_pool_next_pause(long pause_ms)
{
	return Min(Max(pause_ms * 2, SWEEP_POOL_FIRST_PAUSE_MS), SWEEP_POOL_LONGEST_PAUSE_MS);
}
