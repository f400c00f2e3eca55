/*
 * definition.c
 *		The settings of a job that a run needs, and how the scheduler hands them to the process of the run.
 *
 * Called by runner.c, scheduler.c, call.c and preview.c. The scheduler has the tables of jobs and runs in its caches,
 * a new process has not: reading its job took more than a millisecond, a quarter of the time from sweep.start to the
 * first batch. Therefore the scheduler hands the definition over in the slot of the run. A definition that does not
 * fit in the slot is read by the process of the run. The scheduler learns the size of a text or JSON value without
 * reading it, and does not read such a definition.
 *
 * The scheduler evaluates nothing in a definition, because a value that cannot be evaluated must not end the
 * scheduler. For this reason the process of the run merges the args of job and run.
 *
 * A packed definition is a sequence of values: the name of the job, its settings and those of the run
 * (job/job_settings.h), the place of the row and the extension. Numbers are copied, a text or JSON value is its
 * length and its bytes, with length 0 for NULL. It never leaves shared memory, so it needs no version and no
 * alignment.
 *
 * Args of sweep.start() are also checked by sweep._check_args(), args of a CALL only here.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/settings.h"
#include "base/sql.h"
#include "engine/definition.h"

/* The columns of a job that is read by its name, without a row of a run; $2 are the args of the run. */
#define COLUMN_BY_NAME(kind, member, column, by_name) ", " by_name
#define DEFINITION_BY_NAME "j.name" SWEEP_JOB_SETTINGS(SWEEP_JOB_COLUMN) SWEEP_RUN_SETTINGS(COLUMN_BY_NAME)

static SweepStatement read_job_sql = {
	.text = "SELECT " DEFINITION_BY_NAME " FROM sweep.job_definition j WHERE j.name = $1",
	.types = {TEXTOID, JSONBOID}};

typedef enum FieldKind
{
	FIELD_NUMBER,
	FIELD_TEXT,
	FIELD_JSONB,
} FieldKind;

typedef struct Field
{
	FieldKind	kind;
	Size		offset;			/* in SweepRun */
	Size		size;			/* of a number */
} Field;

#define KIND_OF(member) _Generic(((SweepRun *) 0)->member, char *: FIELD_TEXT, Jsonb *: FIELD_JSONB, default: FIELD_NUMBER)
#define FIELD(member) {KIND_OF(member), offsetof(SweepRun, member), sizeof(((SweepRun *) 0)->member)}
#define FIELD_OF(kind, member, ...) FIELD(member),

static const Field fields[] = {
	FIELD(job),
	SWEEP_JOB_SETTINGS(FIELD_OF)
	SWEEP_RUN_SETTINGS(FIELD_OF)
	FIELD(state.tid),
	FIELD(extension),
};

/* All fields are columns except the last two: the place of the row and the extension. */
#define COLUMNS ((int) lengthof(fields) - 2)

/* Reads the current column; the name is READ_ and the kind in its line of job_settings.h. */
#define READ_TEXT sweep_sql_text(column, run->context)
#define READ_JSONB sweep_sql_jsonb(column, run->context)
#define READ_INT32 sweep_sql_int32(column)
#define READ_INT32_OR(if_null) (sweep_sql_is_null(column) ? (if_null) : sweep_sql_int32(column))
#define READ_INT64 sweep_sql_int64(column)
#define READ_INTERVAL(if_null) sweep_sql_interval_us(column, if_null)
#define READ_BOOL sweep_sql_bool(column)
#define READ_ROLE sweep_sql_oid(column)
#define READ_IS_NULL sweep_sql_is_null(column)
#define READ_IS(word) is_word(column, word)
#define READ(kind, member, ...) \
	run->member = READ_##kind; \
	column++;

static void read_columns(SweepRun *run, int first_column);
static bool is_word(int column, const char *word);
static void merge_args(SweepRun *run);
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
	/* Code of the job could RESET ROLE, and in a session that was begun as a superuser RESET SESSION AUTHORIZATION. */
	if (GetUserId() == run->run_as && GetSessionUserId() == run->run_as && GetAuthenticatedUserId() == run->run_as)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("job \"%s\" can be run in a session of its role only", run->job),
			 OidIsValid(run->run_as) ? errdetail("The job runs as role \"%s\".", GetUserNameFromId(run->run_as, true)) :
			 errdetail("That role does not exist."),
			 errhint("Use sweep.start(), which runs it in the background as that role.")));
}

/* SQL: sweep._check_args_size(name text, args jsonb) RETURNS void. It gets the size without reading args that are stored out of line. */
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
	/* The same check as in sweep._check_args(), for args of a CALL. */
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
sweep_definition_read(SweepRun *run, int first_column)
{
	read_columns(run, first_column);
	merge_args(run);
}

void
sweep_definition_read_job(SweepRun *run, text *name, Jsonb *args)
{
	Datum		values[] = {PointerGetDatum(name), JsonbPGetDatum(args)};

	if (!JB_ROOT_IS_OBJECT(args))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid args %s for job \"%s\"", JsonbToCString(NULL, &args->root, VARSIZE(args)), text_to_cstring(name)),
				 errhint("The args must be a JSON object.")));
	check_args_size(VARSIZE(args), text_to_cstring(name));
	if (sweep_sql_execute(&read_job_sql, values, NULL) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("job \"%s\" does not exist", text_to_cstring(name)),
				 errhint("The view sweep.jobs lists the jobs of this database.")));
	sweep_definition_read(run, 1);
	sweep_run_read_clock(run);
}

void
sweep_definition_read_small(SweepRun *run, int first_column)
{
	Size		size = 0;

	for (int column = first_column; column < first_column + COLUMNS; column++)
		size += sweep_sql_raw_size(column);
	run->unread = size > SWEEP_DEFINITION_SIZE;
	if (!run->unread)
		read_columns(run, first_column);
}

static void
read_columns(SweepRun *run, int first_column)
{
	int			column = first_column;

	run->job = sweep_sql_text(column++, run->context);
	SWEEP_JOB_SETTINGS(READ)
	SWEEP_RUN_SETTINGS(READ)
	/* A share must end before its bucket is recovered. */
	if (run->bucket_count > 0 && run->stop_after_us < 0)
		run->stop_after_us = run->bucket_recovery_us / 2;
}

static bool
is_word(int column, const char *word)
{
	const char *value = sweep_sql_text(column, CurrentMemoryContext);

	return value != NULL && strcmp(value, word) == 0;
}

/* Called in the process of the run, so that args that are too large to be merged fail only this run. */
static void
merge_args(SweepRun *run)
{
	MemoryContext old = MemoryContextSwitchTo(run->context);

	run->args = DatumGetJsonbP(DirectFunctionCall2(jsonb_concat, JsonbPGetDatum(run->args), JsonbPGetDatum(run->run_args)));
	run->run_args = NULL;
	MemoryContextSwitchTo(old);
}

Size
sweep_definition_pack(const SweepRun *run, char *buffer, Size size)
{
	char	   *end = buffer;

	for (int i = 0; i < (int) lengthof(fields); i++)
	{
		const char *bytes = (const char *) run + fields[i].offset;
		Size		length = fields[i].size;
		Size		prefix = 0;

		if (fields[i].kind != FIELD_NUMBER)
		{
			bytes = *(const char *const *) bytes;
			length = bytes == NULL ? 0 : fields[i].kind == FIELD_TEXT ? strlen(bytes) + 1 : VARSIZE(bytes);
			prefix = sizeof(length);
		}
		if ((Size) (buffer + size - end) < prefix + length)
			return 0;
		memcpy(end, &length, prefix);
		if (length > 0)
			memcpy(end + prefix, bytes, length);
		end += prefix + length;
	}
	return end - buffer;
}

void
sweep_definition_unpack(SweepRun *run, const char *buffer)
{
	for (int i = 0; i < (int) lengthof(fields); i++)
	{
		char	   *target = (char *) run + fields[i].offset;
		Size		length = fields[i].size;

		if (fields[i].kind != FIELD_NUMBER)
		{
			memcpy(&length, buffer, sizeof(length));
			buffer += sizeof(length);
			*(char **) target = length > 0 ? MemoryContextAlloc(run->context, length) : NULL;
			target = *(char **) target;
		}
		if (length > 0)
			memcpy(target, buffer, length);
		buffer += length;
	}
	merge_args(run);
}

