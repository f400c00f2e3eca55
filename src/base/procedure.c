/*
 * procedure.c
 *		What the procedures that end transactions have in common.
 */
#include "postgres.h"

#include "fmgr.h"
#include "nodes/parsenodes.h"

#include "base/procedure.h"

void
sweep_procedure_require_no_block(FunctionCallInfo fcinfo, const char *name)
{
	if (fcinfo->context == NULL || !IsA(fcinfo->context, CallContext) ||
		castNode(CallContext, fcinfo->context)->atomic)
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("%s cannot be called inside a transaction block or a function", name),
				 errhint("It commits; call it as a statement of its own.")));
}
