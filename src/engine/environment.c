/*
 * environment.c
 *		The settings with which the code of a job is executed.
 *
 * Called by run.c, batch.c and preview.c for a job that has settings, and when a job is created or changed. A worker is connected as the
 * role of the job, with the settings of that role and of the database, as after any login. The settings of the job are set in addition:
 * in a worker once for its session, which is reset before another run; in a session for each transaction. They are set as the role of
 * the job, so PostgreSQL refuses a setting that the role may not SET.
 *
 * sweep._check_settings refuses some settings. Under CALL a job's statement_timeout is ignored, because the timeout of the CALL is
 * running already.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"

#include "base/door.h"
#include "engine/environment.h"

static void set_all(SweepRun *run, GucAction action);
static GucContext context_of(Oid role);

PG_FUNCTION_INFO_V1(sweep_environment_check);

void
sweep_environment_set_local(SweepRun *run)
{
	/* A setting that cannot be set must not keep the failure of the run from being recorded. */
	if (run->environment_failed)
		return;
	run->environment_failed = true;
	set_all(run, GUC_ACTION_LOCAL);
	run->environment_failed = false;
}

void
sweep_environment_set(void *run)
{
	set_all(run, GUC_ACTION_SET);
}

static void
set_all(SweepRun *run, GucAction action)
{
	JsonbIterator *iterator = JsonbIteratorInit(&run->settings->root);
	JsonbIteratorToken token;
	JsonbValue	key;

	while ((token = JsonbIteratorNext(&iterator, &key, true)) != WJB_DONE)
	{
		char	   *name;
		Datum		value;

		if (token != WJB_KEY)
			continue;
		name = pnstrdup(key.val.string.val, key.val.string.len);
		if (action == GUC_ACTION_LOCAL && pg_strcasecmp(name, "statement_timeout") == 0)
			continue;
		value = DirectFunctionCall2(jsonb_object_field_text, JsonbPGetDatum(run->settings), CStringGetTextDatum(name));
		(void) set_config_option(name, TextDatumGetCString(value), context_of(GetUserId()), PGC_S_SESSION, action, true, 0, false);
		/* This value is for commits that wait for the disk; batch.c sets the value for the others. */
		if (pg_strcasecmp(name, "synchronous_commit") == 0)
			run->synchronous_commit = MemoryContextStrdup(run->context, GetConfigOption("synchronous_commit", false, false));
	}
}

static GucContext
context_of(Oid role)
{
	return superuser_arg(role) ? PGC_SUSET : PGC_USERSET;
}

/*
 * SQL: sweep._check_setting(role oid, name text, value text) RETURNS void
 *
 * Raises unless the role may set the setting to that value. The check hook of the setting, which may be that of an extension, is
 * executed as that role; nothing is set.
 */
Datum
sweep_environment_check(PG_FUNCTION_ARGS)
{
	Oid			role = PG_GETARG_OID(0);
	char	   *name = text_to_cstring(PG_GETARG_TEXT_PP(1));
	char	   *value = text_to_cstring(PG_GETARG_TEXT_PP(2));
	SweepDoor	door;

	sweep_door_enter_user(&door, role);
	(void) set_config_option(name, value, context_of(role), PGC_S_SESSION, GUC_ACTION_SAVE, false, 0, false);
	sweep_door_leave(&door);
	PG_RETURN_VOID();
}
