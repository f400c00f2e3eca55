/*
 * pg_sweep.c
 *		Loads the module.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"

#include "compat.h"
#include "consumer_shared.h"
#include "launcher.h"
#include "queue_shared.h"
#include "settings.h"
#include "secret.h"
#include "shared.h"
#include "utility.h"

SWEEP_MODULE_MAGIC("pg_sweep", SWEEP_VERSION);

extern PGDLLEXPORT void _PG_init(void);

void
_PG_init(void)
{
	bool		at_server_start = process_shared_preload_libraries_in_progress;

	sweep_settings_define(at_server_start);
	/* Without shared memory and workers, CALL sweep.run works, and nothing may start during an upgrade. */
	if (!at_server_start || IsBinaryUpgrade)
		return;
	/* A process of each run would load it anew, a fifth of the time until its first batch. */
	load_file("$libdir/plpgsql", false);
	sweep_secret_install_hook();
	sweep_shared_request();
	sweep_queue_request_memory();
	sweep_consumer_shared_request();
	sweep_utility_install_hook();
	sweep_launcher_register();
}
