/*
 * field.h
 *		Reads one field of a schedule, and its words.
 *
 * Only cron.c and field.c include it; cron.h is the contract for all other files.
 */
#ifndef SWEEP_CRON_FIELD_H
#define SWEEP_CRON_FIELD_H

#include "cron/cron.h"

/* Largest number of words of a valid text. */
#define SWEEP_CRON_MAX_WORDS 6

/* Part of a text; not terminated. */
typedef struct SweepCronWord
{
	const char *text;
	int			length;
} SweepCronWord;

typedef enum SweepCronField
{
	SWEEP_CRON_SECOND,
	SWEEP_CRON_MINUTE,
	SWEEP_CRON_HOUR,
	SWEEP_CRON_DAY,
	SWEEP_CRON_MONTH,
	SWEEP_CRON_WEEKDAY
} SweepCronField;

#define SWEEP_CRON_FIELD_COUNT (SWEEP_CRON_WEEKDAY + 1)

/* The values that a field selects. Bit n stands for value n. */
typedef struct SweepCronSelection
{
	uint64_t	values;
	bool		any;			/* has a * or ? */
	bool		repeats;		/* has a * or an open step */
	bool		last_day;
} SweepCronSelection;

/* Fills in an error. Returns false so that callers can return it. */
extern bool sweep_cron_fail(SweepCronError *error, const char *hint, const char *format,...)
			__attribute__((format(printf, 3, 4)));

/* Is the word this one, in any case? The text is in lower case. */
extern bool sweep_cron_word_is(SweepCronWord word, const char *text);

/* The words of a text, at most SWEEP_CRON_MAX_WORDS; returns how many there are. */
extern int	sweep_cron_split_words(const char *text, SweepCronWord *words);

/* An unsigned number; a huge one becomes INT32_MAX. False: not a number. */
extern bool sweep_cron_parse_number(SweepCronWord word, int *number);

/* A whole field with its list. False: *error says what is wrong. */
extern bool sweep_cron_parse_field(SweepCronWord word, SweepCronField which, uint32_t seed,
								   SweepCronSelection *selection, SweepCronError *error);

#endif							/* SWEEP_CRON_FIELD_H */
