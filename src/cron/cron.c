/*
 * cron.c
 *		Parses schedules.
 *
 * Called by schedule.c; cron.h describes the language and the rules. There is only one parser: macros expand to text,
 * which is then parsed. Fields are read by field.c, due moments are found by next.c.
 */
#include "cron/field.h"

#include <string.h>

/* Longest interval, in seconds: a leap year. */
#define MAX_INTERVAL ((int64_t) 366 * 86400)

/* Examples in hints. */
#define FORMS "\"0 4 * * *\", @daily or \"every 30 seconds\""

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
	{"day", 86400}, {"days", 86400},
};

static bool parse_macro(const char *text, uint32_t seed, SweepCron *cron, SweepCronError *error);
static bool is_interval(const SweepCronWord *words, int count);
static bool parse_interval(const char *text, SweepCron *cron, SweepCronError *error);
static bool read_interval(const char *text, SweepCronWord *number, SweepCronWord *unit);
static bool is_digit(char letter);
static bool parse_fields(const char *text, uint32_t seed, SweepCron *cron, SweepCronError *error);

bool
sweep_cron_parse(const char *text, uint32_t seed, SweepCron *cron, SweepCronError *error)
{
	size_t		length = text == NULL ? 0 : strlen(text);
	SweepCronWord words[SWEEP_CRON_MAX_WORDS];
	int			count;

	*cron = (SweepCron) {0};
	*error = (SweepCronError) {0};
	if (length > SWEEP_CRON_MAX_LENGTH)
		return sweep_cron_fail(error, "", "schedule is too long: %zu bytes, at most %d are allowed",
							   length, SWEEP_CRON_MAX_LENGTH);
	count = text == NULL ? 0 : sweep_cron_split_words(text, words);
	if (count == 0)
		return sweep_cron_fail(error, "Write for example " FORMS ".", "schedule is empty");
	if (words[0].text[0] == '@')
		return parse_macro(text, seed, cron, error);
	if (is_interval(words, count))
		return parse_interval(text, cron, error);
	return parse_fields(text, seed, cron, error);
}

/* Macros such as @daily: text for the parser. */
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

/*
 * Is the text an interval? It begins with "every", or it has one or two words, begins with a digit, and its last word does
 * not end with a digit: no schedule in fields has so few words.
 */
static bool
is_interval(const SweepCronWord *words, int count)
{
	const SweepCronWord *last;

	if (sweep_cron_word_is(words[0], "every"))
		return true;
	if (count > 2 || !is_digit(words[0].text[0]))
		return false;
	last = &words[count - 1];
	return !is_digit(last->text[last->length - 1]);
}

/* [every] [N] seconds|minutes|hours|days */
static bool
parse_interval(const char *text, SweepCron *cron, SweepCronError *error)
{
	SweepCronWord number;
	SweepCronWord unit;
	int			count = 1;

	if (!read_interval(text, &number, &unit))
		return sweep_cron_fail(error, "Write for example \"every 30 seconds\", \"every minute\", \"every 2 hours\" or \"every 1 day\".",
							   "invalid interval \"%s\"", text);
	for (int i = 0; i < lengthof(units); i++)
	{
		if (!sweep_cron_word_is(unit, units[i].name))
			continue;
		if (number.length > 0)
			(void) sweep_cron_parse_number(number, &count);
		cron->kind = SWEEP_CRON_INTERVAL;
		cron->interval = (int64_t) count * units[i].seconds;
		if (count < 1 || cron->interval > MAX_INTERVAL)
			return sweep_cron_fail(error, "Intervals are 1 second to 366 days.",
								   "number \"%.*s\" is out of range in interval \"%s\"",
								   number.length, number.text, text);
		return true;
	}
	return sweep_cron_fail(error, "Units are seconds, minutes, hours and days. For weeks and months name a time, for example \"0 4 * * mon\" or @monthly.",
						   "invalid unit \"%.*s\" in interval \"%s\"", unit.length, unit.text, text);
}

/* Finds number and unit, with or without a blank between them; an omitted number is empty. */
static bool
read_interval(const char *text, SweepCronWord *number, SweepCronWord *unit)
{
	SweepCronWord words[SWEEP_CRON_MAX_WORDS];
	int			count = sweep_cron_split_words(text, words);
	int			first = sweep_cron_word_is(words[0], "every") ? 1 : 0;
	int			digits = 0;

	if (count <= first || count > first + 2)
		return false;
	while (digits < words[first].length && is_digit(words[first].text[digits]))
		digits++;
	*number = (SweepCronWord) {words[first].text, digits};
	*unit = (SweepCronWord) {words[first].text + digits, words[first].length - digits};
	if (count == first + 1)
		return unit->length > 0;
	if (digits == 0 || unit->length > 0)
		return false;
	*unit = words[first + 1];
	return true;
}

static bool
is_digit(char letter)
{
	return letter >= '0' && letter <= '9';
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
							   "Other forms are @daily, \"every 30 seconds\", \"every minute\" and \"every 1 day\".",
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
