/*
 * run_state.c
 *		One run of one job: what it must be given before it begins, and what all files need to know of it.
 *
 * Called by all files of the engine, runner.c, call.c and preview.c. Args that come with sweep.start() are
 * checked by sweep._check_args() as well, those of a CALL here only.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/cancel.h"
#include "base/clock.h"
#include "base/settings.h"
#include "engine/run_state.h"

static void check_args_size(Size size, const char *job);

PG_FUNCTION_INFO_V1(sweep_run_check_args_size);

SweepRun *
sweep_run_create(MemoryContext parent, SweepSlot *slot)
{
	MemoryContext context = AllocSetContextCreate(parent, "pg_sweep run", ALLOCSET_SMALL_SIZES);
	SweepRun   *run = MemoryContextAllocZero(context, sizeof(SweepRun));

	run->context = context;
	run->batch_context = AllocSetContextCreate(context, "pg_sweep batch", ALLOCSET_DEFAULT_SIZES);
	run->slot = slot;
	run->synchronous_commit = MemoryContextStrdup(context, GetConfigOption("synchronous_commit", false, false));
	return run;
}

void
sweep_run_check_role(const SweepRun *run)
{
	/* Its code could RESET ROLE, and of a session that was begun as a superuser RESET SESSION AUTHORIZATION. */
	if (GetUserId() == run->run_as && GetSessionUserId() == run->run_as && GetAuthenticatedUserId() == run->run_as)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("job \"%s\" can be run in a session of its role only", run->job),
			 OidIsValid(run->run_as) ? errdetail("The job runs as role \"%s\".", GetUserNameFromId(run->run_as, true)) :
			 errdetail("That role does not exist."),
			 errhint("Use sweep.start(), which runs it in the background as that role.")));
}

void
sweep_run_check_args(Jsonb *args, const char *job)
{
	if (!JB_ROOT_IS_OBJECT(args))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid args %s for job \"%s\"", JsonbToCString(NULL, &args->root, VARSIZE(args)), job),
				 errhint("The args must be a JSON object.")));
	check_args_size(VARSIZE(args), job);
}

/* SQL: sweep._check_args_size(name text, args jsonb) RETURNS void. However they are stored, they are not read. */
Datum
sweep_run_check_args_size(PG_FUNCTION_ARGS)
{
	check_args_size(toast_raw_datum_size(PG_GETARG_DATUM(1)), text_to_cstring(PG_GETARG_TEXT_PP(0)));
	PG_RETURN_VOID();
}

static void
check_args_size(Size size, const char *job)
{
	if (size <= (Size) sweep_max_args_size * 1024)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
			 errmsg("args of job \"%s\" are too large: %zu bytes", job, size),
			 errdetail("They may have pg_sweep.max_args_size, %d kB.", sweep_max_args_size),
			 errhint("Keep the data in a table and name it in the args, or raise pg_sweep.max_args_size.")));
}

void
sweep_run_read_clock(SweepRun *run)
{
	JsonbValue	buffer;
	JsonbValue *value = getKeyJsonValueFromContainer(&run->args->root, "as_of", strlen("as_of"), &buffer);

	if (value == NULL || value->type == jbvNull)
		return;
	if (value->type == jbvString)
		run->as_of = DatumGetTimestampTz(DirectFunctionCall3(timestamptz_in,
															 CStringGetDatum(pnstrdup(value->val.string.val, value->val.string.len)),
															 ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1)));
	/* As in sweep._check_args(), for args that come with a CALL. */
	if (value->type != jbvString || TIMESTAMP_NOT_FINITE(run->as_of))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid as_of in the args of job \"%s\"", run->job),
				 errhint("Write a timestamp with its zone: \"2026-01-01T00:00:00Z\".")));
}

SweepLimits
sweep_run_limits(const SweepRun *run)
{
	return (SweepLimits) {
		.batch_size = run->batch_size,
		.max_batches = run->max_batches,
		.max_rows = run->max_rows,
		.stop_after_us = run->stop_after_us,
		.pause_us = run->pause_us,
	};
}

void
sweep_run_note_cancel(SweepRun *run)
{
	if (sweep_cancel_is_pending())
		pg_atomic_fetch_or_u32(&run->slot->stop_request, SWEEP_STOP_REQUEST_CANCEL);
	sweep_cancel_drop();
}
