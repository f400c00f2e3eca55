/*
 * pg_sweep.c
 *		Loads the module.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"

#include "api/utility.h"
#include "base/compat.h"
#include "base/lock.h"
#include "base/settings.h"
#include "base/shared.h"
#include "process/launcher.h"
#include "queue/queue.h"

SWEEP_MODULE_MAGIC("pg_sweep", SWEEP_VERSION);

static shmem_request_hook_type previous_request_hook = NULL;
static shmem_startup_hook_type previous_startup_hook = NULL;

static void request_memory(void);
static void initialize_memory(void);

extern PGDLLEXPORT void _PG_init(void);

void
_PG_init(void)
{
	bool		at_server_start = process_shared_preload_libraries_in_progress;

	sweep_settings_define(at_server_start);
	sweep_lock_draw_secret();
	/* Without shared memory and workers, CALL sweep.run works, and nothing may start during an upgrade. */
	if (!at_server_start || IsBinaryUpgrade)
		return;
	/* A process of each run would load it anew, a fifth of the time until its first batch. */
	load_file("$libdir/plpgsql", false);
	previous_request_hook = shmem_request_hook;
	shmem_request_hook = request_memory;
	previous_startup_hook = shmem_startup_hook;
	shmem_startup_hook = initialize_memory;
	sweep_utility_install_hook();
	sweep_launcher_register();
}

static void
request_memory(void)
{
	if (previous_request_hook)
		previous_request_hook();
	sweep_shared_request();
	sweep_queue_request_memory();
}

static void
initialize_memory(void)
{
	if (previous_startup_hook)
		previous_startup_hook();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	sweep_shared_initialize();
	sweep_queue_initialize_memory();
	LWLockRelease(AddinShmemInitLock);
}
