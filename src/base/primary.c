/*
 * primary.c
 *		What can be done on the primary server only.
 *
 * Every public function that writes asks here before it does anything else. On a standby it would be refused
 * anyway, but by whichever lock or statement of the engine comes first, in words that tell its user nothing.
 */
#include "postgres.h"

#include "access/xlog.h"

#include "base/primary.h"

void
sweep_primary_require(const char *name)
{
	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("cannot execute %s during recovery", name),
				 errdetail("This server is a standby: what is written comes from its primary."),
				 errhint("Connect to the primary; the views of pg_sweep can be read here.")));
}
