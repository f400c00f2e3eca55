/*-------------------------------------------------------------------------
 *
 * cron.c
 *	  Parses schedules and finds the moment at which they are due next.
 *
 * Called by schedule.c; cron.h describes the language and the rules. Two parts
 * that share nothing but SweepCron: the parser, and below it the search.
 *
 * There is one parser: macros expand to text and go through it. A word that is
 * wrong is named in the message together with its field, as the user wrote it.
 *
 * The search goes by fields, never by minutes: the calendar gives the next
 * matching local time, the zone's offset turns it into a moment, and a change
 * of the offset on the way there starts again from the change. Its cost does
 * not depend on how far away the moment is. All arithmetic is in seconds since
 * 1970-01-01, with "local" meaning moment + offset. The zone is known through
 * its offsets only, so that the same code runs on PostgreSQL's zones and, in
 * the tests, on those of libc.
 *
 *-------------------------------------------------------------------------
 */
#include "cron.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define DAY_SECONDS INT64_C(86400)
#define MAX_WORDS 6

/* Longest period of "every N ...": a leap year. */
#define MAX_INTERVAL (366 * DAY_SECONDS)

/* The calendar repeats after 400 years; what has not come by then never does. */
#define CALENDAR_MONTHS (400 * 12)

/* Nearest and farthest moments that are looked at: about 317,000 years. */
#define MAX_MOMENT INT64_C(10000000000000)

/* How often in a row clock changes may swallow all times of a matching day. */
#define MAX_SWALLOWED 1000

/* Part of the text; not terminated. */
typedef struct Word
{
	const char *text;
	int			length;
} Word;

typedef struct Field
{
	const char *name;
	int			low;
	int			high;
	int			last;			/* highest value of "*" and H: differs where 7 is 0 again */
	int			hash_last;		/* and where not every month has the value */
	const char *const *names;	/* of the values from low on, ending with NULL */
} Field;

/* What a field selects. */
typedef struct Selection
{
	uint64_t	values;
	bool		any;			/* has a * or ? */
	bool		repeats;		/* has a * or an open step */
	bool		last_day;
} Selection;

typedef struct Range
{
	int			low;
	int			high;
} Range;

enum
{
	SECOND, MINUTE, HOUR, DAY, MONTH, WEEKDAY, FIELD_COUNT
};

static const char *const no_names[] = {NULL};
static const char *const month_names[] = {
	"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec", NULL
};
static const char *const weekday_names[] = {
	"sun", "mon", "tue", "wed", "thu", "fri", "sat", NULL
};

static const Field fields[FIELD_COUNT] = {
	[SECOND] = {"second", 0, 59, 59, 59, no_names},
	[MINUTE] = {"minute", 0, 59, 59, 59, no_names},
	[HOUR] = {"hour", 0, 23, 23, 23, no_names},
	[DAY] = {"day-of-month", 1, 31, 31, 28, no_names},
	[MONTH] = {"month", 1, 12, 12, 12, month_names},
	[WEEKDAY] = {"day-of-week", 0, 7, 6, 6, weekday_names},
};

static const struct
{
	const char *name;
	const char *text;
}			macros[] = {
	{"@yearly", "0 0 1 1 *"},
	{"@annually", "0 0 1 1 *"},
	{"@monthly", "0 0 1 * *"},
	{"@weekly", "0 0 * * 0"},
	{"@daily", "0 0 * * *"},
	{"@midnight", "0 0 * * *"},
	{"@hourly", "0 * * * *"},
};

static const struct
{
	const char *name;
	int			seconds;
}			units[] = {
	{"second", 1}, {"seconds", 1},
	{"minute", 60}, {"minutes", 60},
	{"hour", 3600}, {"hours", 3600},
};

#define lengthof(array) ((int) (sizeof(array) / sizeof((array)[0])))

static bool next_day(const SweepCron *cron, int64_t from, int64_t *day);

/* Reports an error. Returns false so that callers can return it. */
static bool __attribute__((format(printf, 3, 4)))
fail(SweepCronError *error, const char *hint, const char *format,...)
{
	va_list		arguments;

	va_start(arguments, format);
	(void) vsnprintf(error->message, sizeof(error->message), format, arguments);
	va_end(arguments);
	(void) snprintf(error->hint, sizeof(error->hint), "%s", hint);
	return false;
}

/*
 * ASCII only and not of libc: its case rules follow the database's locale, and
 * in Turkish "FRI" is not "fri".
 */
static char
lower(char letter)
{
	if (letter >= 'A' && letter <= 'Z')
		letter = (char) (letter - 'A' + 'a');
	return letter;
}

static bool
is_space(char letter)
{
	return letter == ' ' || (letter >= '\t' && letter <= '\r');
}

/* Is the word this one, in any case? */
static bool
word_is(Word word, const char *text)
{
	if ((size_t) word.length != strlen(text))
		return false;
	for (int i = 0; i < word.length; i++)
	{
		if (lower(word.text[i]) != text[i])
			return false;
	}
	return true;
}

/* Cuts the word at the first separator; what follows, or an empty word with text NULL. */
static Word
word_split(Word *word, char separator)
{
	const char *found = memchr(word->text, separator, (size_t) word->length);
	Word		rest = {NULL, 0};

	if (found != NULL)
	{
		rest.text = found + 1;
		rest.length = word->length - (int) (found - word->text) - 1;
		word->length = (int) (found - word->text);
	}
	return rest;
}

/* The words of a text, at most MAX_WORDS of them; returns how many there are. */
static int
split_words(const char *text, Word *words)
{
	int			count = 0;

	for (;;)
	{
		const char *start;

		while (is_space(*text))
			text++;
		if (*text == '\0')
			return count;
		start = text;
		while (*text != '\0' && !is_space(*text))
			text++;
		if (count < MAX_WORDS)
			words[count] = (Word) {start, (int) (text - start)};
		count++;
	}
}

/* An unsigned number; a huge one becomes INT32_MAX, which no field accepts. */
static bool
parse_number(Word word, int *number)
{
	int64_t		value = 0;

	if (word.length == 0)
		return false;
	for (int i = 0; i < word.length; i++)
	{
		if (word.text[i] < '0' || word.text[i] > '9')
			return false;
		value = value * 10 + (word.text[i] - '0');
		if (value > INT32_MAX)
			value = INT32_MAX;
	}
	*number = (int) value;
	return true;
}

/* A number or a name of a field. */
static bool
parse_value(Word word, const Field *field, int *value, SweepCronError *error)
{
	char		hint[64];

	for (int i = 0; field->names[i] != NULL; i++)
	{
		if (word_is(word, field->names[i]))
		{
			*value = field->low + i;
			return true;
		}
	}

	(void) snprintf(hint, sizeof(hint), "Allowed are %d to %d%s.", field->low, field->high,
					field->names[0] == NULL ? "" : ", and names of three letters");
	if (!parse_number(word, value))
		return fail(error, hint, "invalid value \"%.*s\" in the %s field",
					word.length, word.text, field->name);
	if (*value < field->low || *value > field->high)
		return fail(error, hint, "value \"%.*s\" is out of range for the %s field",
					word.length, word.text, field->name);
	return true;
}

/* "a-b", or "a" alone, which becomes a-a. */
static bool
parse_range(Word word, const Field *field, Range *range, SweepCronError *error)
{
	Word		from = word;
	Word		to = word_split(&from, '-');

	if (from.length == 0 || (to.text != NULL && to.length == 0))
		return fail(error, "", "invalid range \"%.*s\" in the %s field",
					word.length, word.text, field->name);
	if (!parse_value(from, field, &range->low, error))
		return false;
	range->high = range->low;
	if (to.text == NULL)
		return true;
	if (!parse_value(to, field, &range->high, error))
		return false;

	/* a week that ends with the name of Sunday is meant as written */
	if (field == &fields[WEEKDAY] && range->low > 0 && word_is(to, "sun"))
		range->high = field->high;
	if (range->high < range->low)
		return fail(error, "Write it as a list of two ranges.",
					"range \"%.*s\" runs backwards in the %s field",
					word.length, word.text, field->name);
	return true;
}

/* What follows a slash. */
static bool
parse_step(Word word, const Field *field, int *step, SweepCronError *error)
{
	int			count = field->last - field->low + 1;
	char		hint[160];

	(void) snprintf(hint, sizeof(hint), "Steps are 1 to %d here. For a longer period "
					"write it out, for example \"every 90 minutes\".", count);
	if (!parse_number(word, step))
		return fail(error, hint, "invalid step \"%.*s\" in the %s field",
					word.length, word.text, field->name);
	if (*step < 1 || *step > count)
		return fail(error, hint, "step \"%.*s\" is out of range for the %s field",
					word.length, word.text, field->name);
	return true;
}

/*
 * A number that looks random but is the same for the same input: the last step
 * of MurmurHash3, which is in the public domain.
 */
static uint32_t
scramble(uint32_t value)
{
	value = (value ^ (value >> 16)) * UINT32_C(0x85ebca6b);
	value = (value ^ (value >> 13)) * UINT32_C(0xc2b2ae35);
	return value ^ (value >> 16);
}

/* H, H(a-b): the range to choose from, narrowed to what the job gets. */
static bool
parse_hash(Word word, const Field *field, uint32_t seed, int step, Range *range,
		   SweepCronError *error)
{
	uint32_t	choices;

	*range = (Range) {field->low, field->hash_last};
	if (word.length > 1)
	{
		Word		inner = {word.text + 2, word.length - 3};

		if (word.length < 4 || word.text[1] != '(' || word.text[word.length - 1] != ')')
			return fail(error, "Write for example H, H/15, H(0-29) or H(0-29)/10.",
						"invalid value \"%.*s\" in the %s field",
						word.length, word.text, field->name);
		if (!parse_range(inner, field, range, error))
			return false;
	}

	choices = (uint32_t) (range->high - range->low + 1);
	if (step > 0 && (uint32_t) step < choices)
		choices = (uint32_t) step;
	/* every field has a number of its own, or minute and hour would go together */
	seed = scramble(seed + (uint32_t) (field - fields) * UINT32_C(0x9e3779b9));
	range->low += (int) (seed % choices);
	if (step == 0)
		range->high = range->low;
	return true;
}

/* L and ?, which stand for themselves. */
static bool
parse_sign(Word word, const Field *field, Selection *selection, SweepCronError *error)
{
	bool		is_last = word_is(word, "l");

	if (is_last && field != &fields[DAY])
		return fail(error, "", "\"%.*s\" is not allowed in the %s field, only in day-of-month",
					word.length, word.text, field->name);
	if (!is_last && field != &fields[DAY] && field != &fields[WEEKDAY])
		return fail(error, "", "\"?\" is not allowed in the %s field, only in day-of-month "
					"and day-of-week", field->name);
	if (is_last)
		selection->last_day = true;
	else
	{
		selection->any = true;
		for (int value = field->low; value <= field->last; value++)
			selection->values |= UINT64_C(1) << value;
	}
	return true;
}

/* One element of a list. */
static bool
parse_element(Word word, const Field *field, uint32_t seed, Selection *selection,
			  SweepCronError *error)
{
	Word		base = word;
	Word		step_word = word_split(&base, '/');
	Range		range = {field->low, field->last};
	int			step = 0;
	bool		open = false;	/* without an upper end of its own */

	if (word_is(word, "l") || word_is(word, "?"))
		return parse_sign(word, field, selection, error);
	if (base.length == 0 || (step_word.text != NULL && step_word.length == 0))
		return fail(error, "A step follows what it steps through, for example */15 or 9-17/2.",
					"incomplete step \"%.*s\" in the %s field",
					word.length, word.text, field->name);
	if (step_word.text != NULL && !parse_step(step_word, field, &step, error))
		return false;

	if (word_is(base, "*"))
	{
		open = true;
		selection->any = true;
		selection->repeats = true;
	}
	else if (lower(base.text[0]) == 'h')
	{
		open = base.length == 1;
		if (!parse_hash(base, field, seed, step, &range, error))
			return false;
	}
	else
	{
		open = memchr(base.text, '-', (size_t) base.length) == NULL;
		if (!parse_range(base, field, &range, error))
			return false;
		if (open && step > 0 && range.low < field->last)
			range.high = field->last;
	}

	if (open && step > 0)
		selection->repeats = true;
	for (int value = range.low; value <= range.high; value += step > 0 ? step : 1)
		selection->values |= UINT64_C(1) << value;
	return true;
}

/* A whole field: elements between commas. */
static bool
parse_field(Word word, const Field *field, uint32_t seed, Selection *selection,
			SweepCronError *error)
{
	Word		rest = word;

	*selection = (Selection) {0};
	while (rest.text != NULL)
	{
		Word		element = rest;

		rest = word_split(&element, ',');
		if (element.length == 0)
			return fail(error, "", "empty value in the list \"%.*s\" of the %s field",
						word.length, word.text, field->name);
		if (!parse_element(element, field, seed, selection, error))
			return false;
	}
	return true;
}

/* Five or six fields. */
static bool
parse_fields(const char *text, uint32_t seed, SweepCron *cron, SweepCronError *error)
{
	Word		words[MAX_WORDS];
	Selection	selections[FIELD_COUNT];
	int			count = split_words(text, words);
	int			first = FIELD_COUNT - count;
	int64_t		day;

	if (count != FIELD_COUNT && count != FIELD_COUNT - 1)
		return fail(error, "Fields are: [second] minute hour day-of-month month day-of-week. "
					"Other forms are @daily and \"every 30 seconds\".",
					"schedule \"%s\" has %d %s instead of 5 or 6",
					text, count, count == 1 ? "field" : "fields");

	selections[SECOND] = (Selection) {.values = 1};
	for (int i = first; i < FIELD_COUNT; i++)
	{
		if (!parse_field(words[i - first], &fields[i], seed, &selections[i], error))
			return false;
	}

	cron->kind = SWEEP_CRON_FIELDS;
	cron->seconds = selections[SECOND].values;
	cron->minutes = selections[MINUTE].values;
	cron->hours = selections[HOUR].values;
	cron->days = selections[DAY].values;
	cron->months = selections[MONTH].values;
	/* 7 is Sunday as well */
	cron->weekdays = (selections[WEEKDAY].values | selections[WEEKDAY].values >> 7) & 0x7f;
	cron->last_day = selections[DAY].last_day;
	cron->either_day = !selections[DAY].any && !selections[WEEKDAY].any;
	cron->repeats = selections[SECOND].repeats || selections[MINUTE].repeats ||
		selections[HOUR].repeats;

	if (!next_day(cron, 0, &day))
		return fail(error, "None of its months has such a day.",
					"schedule \"%s\" matches no date", text);
	return true;
}

/* every N seconds|minutes|hours */
static bool
parse_interval(const char *text, SweepCron *cron, SweepCronError *error)
{
	const char *hint = "Write for example \"every 30 seconds\", \"every 5 minutes\" or \"every 2 hours\".";
	Word		words[MAX_WORDS];
	int			count = split_words(text, words);
	int			number;

	if (count != 3)
		return fail(error, hint, "interval \"%s\" is not \"every\", a number and a unit", text);
	if (!parse_number(words[1], &number))
		return fail(error, hint, "invalid number \"%.*s\" in interval \"%s\"",
					words[1].length, words[1].text, text);

	for (int i = 0; i < lengthof(units); i++)
	{
		if (!word_is(words[2], units[i].name))
			continue;
		cron->kind = SWEEP_CRON_INTERVAL;
		cron->interval = (int64_t) number * units[i].seconds;
		if (number < 1 || cron->interval > MAX_INTERVAL)
			return fail(error, "Intervals are 1 second to 8784 hours.",
						"number \"%.*s\" is out of range in interval \"%s\"",
						words[1].length, words[1].text, text);
		return true;
	}
	return fail(error, "Units are seconds, minutes and hours. For days name a time, for example \"0 4 * * *\".",
				"invalid unit \"%.*s\" in interval \"%s\"", words[2].length, words[2].text, text);
}

/* @daily and its kin: text for the one parser. */
static bool
parse_macro(const char *text, uint32_t seed, SweepCron *cron, SweepCronError *error)
{
	Word		words[MAX_WORDS];
	int			count = split_words(text, words);

	if (count > 1)
		return fail(error, "", "unexpected \"%.*s\" after macro \"%.*s\"",
					words[1].length, words[1].text, words[0].length, words[0].text);
	if (word_is(words[0], "@reboot"))
	{
		cron->kind = SWEEP_CRON_REBOOT;
		return true;
	}
	for (int i = 0; i < lengthof(macros); i++)
	{
		if (word_is(words[0], macros[i].name))
			return parse_fields(macros[i].text, seed, cron, error);
	}
	return fail(error, "Macros are @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly and @reboot.",
				"unknown macro \"%.*s\"", words[0].length, words[0].text);
}

uint32_t
sweep_cron_seed(const char *job_name)
{
	uint32_t	seed = 0;

	/* written into schedules of running systems, so it must never change */
	for (; job_name != NULL && *job_name != '\0'; job_name++)
		seed = scramble(seed * 31 + (unsigned char) *job_name + 1);
	return seed;
}

bool
sweep_cron_parse(const char *text, uint32_t seed, SweepCron *cron, SweepCronError *error)
{
	size_t		length = text == NULL ? 0 : strlen(text);
	Word		words[MAX_WORDS];

	*cron = (SweepCron) {0};
	*error = (SweepCronError) {0};
	if (length > SWEEP_CRON_MAX_LENGTH)
		return fail(error, "", "schedule is too long: %zu bytes, at most %d are allowed",
					length, SWEEP_CRON_MAX_LENGTH);
	if (text == NULL || split_words(text, words) == 0)
		return fail(error, "Write for example \"0 4 * * *\", @daily or \"every 30 seconds\".",
					"schedule is empty");
	if (words[0].text[0] == '@')
		return parse_macro(text, seed, cron, error);
	if (word_is(words[0], "every"))
		return parse_interval(text, cron, error);
	return parse_fields(text, seed, cron, error);
}

/* ---- the search ---- */

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

/* The lowest value of a set from "from" on, or -1. */
static int
next_value(uint64_t set, int from)
{
	uint64_t	rest = from > 63 ? 0 : set >> from << from;

	return rest == 0 ? -1 : __builtin_ctzll(rest);
}

static int
month_length(int64_t year, int month)
{
	bool		leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);

	if (month == 2)
		return leap ? 29 : 28;
	return month == 4 || month == 6 || month == 9 || month == 11 ? 30 : 31;
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

/* Does a day of a month match, given the weekday of that month's first? */
static bool
day_matches(const SweepCron *cron, int day, int length, int first_weekday)
{
	bool		by_day = (cron->days >> day & 1) != 0 || (cron->last_day && day == length);
	bool		by_weekday = (cron->weekdays >> ((first_weekday + day - 1) % 7) & 1) != 0;

	return cron->either_day ? by_day || by_weekday : by_day && by_weekday;
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

/*
 * The first moment after "from", at most "until", with another offset; else
 * until + 1. It is asked for some three days at most. In all of the time zone
 * database no two changes are closer than that, so the ends tell of any change.
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
 * Fixed times: due when the local clock first reaches or passes one. What it
 * has shown before is done, so the search begins above its highest reading.
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
 * Repeating times: due whenever the local clock shows one. Stretches of one
 * offset are searched one after the other, around days that match at all.
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
