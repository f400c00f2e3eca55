/*
 * log_context.c
 *		The CONTEXT line in all log messages of a process of pg_sweep: its database, its role and its work.
 *
 * Called by worker.c once a process is connected, by txn.c in its first transaction, by run.c and consumer.c. log_line_prefix has
 * no database and no role for a background worker. The line is removed from caught errors, which become errors of a run or of a
 * message: these name their run or message, and pg_sweep logs them itself.
 */
#include "postgres.h"

#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "utils/lsyscache.h"

#include "base/log_context.h"

bool		sweep_log_context_is_pending = false;

static bool has_role = false;
static char process[3 * NAMEDATALEN];	/* database and role; empty: not known yet */
static char work_in_progress[2 * NAMEDATALEN];	/* begins with ", "; empty: none */

static void describe(void *arg);

void
sweep_log_context_begin(bool with_role)
{
	static ErrorContextCallback callback = {.callback = describe};

	has_role = with_role;
	sweep_log_context_is_pending = true;
	callback.previous = error_context_stack;
	error_context_stack = &callback;
}

void
sweep_log_context_look_up(void)
{
	const char *database = get_database_name(MyDatabaseId);
	const char *role = GetUserNameFromId(GetAuthenticatedUserId(), true);

	sweep_log_context_is_pending = false;
	if (has_role)
		snprintf(process, sizeof(process), "database \"%s\", role \"%s\"", database, role ? role : "(dropped)");
	else
		snprintf(process, sizeof(process), "database \"%s\"", database);
}

void
sweep_log_context_say(const char *work)
{
	work_in_progress[0] = '\0';
	if (work != NULL)
		snprintf(work_in_progress, sizeof(work_in_progress), ", %s", work);
}

/* The error is not copied to look at it, because there may be no memory left. */
static void
describe(void *arg)
{
	if (process[0] != '\0')
		errcontext("%s%s", process, work_in_progress);
}

void
sweep_log_context_cut(ErrorData *error)
{
	size_t		length = strlen(process);
	char	   *line;

	if (error->context == NULL || length == 0)
		return;
	line = strrchr(error->context, '\n');
	if (strncmp(line ? line + 1 : error->context, process, length) != 0)
		return;
	if (line != NULL)
		*line = '\0';
	else
		error->context = NULL;
}
