/*
 * require.c
 *		Requirements of functions: the primary, no transaction block.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "fmgr.h"
#include "nodes/parsenodes.h"

#include "base/extension.h"
#include "base/require.h"

/*
 * Every public function that writes asks here before it does anything else. On a standby it would be refused
 * anyway, but by whichever lock or statement of the engine comes first, in words that tell its user nothing.
 */
void
sweep_require_usable(const char *name)
{
	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("cannot execute %s during recovery", name),
				 errdetail("This server is a standby: what is written comes from its primary."),
				 errhint("Connect to the primary; the views of pg_sweep can be read here.")));
	sweep_extension_require(sweep_extension_find());
}

void
sweep_require_no_block(FunctionCallInfo fcinfo, const char *name)
{
	if (fcinfo->context == NULL || !IsA(fcinfo->context, CallContext) ||
		castNode(CallContext, fcinfo->context)->atomic)
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("%s cannot be called inside a transaction block or a function", name),
				 errhint("It commits: call it as a statement of its own, in a session with autocommit on.")));
}
