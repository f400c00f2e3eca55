/*
 * log_context.c
 *		The line of CONTEXT that what a process of pg_sweep logs has: its database, its role and what it works on.
 *
 * Called by worker.c once a process is connected, by run.c and consumer.c. log_line_prefix has no database and no role of a
 * background worker. An error that is caught has no such line: it becomes the error of a run or of a message, which name what
 * they are of, and is logged by a line of ours.
 */
#include "postgres.h"

#include "access/xact.h"
#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "base/log_context.h"

static char process[3 * NAMEDATALEN];	/* database and role */
static char work_in_progress[2 * NAMEDATALEN];	/* begins with ", "; empty: none */

static void describe(void *arg);

void
sweep_log_context_begin(bool with_role)
{
	static ErrorContextCallback callback = {.callback = describe};
	const char *database;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	database = get_database_name(MyDatabaseId);
	if (with_role)
		snprintf(process, sizeof(process), "database \"%s\", role \"%s\"", database, GetUserNameFromId(GetAuthenticatedUserId(), false));
	else
		snprintf(process, sizeof(process), "database \"%s\"", database);
	CommitTransactionCommand();
	callback.previous = error_context_stack;
	error_context_stack = &callback;
}

void
sweep_log_context_say(const char *work)
{
	work_in_progress[0] = '\0';
	if (work != NULL)
		snprintf(work_in_progress, sizeof(work_in_progress), ", %s", work);
}

static void
describe(void *arg)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	ErrorData  *error = CopyErrorData();
	bool		is_caught = error->elevel == ERROR;

	FreeErrorData(error);
	MemoryContextSwitchTo(old);
	if (!is_caught)
		errcontext("%s%s", process, work_in_progress);
}
