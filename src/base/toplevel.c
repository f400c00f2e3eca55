/*
 * toplevel.c
 *		One statement at top level, as a session executes what its client sends.
 *
 * Called by engine/script.c, in a worker. What SPI executes is part of another statement: there VACUUM and CREATE INDEX
 * CONCURRENTLY are refused, and a procedure cannot commit. So a statement goes the way of a session here: it is analysed
 * and planned, and a portal without a name executes it as a command of the top level, which may end the transaction that was
 * begun for it and begin others. Nothing of the engine is around it: no SPI, no snapshot, no subtransaction.
 */
#include "postgres.h"

#include "access/xact.h"
#include "parser/analyze.h"
#include "tcop/dest.h"
#include "tcop/tcopprot.h"
#include "tcop/utility.h"
#include "utils/portal.h"
#include "utils/snapmgr.h"

#include "base/compat.h"
#include "base/toplevel.h"

static List *make_plans(const char *source, RawStmt *statement);

void
sweep_toplevel_begin(void)
{
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
}

void
sweep_toplevel_execute(const char *source, RawStmt *statement, QueryCompletion *completion)
{
	List	   *plans = make_plans(source, statement);
	Portal		portal = CreatePortal("", true, true);

	portal->visible = false;
	InitializeQueryCompletion(completion);
	PortalDefineQuery(portal, NULL, source, CreateCommandTag(statement->stmt), plans, NULL);
	PortalStart(portal, NULL, 0, InvalidSnapshot);
	sweep_portal_run_once(portal, None_Receiver, completion);
	PortalDrop(portal, false);
}

/* A command that begins transactions itself must find no snapshot. */
static List *
make_plans(const char *source, RawStmt *statement)
{
	bool		needs_snapshot = analyze_requires_snapshot(statement);
	List	   *queries;
	List	   *plans;

	if (needs_snapshot)
		PushActiveSnapshot(GetTransactionSnapshot());
	queries = pg_analyze_and_rewrite_fixedparams(statement, source, NULL, 0, NULL);
	plans = pg_plan_queries(queries, source, CURSOR_OPT_PARALLEL_OK, NULL);
	if (needs_snapshot)
		PopActiveSnapshot();
	return plans;
}

void
sweep_toplevel_end(void)
{
	CommitTransactionCommand();
}

char *
sweep_toplevel_tag(const QueryCompletion *completion)
{
	const char *name = GetCommandTagName(completion->commandTag);

	if (!command_tag_display_rowcount(completion->commandTag))
		return pstrdup(name);
	/* Where the zero stands there once was the OID of a row. */
	return psprintf("%s %s" UINT64_FORMAT, name, completion->commandTag == CMDTAG_INSERT ? "0 " : "", completion->nprocessed);
}

int64
sweep_toplevel_rows(const QueryCompletion *completion)
{
	return command_tag_display_rowcount(completion->commandTag) ? (int64) completion->nprocessed : 0;
}
