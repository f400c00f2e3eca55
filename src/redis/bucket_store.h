/*
 * bucket_store.h
 *		The bucket store 'redis'.
 */
#ifndef SWEEP_REDIS_BUCKET_STORE_H
#define SWEEP_REDIS_BUCKET_STORE_H

#include "bucket/store.h"

/* The function that pg_sweep calls in this module; see SweepBucketStoreFunction. */
extern PGDLLEXPORT const SweepBucketStore *sweep_redis_bucket_store(void);

#endif							/* SWEEP_REDIS_BUCKET_STORE_H */
