/*-------------------------------------------------------------------------
 *
 * cron.c
 *	  Parses schedules.
 *
 * Called by schedule.c; cron.h describes the language and the rules. There is
 * one parser: macros expand to text and go through it. Fields are read by
 * field.c, due moments are found by next.c.
 *
 *-------------------------------------------------------------------------
 */
#include "cron/field.h"

#include <string.h>

/* Longest period of "every N ...": a leap year. */
#define MAX_INTERVAL ((int64_t) 366 * 86400)

#define lengthof(array) ((int) (sizeof(array) / sizeof((array)[0])))

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

static bool parse_macro(const char *text, uint32_t seed, SweepCron *cron, SweepCronError *error);
static bool parse_interval(const char *text, SweepCron *cron, SweepCronError *error);
static bool parse_fields(const char *text, uint32_t seed, SweepCron *cron, SweepCronError *error);

bool
sweep_cron_parse(const char *text, uint32_t seed, SweepCron *cron, SweepCronError *error)
{
	size_t		length = text == NULL ? 0 : strlen(text);
	SweepCronWord words[SWEEP_CRON_MAX_WORDS];

	*cron = (SweepCron) {0};
	*error = (SweepCronError) {0};
	if (length > SWEEP_CRON_MAX_LENGTH)
		return sweep_cron_fail(error, "", "schedule is too long: %zu bytes, at most %d are allowed",
							   length, SWEEP_CRON_MAX_LENGTH);
	if (text == NULL || sweep_cron_split_words(text, words) == 0)
		return sweep_cron_fail(error, "Write for example \"0 4 * * *\", @daily or \"every 30 seconds\".",
							   "schedule is empty");
	if (words[0].text[0] == '@')
		return parse_macro(text, seed, cron, error);
	if (sweep_cron_word_is(words[0], "every"))
		return parse_interval(text, cron, error);
	return parse_fields(text, seed, cron, error);
}

/* @daily and its kin: text for the one parser. */
static bool
parse_macro(const char *text, uint32_t seed, SweepCron *cron, SweepCronError *error)
{
	SweepCronWord words[SWEEP_CRON_MAX_WORDS];
	int			count = sweep_cron_split_words(text, words);

	if (count > 1)
		return sweep_cron_fail(error, "", "unexpected \"%.*s\" after macro \"%.*s\"",
							   words[1].length, words[1].text, words[0].length, words[0].text);
	if (sweep_cron_word_is(words[0], "@reboot"))
	{
		cron->kind = SWEEP_CRON_REBOOT;
		return true;
	}
	for (int i = 0; i < lengthof(macros); i++)
	{
		if (sweep_cron_word_is(words[0], macros[i].name))
			return parse_fields(macros[i].text, seed, cron, error);
	}
	return sweep_cron_fail(error, "Macros are @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly and @reboot.",
						   "unknown macro \"%.*s\"", words[0].length, words[0].text);
}

/* every N seconds|minutes|hours */
static bool
parse_interval(const char *text, SweepCron *cron, SweepCronError *error)
{
	const char *hint = "Write for example \"every 30 seconds\", \"every 5 minutes\" or \"every 2 hours\".";
	SweepCronWord words[SWEEP_CRON_MAX_WORDS];
	int			count = sweep_cron_split_words(text, words);
	int			number;

	if (count != 3)
		return sweep_cron_fail(error, hint, "interval \"%s\" is not \"every\", a number and a unit", text);
	if (!sweep_cron_parse_number(words[1], &number))
		return sweep_cron_fail(error, hint, "invalid number \"%.*s\" in interval \"%s\"",
							   words[1].length, words[1].text, text);

	for (int i = 0; i < lengthof(units); i++)
	{
		if (!sweep_cron_word_is(words[2], units[i].name))
			continue;
		cron->kind = SWEEP_CRON_INTERVAL;
		cron->interval = (int64_t) number * units[i].seconds;
		if (number < 1 || cron->interval > MAX_INTERVAL)
			return sweep_cron_fail(error, "Intervals are 1 second to 8784 hours.",
								   "number \"%.*s\" is out of range in interval \"%s\"",
								   words[1].length, words[1].text, text);
		return true;
	}
	return sweep_cron_fail(error, "Units are seconds, minutes and hours. For days name a time, for example \"0 4 * * *\".",
						   "invalid unit \"%.*s\" in interval \"%s\"", words[2].length, words[2].text, text);
}

/* Five or six fields. */
static bool
parse_fields(const char *text, uint32_t seed, SweepCron *cron, SweepCronError *error)
{
	SweepCronWord words[SWEEP_CRON_MAX_WORDS];
	SweepCronSelection selections[SWEEP_CRON_FIELD_COUNT];
	int			count = sweep_cron_split_words(text, words);
	int			first = SWEEP_CRON_FIELD_COUNT - count;

	if (count != SWEEP_CRON_FIELD_COUNT && count != SWEEP_CRON_FIELD_COUNT - 1)
		return sweep_cron_fail(error, "Fields are: [second] minute hour day-of-month month day-of-week. "
							   "Other forms are @daily and \"every 30 seconds\".",
							   "schedule \"%s\" has %d %s instead of 5 or 6",
							   text, count, count == 1 ? "field" : "fields");

	selections[SWEEP_CRON_SECOND] = (SweepCronSelection) {.values = 1};
	for (int i = first; i < SWEEP_CRON_FIELD_COUNT; i++)
	{
		if (!sweep_cron_parse_field(words[i - first], (SweepCronField) i, seed, &selections[i], error))
			return false;
	}

	cron->kind = SWEEP_CRON_FIELDS;
	cron->seconds = selections[SWEEP_CRON_SECOND].values;
	cron->minutes = selections[SWEEP_CRON_MINUTE].values;
	cron->hours = selections[SWEEP_CRON_HOUR].values;
	cron->days = selections[SWEEP_CRON_DAY].values;
	cron->months = selections[SWEEP_CRON_MONTH].values;
	/* 7 is Sunday as well */
	cron->weekdays = (selections[SWEEP_CRON_WEEKDAY].values | selections[SWEEP_CRON_WEEKDAY].values >> 7) & 0x7f;
	cron->last_day = selections[SWEEP_CRON_DAY].last_day;
	cron->either_day = !selections[SWEEP_CRON_DAY].any && !selections[SWEEP_CRON_WEEKDAY].any;
	cron->repeats = selections[SWEEP_CRON_SECOND].repeats || selections[SWEEP_CRON_MINUTE].repeats ||
		selections[SWEEP_CRON_HOUR].repeats;

	if (!sweep_cron_has_date(cron))
		return sweep_cron_fail(error, "None of its months has such a day.",
							   "schedule \"%s\" matches no date", text);
	return true;
}
