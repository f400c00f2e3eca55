/*
 * secret.c
 *		Keeps the password of pg_sweep.redis_url out of the server log.
 *
 * The server writes the new value of a parameter into its log when a reload has changed it, and with
 * log_statement an ALTER SYSTEM as it was typed; neither asks the parameter how it wants to be shown. So
 * every message that names the setting passes here, in whatever case, and what stands between its name and
 * the last @ is taken out of it: a URL has its password there, and so has one that is mistyped. It is taken
 * out in place: the message belongs to whoever reports it. And a statement that names the setting is not
 * added to the errors that it raises.
 */
#include "postgres.h"

#include "tcop/tcopprot.h"

#include "secret.h"

#define NAME "redis_url"

static emit_log_hook_type next_hook = NULL;

static void hide_password(ErrorData *report);
static void hide_in(char *text);
static char *find_name(const char *text);

void
sweep_secret_install_hook(void)
{
	next_hook = emit_log_hook;
	emit_log_hook = hide_password;
}

static void
hide_password(ErrorData *report)
{
	hide_in(report->message);
	hide_in(report->detail);
	hide_in(report->detail_log);
	hide_in(report->context);
	hide_in(report->hint);
	hide_in(report->internalquery);
	if (find_name(debug_query_string) != NULL)
		report->hide_stmt = true;
	if (next_hook)
		next_hook(report);
}

static void
hide_in(char *text)
{
	char	   *start = find_name(text);
	char	   *end = start ? strrchr(start, '@') : NULL;

	if (end == NULL)
		return;
	start += strlen(NAME);
	for (const char *mark = " ***"; *mark != '\0' && start < end; mark++)
		*start++ = *mark;
	memmove(start, end, strlen(end) + 1);
}

/* Names of settings are the same in any case. */
static char *
find_name(const char *text)
{
	for (; text != NULL && *text != '\0'; text++)
	{
		if (pg_strncasecmp(text, NAME, strlen(NAME)) == 0)
			return unconstify(char *, text);
	}
	return NULL;
}
