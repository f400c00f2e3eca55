/*
 * cron_oracle_test.c
 *	  Random schedules against an oracle that looks at every minute.
 *
 * The oracle shares nothing with cron.c: schedules are drawn as sets of values
 * and written as text afterwards; local times come from libc's broken-down
 * time; the clock rule is applied minute by minute over windows around clock
 * changes. A window is computed once and used by many schedules. The seed is
 * fixed, so a failure comes again.
 */
#include "check.h"
#include "cron/cron.h"
#include "zone.h"

#define WINDOW_DAYS 24
#define LEAD_DAYS 3				/* shown before, but never searched */
#define MINUTES_PER_DAY 1440
#define WINDOW (WINDOW_DAYS * MINUTES_PER_DAY)
#define LEAD (LEAD_DAYS * MINUTES_PER_DAY)
#define SCHEDULES 400
#define STARTS 3
#define TEXT_SIZE 256

/* What a local minute looks like. */
typedef struct Minute
{
	int64_t		number;			/* minutes since 1970 on the local clock */
	bool		again;			/* has been shown before in this window */
} Minute;

typedef struct Place
{
	const char *zone;
	const char *begin;
} Place;

static const Place places[] = {
	{"UTC", "2028-02-15 00:00:00+0"},
	{"UTC", "2026-12-15 00:00:00+0"},
	{"Europe/Berlin", "2026-03-18 00:00:00+0"},
	{"Europe/Berlin", "2026-10-15 00:00:00+0"},
	{"America/New_York", "2026-02-26 00:00:00+0"},
	{"America/New_York", "2026-10-21 00:00:00+0"},
	{"Australia/Lord_Howe", "2026-03-25 00:00:00+0"},
	{"Australia/Lord_Howe", "2026-09-25 00:00:00+0"},
	{"America/Sao_Paulo", "2018-02-08 00:00:00+0"},
	{"America/Sao_Paulo", "2018-10-25 00:00:00+0"},
	{"Asia/Kathmandu", "1985-12-22 00:00:00+0"},
	{"America/Caracas", "2007-11-30 00:00:00+0"},
	{"America/Caracas", "2016-04-21 00:00:00+0"},
	{"Africa/Casablanca", "2026-02-08 00:00:00+0"},
	{"Pacific/Apia", "2011-12-20 00:00:00+0"},
	{"Pacific/Kwajalein", "1969-09-20 00:00:00+0"},
	{"Pacific/Kwajalein", "1993-08-11 00:00:00+0"},
	{"Asia/Tehran", "2021-03-12 00:00:00+0"},
};

typedef struct Window
{
	const char *zone;
	int64_t		first;			/* UTC minute */
	Minute		minutes[WINDOW];
} Window;


/* A schedule as the oracle knows it. */
typedef struct Drawn
{
	bool		minutes[60];
	bool		hours[24];
	bool		days[32];
	bool		months[13];
	bool		weekdays[7];
	bool		last_day;
	bool		day_any;
	bool		weekday_any;
	bool		repeats;
	char		text[TEXT_SIZE];
} Drawn;

static uint64_t random_state = 20261121;

/* A number from 0 to below. */
static int
draw(int below)
{
	random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (int) ((random_state >> 33) % (uint64_t) below);
}

static void
append(char *text, const char *more)
{
	size_t		used = strlen(text);

	(void) snprintf(text + used, TEXT_SIZE - used, "%s", more);
}

/*
 * One field of values low to high, where open forms go on to "last": sets them,
 * appends its text, says whether it repeats.
 */
static bool
draw_field(char *text, bool *set, int low, int high, int last, int stars, bool *any)
{
	size_t		used = strlen(text);
	size_t		size = TEXT_SIZE - used;
	int			count = high - low + 1;
	int			from = low + draw(count);
	int			to = from + draw(high - from + 1);
	int			step = 1 + draw(count);
	int			kind = draw(6 + stars);

	text += used;
	if (kind >= 6)
	{
		(void) snprintf(text, size, "* ");
		from = low, to = last, step = 1;
	}
	else if (kind == 0)
	{
		(void) snprintf(text, size, "*/%d ", step);
		from = low, to = last;
	}
	else if (kind == 1)
	{
		(void) snprintf(text, size, "%d/%d ", from, step);
		to = last;
	}
	else if (kind == 2)
		(void) snprintf(text, size, "%d-%d/%d ", from, to, step);
	else if (kind == 3)
	{
		(void) snprintf(text, size, "%d-%d ", from, to);
		step = 1;
	}
	else if (kind == 4)
	{
		(void) snprintf(text, size, "%d,%d ", to, from);
		set[to] = true;
		to = from;
	}
	else
	{
		(void) snprintf(text, size, "%d ", from);
		to = from;
	}
	for (int value = from; value <= to; value += step)
		set[value] = true;
	*any = kind >= 6 || kind == 0;
	return *any || kind == 1;
}

static void
draw_schedule(Drawn *drawn)
{
	bool		ignored;

	*drawn = (Drawn) {0};
	drawn->repeats = draw_field(drawn->text, drawn->minutes, 0, 59, 59, 1, &ignored);
	/* hours of the night, where clocks change, more often than others */
	if (draw(2) == 0)
		drawn->repeats |= draw_field(drawn->text, drawn->hours, 0, 3, 23, 0, &ignored);
	else
		drawn->repeats |= draw_field(drawn->text, drawn->hours, 0, 23, 23, 4, &ignored);
	if (draw(10) == 0)
	{
		append(drawn->text, "L ");
		drawn->last_day = true;
	}
	else
		(void) draw_field(drawn->text, drawn->days, 1, 31, 31, 12, &drawn->day_any);
	if (draw(5) == 0)
		(void) draw_field(drawn->text, drawn->months, 1, 12, 12, 2, &ignored);
	else
	{
		append(drawn->text, "* ");
		memset(drawn->months, true, sizeof(drawn->months));
	}
	(void) draw_field(drawn->text, drawn->weekdays, 0, 6, 6, 12, &drawn->weekday_any);
}

/* Does a local minute match? */
static bool
drawn_matches(const Drawn *drawn, int64_t number)
{
	time_t		time = (time_t) number * 60;
	time_t		tomorrow = time + 86400;
	struct tm	local;
	struct tm	next;
	bool		by_day;
	bool		by_weekday;
	int64_t		in_day = (number % MINUTES_PER_DAY + MINUTES_PER_DAY) % MINUTES_PER_DAY;

	/* most minutes fail here, and libc is slow */
	if (!drawn->minutes[in_day % 60] || !drawn->hours[in_day / 60])
		return false;
	(void) gmtime_r(&time, &local);
	(void) gmtime_r(&tomorrow, &next);
	by_day = drawn->days[local.tm_mday] || (drawn->last_day && next.tm_mday == 1);
	by_weekday = drawn->weekdays[local.tm_wday];
	if (!drawn->months[local.tm_mon + 1])
		return false;
	return drawn->day_any || drawn->weekday_any ? by_day && by_weekday : by_day || by_weekday;
}

static void
window_fill(Window *window, const Place *place)
{
	int64_t		lowest = INT64_MAX;
	static bool shown[WINDOW + 4 * MINUTES_PER_DAY];

	memset(shown, false, sizeof(shown));
	window->zone = place->zone;
	window->first = zone_moment(place->begin) / 60;
	zone_use(window->zone);
	for (int i = 0; i < WINDOW; i++)
	{
		time_t		time = (time_t) (window->first + i) * 60;
		struct tm	local;

		(void) localtime_r(&time, &local);
		window->minutes[i].number = (int64_t) timegm(&local) / 60;
		if (lowest == INT64_MAX)
			lowest = window->minutes[i].number - 2 * (int64_t) MINUTES_PER_DAY;
		window->minutes[i].again = shown[window->minutes[i].number - lowest];
		shown[window->minutes[i].number - lowest] = true;
	}
	zone_use("UTC");
}

/* Is a fixed schedule due in a minute because the clock has jumped over one of its times? */
static bool
is_due_after_gap(const Drawn *drawn, const Window *window, int i)
{
	for (int64_t number = window->minutes[i - 1].number + 1;
		 number < window->minutes[i].number; number++)
	{
		if (drawn_matches(drawn, number))
			return true;
	}
	return false;
}

/* The first minute from "from" on that is due, or WINDOW. */
static int
oracle_next(const Drawn *drawn, const Window *window, int from)
{
	for (int i = from; i < WINDOW; i++)
	{
		const Minute *minute = &window->minutes[i];

		if (drawn_matches(drawn, minute->number) && (drawn->repeats || !minute->again))
			return i;
		if (!drawn->repeats && is_due_after_gap(drawn, window, i))
			return i;
	}
	return WINDOW;
}

/* From a random start to the end of the window, run by run. Returns what went wrong, or 0. */
static int
compare(const Drawn *drawn, const SweepCron *cron, const Window *window, int *runs)
{
	int			at = LEAD + draw(WINDOW - LEAD);
	int64_t		after = (window->first + at) * 60 + draw(60);

	for (int i = 0; i < 20; i++)
	{
		int64_t		next = INT64_MAX;
		bool		found = sweep_cron_next(cron, after, zone_offset, (void *) window->zone, &next);
		int64_t		wanted;

		at = oracle_next(drawn, window, at + 1);
		wanted = (window->first + at) * 60;
		if (at == WINDOW ? found && next < wanted : !found || next != wanted)
		{
			printf("# %s in %s after %s: ", drawn->text, window->zone, zone_text(after));
			printf("found %s, the oracle says %s%s\n", found ? zone_text(next) : "never",
				   at == WINDOW ? "not before " : "", zone_text(wanted));
			return 1;
		}
		if (at == WINDOW)
			return 0;
		after = wanted;
		++*runs;
	}
	return 0;
}

int
main(void)
{
	static Window window;

	for (size_t p = 0; p < sizeof(places) / sizeof(places[0]); p++)
	{
		int			failures = 0;
		int			runs = 0;

		window_fill(&window, &places[p]);
		for (int i = 0; i < SCHEDULES; i++)
		{
			Drawn		drawn;
			SweepCronError error;
			SweepCron	cron;

			draw_schedule(&drawn);
			if (!sweep_cron_parse(drawn.text, 0, &cron, &error))
			{
				/* the only thing that can be wrong with what was drawn */
				failures += strstr(error.message, "matches no date") == NULL;
				continue;
			}
			failures += cron.repeats != drawn.repeats;
			for (int start = 0; start < STARTS; start++)
				failures += compare(&drawn, &cron, &window, &runs);
		}
		check(failures == 0 && runs > 1000, "%s from %s: %d runs of random schedules",
			  places[p].zone, places[p].begin, runs);
	}
	return check_finish();
}
