/*
 * cron.h
 *		Schedules: what their text means, and when they are due next.
 *
 * Used by schedule.c. Pure C: no backend call, no allocation, no error is raised.
 *
 * A schedule is one of
 *
 *	 [second] minute hour day-of-month month day-of-week
 *		 lists 1,15   ranges 9-17   steps * /10 9-17/2 5/15 (from 5 to the end)
 *		 names jan-dec sun-sat, in any case; 0 and 7 are Sunday, fri-sun works
 *		 L   the last day of the month (day-of-month only); $ is the same
 *		 ?   the same as * (day-of-month and day-of-week only)
 *		 H   a value of the field that depends on the job's name only;
 *			 H/15 every 15th from such a start, H(0-29) and H(0-29)/10 within
 *			 a range. In day-of-month H is at most 28, so no month goes without.
 *	 @yearly @annually @monthly @weekly @daily @midnight @hourly
 *	 @reboot
 *	 every [N] seconds|minutes|hours|days, singular or plural; where there is
 *	 an N, "every" can be left out
 *		 at the multiples of N since 1970-01-01 00:00 UTC in any time zone, so the moments do not depend on earlier
 *		 ones or on restarts. A day is 24 hours, so "every 1 day" is midnight UTC.
 *
 * Days: where both day fields are restricted, either of them is enough
 * ("0 0 13 * fri": each 13th and each Friday), as cron has always done. A field
 * that has a * (also with a step) is not restricted; then both must match.
 *
 * Clock changes: a schedule whose second, minute and hour are fixed (numbers,
 * ranges, lists, H) is due when the local clock reaches or jumps over its time
 * for the first time. A time that does not exist is due right after the gap,
 * once, even if several times fell into the gap; a time that comes twice is due at
 * the first. A schedule with a repeating second, minute or hour (*, * /n, n/m,
 * H/n) follows the wall clock: nothing in the gap, everything again in the
 * repeated hour.
 */
#ifndef SWEEP_CRON_H
#define SWEEP_CRON_H

#include <stdbool.h>
#include <stdint.h>

/* Longest text of a schedule, in bytes. */
#define SWEEP_CRON_MAX_LENGTH 255

/* Largest offset of a zone from UTC, in seconds: POSIX allows 25 hours. */
#define SWEEP_CRON_MAX_OFFSET INT64_C(90000)

typedef enum SweepCronKind
{
	SWEEP_CRON_FIELDS,
	SWEEP_CRON_INTERVAL,		/* every N ..., or N ... */
	SWEEP_CRON_REBOOT			/* @reboot: has no moments */
} SweepCronKind;

/* A parsed schedule. Bit n of a field stands for its value n. */
typedef struct SweepCron
{
	SweepCronKind kind;
	int64_t		interval;		/* of INTERVAL, in seconds */
	uint64_t	seconds;
	uint64_t	minutes;
	uint64_t	hours;
	uint64_t	days;			/* 1 to 31 */
	uint64_t	months;			/* 1 to 12 */
	uint64_t	weekdays;		/* 0 = Sunday to 6 */
	bool		last_day;		/* L among the days */
	bool		either_day;		/* one of days and weekdays is enough */
	bool		repeats;		/* second, minute or hour repeats: follows the wall clock */
} SweepCron;

/* The error of a text, in the style of PostgreSQL's messages. */
typedef struct SweepCronError
{
	char		message[640];	/* the text twice and some words always fit */
	char		hint[256];		/* a sentence, or empty */
} SweepCronError;

/*
 * Offset of local time from UTC at a moment (seconds since 1970-01-01 UTC), in
 * seconds, positive east of Greenwich, within SWEEP_CRON_MAX_OFFSET. It may leave by longjmp, so callers hold no
 * resources during the call.
 */
typedef int32_t (*SweepCronOffset) (int64_t moment, void *arg);

/* The seed for H of a job. The same in all versions and on all machines; NULL counts as "". */
extern uint32_t sweep_cron_seed(const char *job_name);

/*
 * Parses a schedule. False: *error says what is wrong and *cron is undefined.
 * True: *error is empty. Dates that never come (30 February) are refused.
 */
extern bool sweep_cron_parse(const char *text, uint32_t seed,
							 SweepCron *cron, SweepCronError *error);

/*
 * The first due moment strictly after another one, both in seconds since
 * 1970-01-01 UTC. Due moments are whole seconds, so a caller with a finer clock
 * rounds "after" down. False: never (@reboot; more than about 300,000 years away; clock changes skip all of its
 * times).
 */
extern bool sweep_cron_next(const SweepCron *cron, int64_t after,
							SweepCronOffset offset, void *arg, int64_t *next);

/* Is there any date on which the schedule is due? */
extern bool sweep_cron_has_date(const SweepCron *cron);

#endif							/* SWEEP_CRON_H */
