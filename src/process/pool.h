/*
 * pool.h
 *		The workers that a scheduler has registered, by their slots in shared memory.
 */
#ifndef SWEEP_POOL_H
#define SWEEP_POOL_H

#include "base/worker.h"
#include "postmaster/bgworker.h"

/* Pauses between tries to get a worker, and after a tick that failed. */
#define SWEEP_POOL_FIRST_PAUSE_MS 1000
#define SWEEP_POOL_LONGEST_PAUSE_MS 30000

typedef struct SweepPool
{
	BackgroundWorkerHandle **handles;	/* by slot; NULL = an earlier scheduler has registered it, or there is none */
} SweepPool;

/* Allocates the pool for so many slots; does nothing when that is done already. */
extern void sweep_pool_prepare(SweepPool *pool, int slot_count);

/* Registers a worker for the slot args->index, which was claimed for it; false when none is available. */
extern bool sweep_pool_register(SweepPool *pool, const char *type, const char *name, const char *function, const SweepWorkerArgs *args);

/* Whether the worker that was registered last for a slot has ended. */
extern bool sweep_pool_has_ended(const SweepPool *pool, int slot);

/* For a slot that its worker has not taken over: whether it never will, because it has ended, or the claim is old and no handle known. */
extern bool sweep_pool_has_lost(const SweepPool *pool, int slot, int64 claimed_us);

/* Milliseconds until a worker without a handle in this scheduler is given up. */
extern long sweep_pool_patience(int64 claimed_us);

/* The pause after this one, 0 before the first. */
extern long sweep_pool_next_pause(long pause_ms);

#endif							/* SWEEP_POOL_H */
