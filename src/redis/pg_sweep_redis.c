/*
 * pg_sweep_redis.c
 *		The module of everything that talks to Redis.
 *
 * pg_sweep loads it when a job first needs it, so a server without Redis has no hiredis in it. It has no
 * SQL and no settings of its own: bucket_store.c is what it is loaded for.
 */
#include "postgres.h"

#include "fmgr.h"

#include "base/compat.h"

SWEEP_MODULE_MAGIC("pg_sweep_redis", SWEEP_VERSION);
