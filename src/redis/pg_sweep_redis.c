/*
 * pg_sweep_redis.c
 *		The module that talks to Redis.
 *
 * pg_sweep loads it when a job first needs it, so that a server without Redis has no hiredis in it. It has
 * neither SQL nor settings of its own: pg_sweep calls sweep_redis_bucket_store() in bucket_store.c.
 */
#include "postgres.h"

#include "fmgr.h"

#include "base/compat.h"

SWEEP_MODULE_MAGIC("pg_sweep_redis", SWEEP_VERSION);
