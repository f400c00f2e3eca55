/*
 * failure.c
 *		Which errors are those of an item, and how they are told.
 *
 * Called by items.c when a step, a rescue function or a commit has failed.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"

#include "base/compat.h"
#include "base/lease.h"
#include "base/sql.h"
#include "engine/failure.h"
#include "engine/timers.h"

/* Each text of an error that is kept, or handed to a rescue function, has at most so many bytes. */
#define TEXT_LIMIT 8192

bool
sweep_failure_is_interruption(SweepRun *run, const ErrorData *error)
{
	if (run->no_progress || !sweep_lease_is_held(run->run_as, run->lease_key, sweep_run_lease_mode(run)) ||
		(run->buckets != NULL && run->buckets->fence.lost) ||
		ERRCODE_TO_CATEGORY(error->sqlerrcode) == ERRCODE_INSUFFICIENT_RESOURCES)
		return true;
	switch (error->sqlerrcode)
	{
		case ERRCODE_QUERY_CANCELED:
			/* In a worker the statement timeout is that of one call: a slow item is a bad item. */
			return sweep_sql_in_call() || pg_atomic_read_u32(&run->slot->stop_request) != 0 ||
				!sweep_timers_statement_fired(run);
		case ERRCODE_UNDEFINED_TABLE:
		case ERRCODE_UNDEFINED_COLUMN:
		case ERRCODE_UNDEFINED_FUNCTION:
		case ERRCODE_UNDEFINED_OBJECT:
		case ERRCODE_UNDEFINED_PARAMETER:
		case ERRCODE_AMBIGUOUS_COLUMN:
		case ERRCODE_DATATYPE_MISMATCH:
		case ERRCODE_INVALID_SCHEMA_NAME:
		case ERRCODE_SYNTAX_ERROR:
		case ERRCODE_INSUFFICIENT_PRIVILEGE:
		case ERRCODE_READ_ONLY_SQL_TRANSACTION:
			return true;
		default:
			return false;
	}
}

bool
sweep_failure_is_passing(const ErrorData *error)
{
	return error->sqlerrcode == ERRCODE_T_R_SERIALIZATION_FAILURE ||
		error->sqlerrcode == ERRCODE_T_R_DEADLOCK_DETECTED ||
		error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE;
}

Jsonb *
sweep_failure_jsonb(const ErrorData *error)
{
	const char *names[] = {"sqlstate", "message", "detail", "hint", "context"};
	const char *values[] = {
		unpack_sql_state(error->sqlerrcode), error->message, error->detail, error->hint, error->context
	};
	JsonbInState state = {0};

	sweep_push_jsonb_value(&state, WJB_BEGIN_OBJECT, NULL);
	for (size_t i = 0; i < lengthof(names); i++)
	{
		JsonbValue	key = {.type = jbvString};
		JsonbValue	value = {.type = jbvNull};

		key.val.string.val = unconstify(char *, names[i]);
		key.val.string.len = strlen(names[i]);
		if (values[i] != NULL)
		{
			value.type = jbvString;
			value.val.string.val = unconstify(char *, values[i]);
			value.val.string.len = pg_mbcliplen(values[i], strlen(values[i]), TEXT_LIMIT);
		}
		sweep_push_jsonb_value(&state, WJB_KEY, &key);
		sweep_push_jsonb_value(&state, WJB_VALUE, &value);
	}
	sweep_push_jsonb_value(&state, WJB_END_OBJECT, NULL);
	return JsonbValueToJsonb(state.result);
}
