/*
 * zone.h
 *	  Time zones of libc for the tests of cron.c, and moments as text.
 */
#ifndef ZONE_H
#define ZONE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cron/cron.h"

/* Makes a zone the current one of libc. The name is kept, not copied. */
static inline void
zone_use(const char *name)
{
	static const char *current = "";

	if (strcmp(current, name) == 0)
		return;
	current = name;
	(void) setenv("TZ", name, 1);
	tzset();
}

/* A SweepCronOffset; the argument is the zone's name. */
static inline int32_t
zone_offset(int64_t moment, void *arg)
{
	time_t		time = (time_t) moment;
	struct tm	local;

	zone_use((const char *) arg);
	if (localtime_r(&time, &local) == NULL)
		return 0;
	return (int32_t) local.tm_gmtoff;
}

/* "2026-03-29 03:00:00+2" or "...+10:30" to seconds since 1970; exits when it is no such text. */
static inline int64_t
zone_moment(const char *text)
{
	struct tm	local = {0};
	int			hours = 0;
	int			minutes = 0;
	char		sign = '+';
	int			found = sscanf(text, "%d-%d-%d %d:%d:%d%c%d:%d", &local.tm_year, &local.tm_mon,
							   &local.tm_mday, &local.tm_hour, &local.tm_min, &local.tm_sec,
							   &sign, &hours, &minutes);

	if (found < 8)
	{
		printf("Bail out! not a moment: %s\n", text);
		exit(2);
	}
	local.tm_year -= 1900;
	local.tm_mon -= 1;
	return (int64_t) timegm(&local) - (sign == '-' ? -1 : 1) * (hours * 3600 + minutes * 60);
}

/* A moment as UTC text, in a buffer that the next call overwrites. */
static inline const char *
zone_text(int64_t moment)
{
	static char text[2][64];
	static int	turn;
	time_t		time = (time_t) moment;
	struct tm	utc;

	turn = 1 - turn;
	if (gmtime_r(&time, &utc) == NULL ||
		strftime(text[turn], sizeof(text[turn]), "%Y-%m-%d %H:%M:%S+0", &utc) == 0)
		return "(no date)";
	return text[turn];
}

#endif							/* ZONE_H */
