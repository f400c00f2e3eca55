/*
 * schedule.c
 *		Due times of schedules, in PostgreSQL's time zones and timestamps.
 *
 * Called by SQL: sweep.next_runs for users, sweep._next_run for the functions that create and queue jobs. The room cron
 * reads a schedule (cron.c) and finds the next moment (next.c). This file adds the time zones of PostgreSQL, converts
 * between its timestamps and seconds since 1970, and raises the errors. Tests: sql/next_runs.sql.
 *
 * Nothing is cached: parsing a schedule costs less than a look into a cache.
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "pgtime.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "cron/cron.h"

#define MAX_RUNS 10000

/* Seconds between the Unix epoch and PostgreSQL's epoch. */
#define EPOCH_DISTANCE ((int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * INT64CONST(86400))

typedef struct Schedule
{
	SweepCron	cron;
	pg_tz	   *zone;			/* never freed */
} Schedule;

PG_FUNCTION_INFO_V1(sweep_schedule_next_runs);
PG_FUNCTION_INFO_V1(sweep_schedule_next_run);
PG_FUNCTION_INFO_V1(sweep_schedule_kind);

static void read_schedule(FunctionCallInfo fcinfo, int job_number, Schedule *schedule);
static void refuse_null_argument(FunctionCallInfo fcinfo, int number, const char *name);
static char *text_argument(FunctionCallInfo fcinfo, int number);
static pg_tz *find_zone(const char *name);
static void read_cron(const char *text, const char *job_name, SweepCron *cron);
static TimestampTz next_after(const Schedule *schedule, TimestampTz after);
static int32_t zone_offset(int64_t moment, void *arg);

/* sweep.next_runs(schedule, timezone, after, n, job) */
Datum
sweep_schedule_next_runs(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	Schedule	schedule;
	TimestampTz after;
	int			count;

	refuse_null_argument(fcinfo, 0, "schedule");
	read_schedule(fcinfo, 4, &schedule);
	refuse_null_argument(fcinfo, 3, "n");
	after = PG_GETARG_TIMESTAMPTZ(2);
	count = PG_GETARG_INT32(3);
	if (count < 0 || count > MAX_RUNS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("number of runs \"%d\" is out of range", count),
				 errhint("Allowed are 0 to %d.", MAX_RUNS)));
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	for (int i = 0; i < count; i++)
	{
		Datum		value;
		bool		is_null = false;

		CHECK_FOR_INTERRUPTS();
		after = next_after(&schedule, after);
		if (TIMESTAMP_IS_NOEND(after))
			break;
		value = TimestampTzGetDatum(after);
		tuplestore_putvalues(result->setResult, result->setDesc, &value, &is_null);
	}
	return (Datum) 0;
}

/* sweep._next_run(schedule, timezone, after, job) */
Datum
sweep_schedule_next_run(PG_FUNCTION_ARGS)
{
	Schedule	schedule;
	TimestampTz next;

	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	read_schedule(fcinfo, 3, &schedule);
	next = next_after(&schedule, PG_GETARG_TIMESTAMPTZ(2));
	if (TIMESTAMP_IS_NOEND(next))
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMPTZ(next);
}

/* sweep._schedule_kind(schedule) */
Datum
sweep_schedule_kind(PG_FUNCTION_ARGS)
{
	SweepCron	cron;

	read_cron(text_argument(fcinfo, 0), NULL, &cron);
	PG_RETURN_TEXT_P(cstring_to_text(cron.kind == SWEEP_CRON_INTERVAL ? "interval" : cron.repeats ? "repeating" : "fixed"));
}

/*
 * Reads the arguments schedule, timezone and after (the first three), and the name of the job (number job_number, from 0).
 */
static void
read_schedule(FunctionCallInfo fcinfo, int job_number, Schedule *schedule)
{
	refuse_null_argument(fcinfo, 1, "timezone");
	refuse_null_argument(fcinfo, 2, "after");
	schedule->zone = find_zone(text_argument(fcinfo, 1));
	read_cron(text_argument(fcinfo, 0), text_argument(fcinfo, job_number), &schedule->cron);
}

static void
refuse_null_argument(FunctionCallInfo fcinfo, int number, const char *name)
{
	if (PG_ARGISNULL(number))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("\"%s\" must not be null", name)));
}

/* An argument as a C string, NULL where it is null. */
static char *
text_argument(FunctionCallInfo fcinfo, int number)
{
	return PG_ARGISNULL(number) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(number));
}

/* A zone by its name, with the checks that PostgreSQL makes for its setting. */
static pg_tz *
find_zone(const char *name)
{
	pg_tz	   *zone = pg_tzset(name);

	if (zone == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("time zone \"%s\" does not exist", name),
				 errhint("The view pg_timezone_names lists what there is, for example Europe/Berlin.")));
	if (!pg_tz_acceptable(zone))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("time zone \"%s\" uses leap seconds", name),
				 errdetail("PostgreSQL does not support leap seconds.")));
	return zone;
}

static void
read_cron(const char *text, const char *job_name, SweepCron *cron)
{
	SweepCronError error;

	if (!sweep_cron_parse(text, sweep_cron_seed(job_name), cron, &error))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s", error.message),
				 errhint("%s", error.hint[0] != '\0' ? error.hint :
						 "Write for example \"0 4 * * *\", @daily, \"every minute\" or \"every 30 seconds\".")));
}

static TimestampTz
next_after(const Schedule *schedule, TimestampTz after)
{
	int64		second;
	int64		next;

	if (TIMESTAMP_IS_NOBEGIN(after))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("there is no first run after \"-infinity\"")));
	if (TIMESTAMP_IS_NOEND(after))
		return DT_NOEND;

	/* Due times are whole seconds: rounding "after" down excludes none of them. */
	second = after / USECS_PER_SEC - (after % USECS_PER_SEC < 0 ? 1 : 0);
	if (!sweep_cron_next(&schedule->cron, second + EPOCH_DISTANCE, zone_offset, schedule->zone, &next))
		return DT_NOEND;
	next -= EPOCH_DISTANCE;
	return next >= END_TIMESTAMP / USECS_PER_SEC ? DT_NOEND : next * USECS_PER_SEC;
}

/* The offset of a zone at a moment. Called by next.c. */
static int32_t
zone_offset(int64_t moment, void *arg)
{
	pg_time_t	time = (pg_time_t) moment;
	pg_tz	   *zone = (pg_tz *) arg;
	struct pg_tm *local = pg_localtime(&time, zone);
	int64		offset = local == NULL ? PG_INT64_MAX : local->tm_gmtoff;

	if (offset < -SWEEP_CRON_MAX_OFFSET || offset > SWEEP_CRON_MAX_OFFSET)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("time zone \"%s\" is too far from UTC", pg_get_timezone_name(zone))));
	return (int32_t) offset;
}
