/*
 * secret.c
 *		Keeps the password of pg_sweep.redis_url out of the server log.
 *
 * The server writes the new value of a parameter into its log when a reload has changed it, and with
 * log_statement an ALTER SYSTEM as it was typed; neither asks the parameter how it wants to be shown. So
 * every message that names the setting passes here, and what stands between :// and the last @ is taken
 * out of it, which is where a URL has its password. It is taken out in place: the message belongs
 * to whoever reports it. And a statement that names the setting is not added to the errors that it raises.
 */
#include "postgres.h"

#include "tcop/tcopprot.h"

#include "secret.h"

static emit_log_hook_type next_hook = NULL;

static void hide_password(ErrorData *report);
static void hide_in(char *text);

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
	if (debug_query_string != NULL && strstr(debug_query_string, "redis_url") != NULL)
		report->hide_stmt = true;
	if (next_hook)
		next_hook(report);
}

static void
hide_in(char *text)
{
	char	   *start;
	char	   *end;
	const char *mark;

	if (text == NULL || strstr(text, "redis_url") == NULL)
		return;
	start = strstr(text, "://");
	end = start ? strrchr(start, '@') : NULL;
	if (end == NULL)
		return;
	for (start += strlen("://"), mark = "***"; *mark != '\0' && start < end; mark++)
		*start++ = *mark;
	memmove(start, end, strlen(end) + 1);
}
