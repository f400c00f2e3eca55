/*
 * next.c
 *		Finds the moment at which a schedule is due next.
 *
 * Called by schedule.c. The search steps through fields, not through minutes: the calendar gives the next matching
 * local time, and the offset of the zone turns it into a moment. If the offset changes before that moment, the search
 * starts again from the change. Its cost does not depend on how far away the moment is. All arithmetic is in seconds
 * since 1970-01-01, with "local" meaning moment + offset. A zone is only a function that returns offsets, so the same
 * code works with the zones of PostgreSQL and, in the tests, of libc.
 */
#include "cron/cron.h"

#define DAY_SECONDS INT64_C(86400)

/* The calendar repeats after 400 years: a date that has not come by then never comes. */
#define CALENDAR_MONTHS (400 * 12)

/* Range of the moments that are searched, in seconds from 1970 in both directions: about 317,000 years. */
#define MAX_MOMENT INT64_C(10000000000000)

/* Number of successive matching days after which the search gives up, if clock changes skip all times of these days. */
#define MAX_SWALLOWED 1000

static bool next_fixed(const SweepCron *cron, int64_t after, SweepCronOffset offset, void *arg,
					   int64_t *next);
static bool next_repeating(const SweepCron *cron, int64_t after, SweepCronOffset offset, void *arg,
						   int64_t *next);
static int64_t highest_local(int64_t moment, SweepCronOffset offset, void *arg);
static int64_t next_change(int64_t from, int64_t until, SweepCronOffset offset, void *arg);
static bool next_local(const SweepCron *cron, int64_t from, int64_t *local);
static bool next_day(const SweepCron *cron, int64_t from, int64_t *day);
static bool day_matches(const SweepCron *cron, int day, int length, int first_weekday);
static int next_time(const SweepCron *cron, int from);
static int next_value(uint64_t set, int from);
static int64_t year_start(int64_t year);
static int month_length(int64_t year, int month);
static int64_t floor_divide(int64_t value, int64_t by);
static int floor_modulo(int64_t value, int64_t by);

bool
sweep_cron_next(const SweepCron *cron, int64_t after, SweepCronOffset offset, void *arg,
				int64_t *next)
{
	if (cron->kind == SWEEP_CRON_REBOOT || after < -MAX_MOMENT || after > MAX_MOMENT)
		return false;
	if (cron->kind == SWEEP_CRON_INTERVAL)
	{
		*next = (floor_divide(after, cron->interval) + 1) * cron->interval;
		return true;
	}
	if (cron->repeats)
		return next_repeating(cron, after, offset, arg, next);
	return next_fixed(cron, after, offset, arg, next);
}

bool
sweep_cron_has_date(const SweepCron *cron)
{
	int64_t		day;

	return next_day(cron, 0, &day);
}

/*
 * Fixed times: due when the local clock first reaches or passes one. The search
 * begins above the highest reading of the clock, because earlier times are done.
 */
static bool
next_fixed(const SweepCron *cron, int64_t after, SweepCronOffset offset, void *arg,
		   int64_t *next)
{
	int64_t		from = after + 1;
	int64_t		local;

	if (!next_local(cron, highest_local(after, offset, arg) + 1, &local))
		return false;
	if (from < local - SWEEP_CRON_MAX_OFFSET)
		from = local - SWEEP_CRON_MAX_OFFSET;
	for (;;)
	{
		int64_t		due = local - offset(from, arg);
		int64_t		change;

		if (due < from)			/* the clock has just jumped over it */
			due = from;
		change = next_change(from, due, offset, arg);
		if (change > due)
		{
			*next = due;
			return true;
		}
		from = change;
	}
}

/*
 * Repeating times: due whenever the local clock shows one. Periods with one offset are searched one after the other,
 * but only near a matching day.
 */
static bool
next_repeating(const SweepCron *cron, int64_t after, SweepCronOffset offset, void *arg,
			   int64_t *next)
{
	int64_t		from = after + 1;

	for (int i = 0; i < MAX_SWALLOWED; i++)
	{
		int64_t		local;
		int64_t		until;

		if (!next_local(cron, from - SWEEP_CRON_MAX_OFFSET, &local))
			return false;
		if (from < local - SWEEP_CRON_MAX_OFFSET)
			from = local - SWEEP_CRON_MAX_OFFSET;
		until = from + 2 * SWEEP_CRON_MAX_OFFSET + DAY_SECONDS;
		while (from <= until)
		{
			int32_t		current = offset(from, arg);
			int64_t		due;
			int64_t		change;

			if (!next_local(cron, from + current, &local))
				return false;
			due = local - current;
			change = next_change(from, due < until ? due : until, offset, arg);
			if (change > due)
			{
				*next = due;
				return true;
			}
			from = change;
		}
	}
	return false;
}

/* The latest local time that the clock has shown up to a moment. */
static int64_t
highest_local(int64_t moment, SweepCronOffset offset, void *arg)
{
	/* no clock was ever set back by more than twice the greatest offset */
	int64_t		from = moment - 2 * SWEEP_CRON_MAX_OFFSET;
	int64_t		highest = INT64_MIN;

	while (from <= moment)
	{
		int64_t		change = next_change(from, moment, offset, arg);
		int64_t		local = change - 1 + offset(from, arg);

		if (local > highest)
			highest = local;
		from = change;
	}
	return highest;
}

/*
 * The first moment after "from", at most "until", with another offset; else
 * until + 1. The period is about three days at most. No two changes in the time zone database are nearer to each
 * other, so comparing the offsets at both ends finds any change.
 */
static int64_t
next_change(int64_t from, int64_t until, SweepCronOffset offset, void *arg)
{
	int32_t		current = offset(from, arg);
	int64_t		low = from;
	int64_t		high = until;

	if (offset(until, arg) == current)
		return until + 1;
	while (high - low > 1)
	{
		int64_t		middle = low + (high - low) / 2;

		if (offset(middle, arg) == current)
			low = middle;
		else
			high = middle;
	}
	return high;
}

/* The first matching local time from "from" on. */
static bool
next_local(const SweepCron *cron, int64_t from, int64_t *local)
{
	int64_t		today = floor_divide(from, DAY_SECONDS);
	int64_t		day;
	int			second = -1;

	if (!next_day(cron, today, &day))
		return false;
	if (day == today)
	{
		second = next_time(cron, floor_modulo(from, DAY_SECONDS));
		if (second < 0 && !next_day(cron, today + 1, &day))
			return false;
	}
	if (second < 0)
		second = next_time(cron, 0);
	*local = day * DAY_SECONDS + second;
	return true;
}

/* The first matching day from "from" on, in days since 1970-01-01. */
static bool
next_day(const SweepCron *cron, int64_t from, int64_t *day)
{
	int64_t		year = 1970 + floor_divide(from * 400, 146097);
	int			month = 1;
	int64_t		first;			/* day on which the month begins */

	/* the mean length of a year is at most a day or two off */
	while (year_start(year) > from)
		year--;
	while (year_start(year + 1) <= from)
		year++;
	first = year_start(year);
	while (first + month_length(year, month) <= from)
		first += month_length(year, month++);

	for (int i = 0; i <= CALENDAR_MONTHS; i++)
	{
		int			length = month_length(year, month);
		int			weekday = floor_modulo(first + 4, 7);	/* 1970-01-01 was a Thursday */

		for (int d = first < from ? (int) (from - first) + 1 : 1;
			 d <= length && (cron->months >> month & 1) != 0; d++)
		{
			if (day_matches(cron, d, length, weekday))
			{
				*day = first + d - 1;
				return true;
			}
		}
		first += length;
		year += month == 12;
		month = month == 12 ? 1 : month + 1;
	}
	return false;
}

/* Does a day of a month match, given the weekday of that month's first? */
static bool
day_matches(const SweepCron *cron, int day, int length, int first_weekday)
{
	bool		by_day = (cron->days >> day & 1) != 0 || (cron->last_day && day == length);
	bool		by_weekday = (cron->weekdays >> ((first_weekday + day - 1) % 7) & 1) != 0;

	return cron->either_day ? by_day || by_weekday : by_day && by_weekday;
}

/* The first matching second of a day from "from" on, or -1. */
static int
next_time(const SweepCron *cron, int from)
{
	int			wanted_hour = from / 3600;
	int			wanted_minute = from / 60 % 60;
	int			second = next_value(cron->seconds, from % 60);
	int			minute;
	int			hour;

	/* from the smallest unit up, each carries into the next when it is used up */
	minute = next_value(cron->minutes, second < 0 ? wanted_minute + 1 : wanted_minute);
	hour = next_value(cron->hours, minute < 0 ? wanted_hour + 1 : wanted_hour);
	if (hour < 0)
		return -1;
	if (hour != wanted_hour)
		minute = next_value(cron->minutes, 0);
	if (hour != wanted_hour || minute != wanted_minute)
		second = next_value(cron->seconds, 0);
	return hour * 3600 + minute * 60 + second;
}

/* The lowest value of a set from "from" on, or -1. */
static int
next_value(uint64_t set, int from)
{
	uint64_t	rest = from > 63 ? 0 : set >> from << from;

	return rest == 0 ? -1 : __builtin_ctzll(rest);
}

/* The day on which a year begins, in days since 1970-01-01. */
static int64_t
year_start(int64_t year)
{
	int64_t		before = year - 1;	/* the last year whose leap day is past */

	return 365 * (year - 1970) +
		floor_divide(before, 4) - floor_divide(before, 100) + floor_divide(before, 400) -
		(1969 / 4 - 1969 / 100 + 1969 / 400);
}

static int
month_length(int64_t year, int month)
{
	bool		leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);

	if (month == 2)
		return leap ? 29 : 28;
	return month == 4 || month == 6 || month == 9 || month == 11 ? 30 : 31;
}

/* Division and remainder that round down, also before 1970. */
static int64_t
floor_divide(int64_t value, int64_t by)
{
	return value / by - (value % by < 0 ? 1 : 0);
}

static int
floor_modulo(int64_t value, int64_t by)
{
	return (int) (value - floor_divide(value, by) * by);
}
