/*
 * cron_next_test.c
 *	  When schedules are due: calendar, clock changes, intervals, H.
 *
 * Every case gives a schedule, a zone, a moment and the runs that follow it, as
 * local times with their offsets. Between runs nothing else may be due.
 */
#include "check.h"
#include "cron/cron.h"
#include "zone.h"

#define BERLIN "Europe/Berlin"
#define NEW_YORK "America/New_York"
#define LORD_HOWE "Australia/Lord_Howe"
#define APIA "Pacific/Apia"

typedef struct NextCase
{
	const char *schedule;
	const char *zone;
	const char *after;
	const char *runs[6];
} NextCase;

static const NextCase calendar_cases[] = {
	/* strictly after; seconds; carries from unit to unit */
	{"* * * * *", "UTC", "2026-01-01 00:00:00+0", {"2026-01-01 00:01:00+0", "2026-01-01 00:02:00+0"}},
	{"* * * * *", "UTC", "2025-12-31 23:59:59+0", {"2026-01-01 00:00:00+0"}},
	{"* * * * * *", "UTC", "2025-12-31 23:59:59+0", {"2026-01-01 00:00:00+0", "2026-01-01 00:00:01+0"}},
	{"*/20 59 23 * * *", "UTC", "2025-12-31 23:59:20+0", {"2025-12-31 23:59:40+0", "2026-01-01 23:59:00+0"}},
	{"15 30 4 * * *", "UTC", "2026-01-01 04:30:14+0", {"2026-01-01 04:30:15+0", "2026-01-02 04:30:15+0"}},
	{"15 30 4 * * *", "UTC", "2026-01-01 04:30:16+0", {"2026-01-02 04:30:15+0"}},
	{"30 4 * * *", "UTC", "2026-01-01 04:31:00+0", {"2026-01-02 04:30:00+0"}},
	{"30 4,6 * * *", "UTC", "2026-01-01 04:31:00+0", {"2026-01-01 06:30:00+0", "2026-01-02 04:30:00+0"}},
	{"5/15 9-10 * * *", "UTC", "2026-01-01 09:40:00+0", {"2026-01-01 09:50:00+0", "2026-01-01 10:05:00+0"}},
	/* month ends, leap days, year ends */
	{"0 0 31 * *", "UTC", "2026-01-31 00:00:00+0", {"2026-03-31 00:00:00+0", "2026-05-31 00:00:00+0", "2026-07-31 00:00:00+0", "2026-08-31 00:00:00+0"}},
	{"0 0 L * *", "UTC", "2026-01-31 00:00:00+0", {"2026-02-28 00:00:00+0", "2026-03-31 00:00:00+0", "2026-04-30 00:00:00+0"}},
	{"0 0 L 2 *", "UTC", "2027-03-01 00:00:00+0", {"2028-02-29 00:00:00+0", "2029-02-28 00:00:00+0"}},
	{"0 0 15,L 2 *", "UTC", "2028-01-01 00:00:00+0", {"2028-02-15 00:00:00+0", "2028-02-29 00:00:00+0", "2029-02-15 00:00:00+0"}},
	{"0 0 29 2 *", "UTC", "2024-02-29 00:00:00+0", {"2028-02-29 00:00:00+0", "2032-02-29 00:00:00+0"}},
	{"0 0 29 2 *", "UTC", "2096-02-29 00:00:00+0", {"2104-02-29 00:00:00+0", "2108-02-29 00:00:00+0"}},
	{"*/30 0 29 2 *", BERLIN, "2096-02-29 00:30:00+1", {"2104-02-29 00:00:00+1", "2104-02-29 00:30:00+1", "2108-02-29 00:00:00+1"}},
	{"0 0 29 2 */7", "UTC", "2080-03-01 00:00:00+0", {"2088-02-29 00:00:00+0", "2128-02-29 00:00:00+0"}},
	{"59 23 31 12 *", BERLIN, "2026-12-31 23:59:00+1", {"2027-12-31 23:59:00+1"}},
	{"@yearly", BERLIN, "2026-06-01 00:00:00+2", {"2027-01-01 00:00:00+1", "2028-01-01 00:00:00+1"}},
	{"@monthly", "UTC", "2026-11-21 00:00:00+0", {"2026-12-01 00:00:00+0", "2027-01-01 00:00:00+0"}},
	{"@weekly", "UTC", "2026-11-21 00:00:00+0", {"2026-11-22 00:00:00+0", "2026-11-29 00:00:00+0"}},
	{"@daily", "UTC", "2026-02-28 12:00:00+0", {"2026-03-01 00:00:00+0"}},
	{"@hourly", "UTC", "2026-02-28 23:00:00+0", {"2026-03-01 00:00:00+0", "2026-03-01 01:00:00+0"}},
	/* days: either, or both where one has a star */
	{"0 0 13 * fri", "UTC", "2026-02-07 00:00:00+0", {"2026-02-13 00:00:00+0", "2026-02-20 00:00:00+0", "2026-02-27 00:00:00+0", "2026-03-06 00:00:00+0", "2026-03-13 00:00:00+0"}},
	{"0 0 */15 * fri", "UTC", "2026-01-01 00:00:00+0", {"2026-01-16 00:00:00+0", "2026-05-01 00:00:00+0", "2026-07-31 00:00:00+0"}},
	{"0 0 1 1 mon-fri", "UTC", "2026-01-31 00:00:00+0", {"2027-01-01 00:00:00+0", "2027-01-04 00:00:00+0"}},
	{"0 0 30 2 mon", "UTC", "2026-02-20 00:00:00+0", {"2026-02-23 00:00:00+0", "2027-02-01 00:00:00+0"}},
	/* before 1970 and far away */
	{"0 0 1 1 *", "UTC", "1900-01-01 00:00:00+0", {"1901-01-01 00:00:00+0"}},
	{"0 0 29 2 *", "UTC", "1896-03-01 00:00:00+0", {"1904-02-29 00:00:00+0"}},
	{"0 0 * * 4", "UTC", "1969-12-31 12:00:00+0", {"1970-01-01 00:00:00+0"}},
	{"0 12 1 1 *", BERLIN, "9999-01-02 00:00:00+1", {"10000-01-01 12:00:00+1"}},
	/* intervals: a grid in UTC */
	{"every 30 seconds", BERLIN, "2026-01-01 00:00:00+0", {"2026-01-01 00:00:30+0", "2026-01-01 00:01:00+0"}},
	{"every 1 second", BERLIN, "2026-01-01 00:00:00+0", {"2026-01-01 00:00:01+0"}},
	{"every 6 hours", BERLIN, "2026-03-29 00:00:00+1", {"2026-03-29 00:00:00+0", "2026-03-29 06:00:00+0"}},
	{"every 7 minutes", "UTC", "1970-01-01 00:00:00+0", {"1970-01-01 00:07:00+0"}},
	{"every 7 minutes", "UTC", "1969-12-31 23:59:59+0", {"1970-01-01 00:00:00+0"}},
	{"every 7 minutes", "UTC", "1969-12-31 23:53:00+0", {"1970-01-01 00:00:00+0"}},
};

static const NextCase clock_cases[] = {
	/* Berlin, spring: 02:00 to 03:00 */
	{"30 2 * * *", BERLIN, "2026-03-28 02:30:00+1", {"2026-03-29 03:00:00+2", "2026-03-30 02:30:00+2"}},
	{"0 2 * * *", BERLIN, "2026-03-28 02:00:00+1", {"2026-03-29 03:00:00+2", "2026-03-30 02:00:00+2"}},
	{"0,15,59 2 * * *", BERLIN, "2026-03-28 02:59:00+1", {"2026-03-29 03:00:00+2", "2026-03-30 02:00:00+2"}},
	{"0 2,3 * * *", BERLIN, "2026-03-28 12:00:00+1", {"2026-03-29 03:00:00+2", "2026-03-30 02:00:00+2"}},
	{"30 2,3 * * *", BERLIN, "2026-03-28 12:00:00+1", {"2026-03-29 03:00:00+2", "2026-03-29 03:30:00+2", "2026-03-30 02:30:00+2"}},
	{"59 59 2 * * *", BERLIN, "2026-03-28 12:00:00+1", {"2026-03-29 03:00:00+2", "2026-03-30 02:59:59+2"}},
	{"59 1 * * *", BERLIN, "2026-03-28 12:00:00+1", {"2026-03-29 01:59:00+1", "2026-03-30 01:59:00+2"}},
	{"0 3 * * *", BERLIN, "2026-03-28 12:00:00+1", {"2026-03-29 03:00:00+2", "2026-03-30 03:00:00+2"}},
	{"30 2 29 3 *", BERLIN, "2026-01-01 00:00:00+1", {"2026-03-29 03:00:00+2", "2027-03-29 02:30:00+2"}},
	{"*/15 2 * * *", BERLIN, "2026-03-28 02:45:00+1", {"2026-03-30 02:00:00+2", "2026-03-30 02:15:00+2"}},
	{"*/15 2 29 3 *", BERLIN, "2025-12-01 00:00:00+1", {"2027-03-29 02:00:00+2"}},
	{"30 * * * *", BERLIN, "2026-03-29 00:30:00+1", {"2026-03-29 01:30:00+1", "2026-03-29 03:30:00+2"}},
	{"*/30 * * * *", BERLIN, "2026-03-29 01:00:00+1", {"2026-03-29 01:30:00+1", "2026-03-29 03:00:00+2"}},
	{"0 */2 * * *", BERLIN, "2026-03-29 00:00:00+1", {"2026-03-29 04:00:00+2", "2026-03-29 06:00:00+2"}},
	{"*/30 30 2 * * *", BERLIN, "2026-03-28 12:00:00+1", {"2026-03-30 02:30:00+2", "2026-03-30 02:30:30+2"}},
	/* Berlin, autumn: 03:00 to 02:00 */
	{"30 2 * * *", BERLIN, "2026-10-24 02:30:00+2", {"2026-10-25 02:30:00+2", "2026-10-26 02:30:00+1"}},
	{"30 2 * * *", BERLIN, "2026-10-25 02:10:00+1", {"2026-10-26 02:30:00+1"}},
	{"0 2 * * *", BERLIN, "2026-10-25 00:00:00+2", {"2026-10-25 02:00:00+2", "2026-10-26 02:00:00+1"}},
	{"0 3 * * *", BERLIN, "2026-10-25 00:00:00+2", {"2026-10-25 03:00:00+1", "2026-10-26 03:00:00+1"}},
	{"0,30 2,3 * * *", BERLIN, "2026-10-25 00:00:00+2", {"2026-10-25 02:00:00+2", "2026-10-25 02:30:00+2", "2026-10-25 03:00:00+1", "2026-10-25 03:30:00+1"}},
	{"*/30 2 * * *", BERLIN, "2026-10-25 00:00:00+2", {"2026-10-25 02:00:00+2", "2026-10-25 02:30:00+2", "2026-10-25 02:00:00+1", "2026-10-25 02:30:00+1", "2026-10-26 02:00:00+1"}},
	{"30 * * * *", BERLIN, "2026-10-25 01:30:00+2", {"2026-10-25 02:30:00+2", "2026-10-25 02:30:00+1", "2026-10-25 03:30:00+1"}},
	{"* * * * *", BERLIN, "2026-10-25 02:58:00+2", {"2026-10-25 02:59:00+2", "2026-10-25 02:00:00+1", "2026-10-25 02:01:00+1"}},
	{"* 2 * * *", BERLIN, "2026-10-25 02:59:00+1", {"2026-10-26 02:00:00+1"}},
	{"0 0 2 * * *", BERLIN, "2026-10-25 02:00:00+2", {"2026-10-26 02:00:00+1"}},
	/* New York */
	{"30 2 * * *", NEW_YORK, "2026-03-07 12:00:00-5", {"2026-03-08 03:00:00-4", "2026-03-09 02:30:00-4"}},
	{"*/30 2 * * *", NEW_YORK, "2026-03-07 12:00:00-5", {"2026-03-09 02:00:00-4", "2026-03-09 02:30:00-4"}},
	{"30 1 * * *", NEW_YORK, "2026-10-31 12:00:00-4", {"2026-11-01 01:30:00-4", "2026-11-02 01:30:00-5"}},
	{"*/30 1 * * *", NEW_YORK, "2026-10-31 12:00:00-4", {"2026-11-01 01:00:00-4", "2026-11-01 01:30:00-4", "2026-11-01 01:00:00-5", "2026-11-01 01:30:00-5", "2026-11-02 01:00:00-5"}},
	/* Lord Howe: half an hour; October 02:00 to 02:30, April 02:00 to 01:30 */
	{"15 2 * * *", LORD_HOWE, "2026-10-03 12:00:00+10:30", {"2026-10-04 02:30:00+11", "2026-10-05 02:15:00+11"}},
	{"30 2 * * *", LORD_HOWE, "2026-10-03 12:00:00+10:30", {"2026-10-04 02:30:00+11", "2026-10-05 02:30:00+11"}},
	{"15,45 2 * * *", LORD_HOWE, "2026-10-03 12:00:00+10:30", {"2026-10-04 02:30:00+11", "2026-10-04 02:45:00+11", "2026-10-05 02:15:00+11"}},
	{"15 * * * *", LORD_HOWE, "2026-10-04 00:15:00+10:30", {"2026-10-04 01:15:00+10:30", "2026-10-04 03:15:00+11"}},
	{"30 * * * *", LORD_HOWE, "2026-10-04 01:00:00+10:30", {"2026-10-04 01:30:00+10:30", "2026-10-04 02:30:00+11"}},
	{"45 1 * * *", LORD_HOWE, "2026-04-04 12:00:00+11", {"2026-04-05 01:45:00+11", "2026-04-06 01:45:00+10:30"}},
	{"30 1 * * *", LORD_HOWE, "2026-04-05 01:30:00+11", {"2026-04-06 01:30:00+10:30"}},
	{"0 2 * * *", LORD_HOWE, "2026-04-05 00:00:00+11", {"2026-04-05 02:00:00+10:30", "2026-04-06 02:00:00+10:30"}},
	{"30 * * * *", LORD_HOWE, "2026-04-05 01:00:00+11", {"2026-04-05 01:30:00+11", "2026-04-05 01:30:00+10:30", "2026-04-05 02:30:00+10:30"}},
	{"15 * * * *", LORD_HOWE, "2026-04-05 00:30:00+11", {"2026-04-05 01:15:00+11", "2026-04-05 02:15:00+10:30"}},
	/* midnight does not exist: Sao Paulo 2018-11-04 00:00 to 01:00 */
	{"0 0 * * *", "America/Sao_Paulo", "2018-11-03 12:00:00-3", {"2018-11-04 01:00:00-2", "2018-11-05 00:00:00-2"}},
	{"59 23 * * *", "America/Sao_Paulo", "2018-11-03 12:00:00-3", {"2018-11-03 23:59:00-3", "2018-11-04 23:59:00-2"}},
	{"0 0 4 11 *", "America/Sao_Paulo", "2018-01-01 00:00:00-2", {"2018-11-04 01:00:00-2", "2019-11-04 00:00:00-3"}},
	/* and is shown twice: 2018-02-18 00:00 to 23:00 of the day before */
	{"30 23 * * *", "America/Sao_Paulo", "2018-02-17 12:00:00-2", {"2018-02-17 23:30:00-2", "2018-02-18 23:30:00-3"}},
	{"*/30 23 17 2 *", "America/Sao_Paulo", "2018-02-17 12:00:00-2", {"2018-02-17 23:00:00-2", "2018-02-17 23:30:00-2", "2018-02-17 23:00:00-3", "2018-02-17 23:30:00-3", "2019-02-17 23:00:00-3"}},
	/* Apia had no 2011-12-30 */
	{"0 12 * * *", APIA, "2011-12-28 12:00:00-10", {"2011-12-29 12:00:00-10", "2011-12-31 00:00:00+14", "2011-12-31 12:00:00+14"}},
	{"0 0 * * *", APIA, "2011-12-29 00:00:00-10", {"2011-12-31 00:00:00+14", "2012-01-01 00:00:00+14"}},
	{"0 12 30 12 *", APIA, "2011-01-01 00:00:00-10", {"2011-12-31 00:00:00+14", "2012-12-30 12:00:00+14"}},
	{"0 */12 * * *", APIA, "2011-12-29 00:00:00-10", {"2011-12-29 12:00:00-10", "2011-12-31 00:00:00+14", "2011-12-31 12:00:00+14"}},
	{"0 * 30 12 *", APIA, "2011-01-01 00:00:00-10", {"2012-12-30 00:00:00+14"}},
	/* Kwajalein had 1969-09-30 twice, 23 hours apart; the fixed one is due once */
	{"0 12 * * *", "Pacific/Kwajalein", "1969-09-29 12:00:00+11", {"1969-09-30 12:00:00+11", "1969-10-01 12:00:00-12"}},
	{"0 */12 30 9 *", "Pacific/Kwajalein", "1969-09-29 12:00:00+11", {"1969-09-30 00:00:00+11", "1969-09-30 12:00:00+11", "1969-09-30 12:00:00-12", "1970-09-30 00:00:00-12"}},
	/* changes that are not on the hour: Kathmandu 1986 by 15 minutes, Berlin 1893 by 6:32 */
	{"10 0 * * *", "Asia/Kathmandu", "1985-12-31 12:00:00+5:30", {"1986-01-01 00:15:00+5:45", "1986-01-02 00:10:00+5:45"}},
	{"*/5 * * * *", "Asia/Kathmandu", "1985-12-31 23:50:00+5:30", {"1985-12-31 23:55:00+5:30", "1986-01-01 00:15:00+5:45"}},
	{"3 0 1 4 *", BERLIN, "1893-03-01 00:00:00+1", {"1893-04-01 00:06:32+1", "1894-04-01 00:03:00+1"}},
};

/* The runs of a case and, after the last one expected, nothing that is too early. */
static void
test_case(const NextCase *expected)
{
	int64_t		after = zone_moment(expected->after);
	SweepCronError error;
	SweepCron	cron;

	if (!sweep_cron_parse(expected->schedule, 0, &cron, &error))
	{
		check(false, "%s: %s", expected->schedule, error.message);
		return;
	}
	for (int i = 0; i < 6 && expected->runs[i] != NULL; i++)
	{
		int64_t		wanted = zone_moment(expected->runs[i]);
		int64_t		next = 0;
		bool		found = sweep_cron_next(&cron, after, zone_offset, (void *) expected->zone, &next);

		if (!check(found && next == wanted, "%s in %s after %s is due %s", expected->schedule,
				   expected->zone, zone_text(after), expected->runs[i]))
			printf("# found %s\n", found ? zone_text(next) : "never");

		/* from anywhere on the way there it is the same */
		for (int64_t part = 1; part < 8; part++)
		{
			int64_t		between = after + (wanted - 1 - after) * part / 7;

			if (!sweep_cron_next(&cron, between, zone_offset, (void *) expected->zone, &next) ||
				next != wanted)
				check(false, "and the same after %s", zone_text(between));
		}
		after = wanted;
	}
}

static void
test_never(void)
{
	static const char *const texts[] = {"0 0 * * *", "* * * * *", "every 1 hour"};
	SweepCronError error;
	SweepCron	cron;
	int64_t		next;

	check(sweep_cron_parse("@reboot", 0, &cron, &error) &&
		  !sweep_cron_next(&cron, 0, zone_offset, "UTC", &next), "@reboot is never due");
	for (int i = 0; i < 3; i++)
		check(sweep_cron_parse(texts[i], 0, &cron, &error) &&
			  !sweep_cron_next(&cron, INT64_MAX, zone_offset, "UTC", &next) &&
			  !sweep_cron_next(&cron, INT64_MIN, zone_offset, "UTC", &next),
			  "%s is never due beyond the end of time", texts[i]);

	/* a zone whose clock jumps over the same hour of the same day in every year */
	check(sweep_cron_parse("*/5 0 21 3 *", 0, &cron, &error) &&
		  !sweep_cron_next(&cron, 0, zone_offset, "XXX-3YYY,J80/0,J264/0", &next),
		  "times that clock changes swallow in every year are never due");
	check(sweep_cron_parse("5 0 21 3 *", 0, &cron, &error) &&
		  sweep_cron_next(&cron, 0, zone_offset, "XXX-3YYY,J80/0,J264/0", &next) &&
		  next == zone_moment("1970-03-21 01:00:00+4"), "but a fixed time among them is, after the gap");
}

/* UTC, counting how often it is asked. */
static int32_t
counting_offset(int64_t moment, void *arg)
{
	(void) moment;
	++*(int *) arg;
	return 0;
}

/* The cost must not depend on how far away a run is, or from when one asks. */
static void
test_cost(void)
{
	static const char *const texts[] = {"0 0 29 2 *", "*/5 0 29 2 *", "0 0 29 2 */6", "* * * * *"};
	static const char *const moments[] = {"2096-03-01 00:00:00+0", "1800-01-01 00:00:00+0", "90000-01-01 00:00:00+0"};

	for (int i = 0; i < 4; i++)
	{
		for (int j = 0; j < 3; j++)
		{
			int			count = 0;
			int64_t		next;
			SweepCronError error;
			SweepCron	cron;
			bool		found = sweep_cron_parse(texts[i], 0, &cron, &error) &&
				sweep_cron_next(&cron, zone_moment(moments[j]), counting_offset, &count, &next);

			check(found && count <= 10, "%s after %s asks for %d offsets", texts[i], moments[j], count);
		}
	}
}

/* The value of H in the minute field (or hour) for a job. */
static int
hash_value(const char *schedule, const char *job, bool hour)
{
	SweepCronError error;
	SweepCron	cron;

	if (!sweep_cron_parse(schedule, sweep_cron_seed(job), &cron, &error))
		return -1;
	return __builtin_ctzll(hour ? cron.hours : cron.minutes);
}

static void
test_hash(void)
{
	int			minutes[60] = {0};
	int			least = 1000;
	int			most = 0;
	int			together = 0;
	bool		in_range = true;
	SweepCronError error;
	SweepCron	cron;

	/* these numbers are part of running systems: a change moves everybody's jobs */
	check_number(sweep_cron_seed(NULL), sweep_cron_seed(""), "no name is the empty name");
	check_number(sweep_cron_seed("vacuum_sessions"), 804569110, "seed of a name");
	check_number(hash_value("H H * * *", "vacuum_sessions", false), 49, "its minute");
	check_number(hash_value("H H * * *", "vacuum_sessions", true), 13, "its hour");
	check_number(hash_value("H H * * *", "a", false), 3, "minute of another");

	for (int i = 0; i < 6000; i++)
	{
		char		job[32];
		int			minute;
		int			hour;

		(void) snprintf(job, sizeof(job), "job_%d", i);
		minute = hash_value("H H * * *", job, false);
		hour = hash_value("H H * * *", job, true);
		minutes[minute]++;
		together += minute % 24 == hour;
		minute = hash_value("H(10-19) * * * *", job, false);
		in_range = in_range && minute >= 10 && minute <= 19;
		minute = hash_value("H/15 * * * *", job, false);
		in_range = in_range && minute >= 0 && minute <= 14;
		minute = hash_value("H(30-59)/10 * * * *", job, false);
		in_range = in_range && minute >= 30 && minute <= 39;
		in_range = in_range && sweep_cron_parse("H H H H H H", sweep_cron_seed(job), &cron, &error) &&
			cron.days < UINT64_C(1) << 29 && cron.weekdays < 0x80 && cron.months > 1;
	}
	for (int i = 0; i < 60; i++)
	{
		least = minutes[i] < least ? minutes[i] : least;
		most = minutes[i] > most ? minutes[i] : most;
	}
	check(least > 50 && most < 160, "6000 jobs spread over 60 minutes: %d to %d", least, most);
	check(together > 150 && together < 400, "minute and hour do not go together: %d", together);
	check(in_range, "every H is within its range");

	check(sweep_cron_parse("H/15 2 * * *", 7, &cron, &error) && cron.repeats &&
		  __builtin_popcountll(cron.minutes) == 4, "H/15 is four minutes and repeats");
	check(sweep_cron_parse("H 2 * * *", 7, &cron, &error) && !cron.repeats &&
		  __builtin_popcountll(cron.minutes) == 1, "H is one minute and fixed");
	check(sweep_cron_parse("H(0-29)/10 2 * * *", 7, &cron, &error) && !cron.repeats &&
		  __builtin_popcountll(cron.minutes) == 3, "H(0-29)/10 is three minutes and fixed");
	check(sweep_cron_parse("0 0 H 2 *", 12345, &cron, &error), "H is a day that February has");
	check(sweep_cron_parse("h(5-5) * * * *", 1, &cron, &error) && cron.minutes == UINT64_C(1) << 5,
		  "h(5-5) leaves no choice");
}

int
main(void)
{
	for (size_t i = 0; i < sizeof(calendar_cases) / sizeof(calendar_cases[0]); i++)
		test_case(&calendar_cases[i]);
	for (size_t i = 0; i < sizeof(clock_cases) / sizeof(clock_cases[0]); i++)
		test_case(&clock_cases[i]);
	test_never();
	test_cost();
	test_hash();
	return check_finish();
}
