/*
 * hold_scheduler.c
 *		Stops a scheduler in the middle of its tick: preloaded by scheduler_wake.pl, which compiles it.
 *
 * A scheduler that has committed a transaction, but not the one in which it connected, waits as long as there
 * is a file hold_<oid of its database> in the data directory; while it does there is a file held_<oid>.
 */
#include "postgres.h"

#include <sys/stat.h>
#include <unistd.h>

#include "access/xact.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/latch.h"
#include "utils/wait_event.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

static void
hold(XactEvent event, void *arg)
{
	static int	commits = 0;
	char		wanted[64];
	char		held[64];
	struct stat found;
	FILE	   *file;

	if (event != XACT_EVENT_COMMIT || MyBgworkerEntry == NULL || strcmp(MyBgworkerEntry->bgw_type, "pg_sweep scheduler") != 0)
		return;
	if (++commits == 1)
		return;
	snprintf(wanted, sizeof(wanted), "hold_%u", MyDatabaseId);
	snprintf(held, sizeof(held), "held_%u", MyDatabaseId);
	if (stat(wanted, &found) != 0)
		return;
	file = fopen(held, "w");
	if (file != NULL)
		fclose(file);
	while (stat(wanted, &found) == 0)
		(void) WaitLatch(NULL, WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 10, PG_WAIT_EXTENSION);
	unlink(held);
}

void
_PG_init(void)
{
	RegisterXactCallback(hold, NULL);
}
