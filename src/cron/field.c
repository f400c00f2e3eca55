/*
 * field.c
 *		Parses one field of a schedule, and its words.
 *
 * Called by cron.c. An error message names the wrong word as the user wrote it, and the field. This file also
 * computes the value of H.
 */
#include "cron/field.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct Field
{
	const char *name;
	int			low;
	int			high;
	int			last;			/* highest value of "*"; less than high where 7 is Sunday like 0 */
	int			hash_last;		/* highest value of H; less than last where a month may lack the value */
	const char *const *names;	/* of the values from low on, ending with NULL */
} Field;

typedef struct Range
{
	int			low;
	int			high;
} Range;

static const char *const no_names[] = {NULL};
static const char *const month_names[] = {
	"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec", NULL
};
static const char *const weekday_names[] = {
	"sun", "mon", "tue", "wed", "thu", "fri", "sat", NULL
};

static const Field fields[SWEEP_CRON_FIELD_COUNT] = {
	[SWEEP_CRON_SECOND] = {"second", 0, 59, 59, 59, no_names},
	[SWEEP_CRON_MINUTE] = {"minute", 0, 59, 59, 59, no_names},
	[SWEEP_CRON_HOUR] = {"hour", 0, 23, 23, 23, no_names},
	[SWEEP_CRON_DAY] = {"day-of-month", 1, 31, 31, 28, no_names},
	[SWEEP_CRON_MONTH] = {"month", 1, 12, 12, 12, month_names},
	[SWEEP_CRON_WEEKDAY] = {"day-of-week", 0, 7, 6, 6, weekday_names},
};

static bool parse_element(SweepCronWord word, const Field *field, uint32_t seed,
						  SweepCronSelection *selection, SweepCronError *error);
static bool parse_sign(SweepCronWord word, const Field *field, SweepCronSelection *selection,
					   SweepCronError *error);
static bool parse_step(SweepCronWord word, const Field *field, int *step, SweepCronError *error);
static bool parse_hash(SweepCronWord word, const Field *field, uint32_t seed, int step, Range *range,
					   SweepCronError *error);
static bool parse_range(SweepCronWord word, const Field *field, Range *range, SweepCronError *error);
static bool parse_value(SweepCronWord word, const Field *field, int *value, SweepCronError *error);
static SweepCronWord word_split(SweepCronWord *word, char separator);
static uint32_t scramble(uint32_t value);
static char lower(char letter);
static bool is_space(char letter);

/* Reports an error. Returns false so that callers can return it. */
bool
sweep_cron_fail(SweepCronError *error, const char *hint, const char *format,...)
{
	va_list		arguments;

	va_start(arguments, format);
	(void) vsnprintf(error->message, sizeof(error->message), format, arguments);
	va_end(arguments);
	(void) snprintf(error->hint, sizeof(error->hint), "%s", hint);
	return false;
}

/* Is the word this one, in any case? */
bool
sweep_cron_word_is(SweepCronWord word, const char *text)
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

/* The words of a text, at most SWEEP_CRON_MAX_WORDS of them; returns how many there are. */
int
sweep_cron_split_words(const char *text, SweepCronWord *words)
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
		if (count < SWEEP_CRON_MAX_WORDS)
			words[count] = (SweepCronWord) {start, (int) (text - start)};
		count++;
	}
}

/* An unsigned number; a huge one becomes INT32_MAX, which no field accepts. */
bool
sweep_cron_parse_number(SweepCronWord word, int *number)
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

/* A whole field: elements between commas. */
bool
sweep_cron_parse_field(SweepCronWord word, SweepCronField which, uint32_t seed,
					   SweepCronSelection *selection, SweepCronError *error)
{
	const Field *field = &fields[which];
	SweepCronWord rest = word;

	*selection = (SweepCronSelection) {0};
	while (rest.text != NULL)
	{
		SweepCronWord element = rest;

		rest = word_split(&element, ',');
		if (element.length == 0)
			return sweep_cron_fail(error, "", "empty value in the list \"%.*s\" of the %s field",
								   word.length, word.text, field->name);
		if (!parse_element(element, field, seed, selection, error))
			return false;
	}
	return true;
}

uint32_t
sweep_cron_seed(const char *job_name)
{
	uint32_t	seed = 0;

	/* The due moments of existing jobs depend on this number, so the computation must never change. */
	for (; job_name != NULL && *job_name != '\0'; job_name++)
		seed = scramble(seed * 31 + (unsigned char) *job_name + 1);
	return seed;
}

/* One element of a list. */
static bool
parse_element(SweepCronWord word, const Field *field, uint32_t seed,
			  SweepCronSelection *selection, SweepCronError *error)
{
	SweepCronWord base = word;
	SweepCronWord step_word = word_split(&base, '/');
	Range		range = {field->low, field->last};
	int			step = 0;
	bool		open = false;	/* the text gives no upper end: *, H, or a number */

	if (sweep_cron_word_is(word, "l") || sweep_cron_word_is(word, "$") || sweep_cron_word_is(word, "?"))
		return parse_sign(word, field, selection, error);
	if (base.length == 0 || (step_word.text != NULL && step_word.length == 0))
		return sweep_cron_fail(error, "A step follows what it steps through, for example */15 or 9-17/2.",
							   "incomplete step \"%.*s\" in the %s field",
							   word.length, word.text, field->name);
	if (step_word.text != NULL && !parse_step(step_word, field, &step, error))
		return false;

	if (sweep_cron_word_is(base, "*"))
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

/* L, $ and ?, which stand for themselves. */
static bool
parse_sign(SweepCronWord word, const Field *field, SweepCronSelection *selection,
		   SweepCronError *error)
{
	bool		is_last = !sweep_cron_word_is(word, "?");

	if (is_last && field != &fields[SWEEP_CRON_DAY])
		return sweep_cron_fail(error, "", "\"%.*s\" is not allowed in the %s field, only in day-of-month",
							   word.length, word.text, field->name);
	if (!is_last && field != &fields[SWEEP_CRON_DAY] && field != &fields[SWEEP_CRON_WEEKDAY])
		return sweep_cron_fail(error, "", "\"?\" is not allowed in the %s field, only in day-of-month "
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

/* The number after a slash. */
static bool
parse_step(SweepCronWord word, const Field *field, int *step, SweepCronError *error)
{
	int			count = field->last - field->low + 1;
	char		hint[160];

	(void) snprintf(hint, sizeof(hint), "Steps are 1 to %d here. For a longer period "
					"write it out, for example \"every 90 minutes\".", count);
	if (!sweep_cron_parse_number(word, step))
		return sweep_cron_fail(error, hint, "invalid step \"%.*s\" in the %s field",
							   word.length, word.text, field->name);
	if (*step < 1 || *step > count)
		return sweep_cron_fail(error, hint, "step \"%.*s\" is out of range for the %s field",
							   word.length, word.text, field->name);
	return true;
}

/* H, H(a-b): narrows the range to begin at the value that the job gets, without a step to that value alone. */
static bool
parse_hash(SweepCronWord word, const Field *field, uint32_t seed, int step, Range *range,
		   SweepCronError *error)
{
	uint32_t	choices;

	*range = (Range) {field->low, field->hash_last};
	if (word.length > 1)
	{
		SweepCronWord inner = {word.text + 2, word.length - 3};

		if (word.length < 4 || word.text[1] != '(' || word.text[word.length - 1] != ')')
			return sweep_cron_fail(error, "Write for example H, H/15, H(0-29) or H(0-29)/10.",
								   "invalid value \"%.*s\" in the %s field",
								   word.length, word.text, field->name);
		if (!parse_range(inner, field, range, error))
			return false;
	}

	choices = (uint32_t) (range->high - range->low + 1);
	if (step > 0 && (uint32_t) step < choices)
		choices = (uint32_t) step;
	/* Each field mixes its number into the seed. With one seed for all fields, minute and hour would be related. */
	seed = scramble(seed + (uint32_t) (field - fields) * UINT32_C(0x9e3779b9));
	range->low += (int) (seed % choices);
	if (step == 0)
		range->high = range->low;
	return true;
}

/* "a-b", or "a" alone, which becomes a-a. */
static bool
parse_range(SweepCronWord word, const Field *field, Range *range, SweepCronError *error)
{
	SweepCronWord from = word;
	SweepCronWord to = word_split(&from, '-');

	if (from.length == 0 || (to.text != NULL && to.length == 0))
		return sweep_cron_fail(error, "", "invalid range \"%.*s\" in the %s field",
							   word.length, word.text, field->name);
	if (!parse_value(from, field, &range->low, error))
		return false;
	range->high = range->low;
	if (to.text == NULL)
		return true;
	if (!parse_value(to, field, &range->high, error))
		return false;

	/* a range of weekdays may end with the name of Sunday */
	if (field == &fields[SWEEP_CRON_WEEKDAY] && range->low > 0 && sweep_cron_word_is(to, "sun"))
		range->high = field->high;
	if (range->high < range->low)
		return sweep_cron_fail(error, "Write it as a list of two ranges.",
							   "range \"%.*s\" runs backwards in the %s field",
							   word.length, word.text, field->name);
	return true;
}

/* A number or a name of a field. */
static bool
parse_value(SweepCronWord word, const Field *field, int *value, SweepCronError *error)
{
	char		hint[64];

	for (int i = 0; field->names[i] != NULL; i++)
	{
		if (sweep_cron_word_is(word, field->names[i]))
		{
			*value = field->low + i;
			return true;
		}
	}

	(void) snprintf(hint, sizeof(hint), "Allowed are %d to %d%s.", field->low, field->high,
					field->names[0] == NULL ? "" : ", and names of three letters");
	if (!sweep_cron_parse_number(word, value))
		return sweep_cron_fail(error, hint, "invalid value \"%.*s\" in the %s field",
							   word.length, word.text, field->name);
	if (*value < field->low || *value > field->high)
		return sweep_cron_fail(error, hint, "value \"%.*s\" is out of range for the %s field",
							   word.length, word.text, field->name);
	return true;
}

/* Cuts the word at the first separator; what follows, or an empty word with text NULL. */
static SweepCronWord
word_split(SweepCronWord *word, char separator)
{
	const char *found = memchr(word->text, separator, (size_t) word->length);
	SweepCronWord rest = {NULL, 0};

	if (found != NULL)
	{
		rest.text = found + 1;
		rest.length = word->length - (int) (found - word->text) - 1;
		word->length = (int) (found - word->text);
	}
	return rest;
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

/*
 * ASCII only. libc is not used, because its rules depend on the locale of the database: in Turkish "FRI" is not
 * "fri".
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
