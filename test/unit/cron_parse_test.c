/*
 * cron_parse_test.c
 *	  What each form of a schedule means, and the error of each wrong one.
 */
#include "check.h"
#include "cron/cron.h"

#define BIT(n) (UINT64_C(1) << (n))
#define ALL60 ((UINT64_C(1) << 60) - 1)
#define ALL24 ((UINT64_C(1) << 24) - 1)
#define DAYS UINT64_C(0xfffffffe)
#define MONTHS UINT64_C(0x1ffe)
#define WEEK UINT64_C(0x7f)

typedef struct FieldCase
{
	const char *text;
	uint64_t	seconds;
	uint64_t	minutes;
	uint64_t	hours;
	uint64_t	days;
	uint64_t	months;
	uint64_t	weekdays;
	bool		last_day;
	bool		either_day;
	bool		repeats;
} FieldCase;

static const FieldCase field_cases[] = {
	{"* * * * *", 1, ALL60, ALL24, DAYS, MONTHS, WEEK, false, false, true},
	{"  5\t4  *  * * ", 1, BIT(5), BIT(4), DAYS, MONTHS, WEEK, false, false, false},
	{"0 0 * * *\n", 1, 1, 1, DAYS, MONTHS, WEEK, false, false, false},
	{"59 23 31 12 6", 1, BIT(59), BIT(23), BIT(31), BIT(12), BIT(6), false, true, false},
	{"007 08 1 1 *", 1, BIT(7), BIT(8), BIT(1), BIT(1), WEEK, false, false, false},
	{"1,2,50 0 * * *", 1, BIT(1) | BIT(2) | BIT(50), 1, DAYS, MONTHS, WEEK, false, false, false},
	{"10-12 0 * * *", 1, BIT(10) | BIT(11) | BIT(12), 1, DAYS, MONTHS, WEEK, false, false, false},
	{"7-7 0 * * *", 1, BIT(7), 1, DAYS, MONTHS, WEEK, false, false, false},
	{"10-20/5,0 0 * * *", 1, BIT(0) | BIT(10) | BIT(15) | BIT(20), 1, DAYS, MONTHS, WEEK, false, false, false},
	{"*/20 0 * * *", 1, BIT(0) | BIT(20) | BIT(40), 1, DAYS, MONTHS, WEEK, false, false, true},
	{"*/60 0 * * *", 1, BIT(0), 1, DAYS, MONTHS, WEEK, false, false, true},
	{"5/15 0 * * *", 1, BIT(5) | BIT(20) | BIT(35) | BIT(50), 1, DAYS, MONTHS, WEEK, false, false, true},
	{"0 0/8 * * *", 1, 1, BIT(0) | BIT(8) | BIT(16), DAYS, MONTHS, WEEK, false, false, true},
	{"0 0-23 * * *", 1, 1, ALL24, DAYS, MONTHS, WEEK, false, false, false},
	{"*,5 0 * * *", 1, ALL60, 1, DAYS, MONTHS, WEEK, false, false, true},
	{"0 0 1 jan *", 1, 1, 1, BIT(1), BIT(1), WEEK, false, false, false},
	{"0 0 1 JAN-Mar,dEc *", 1, 1, 1, BIT(1), BIT(1) | BIT(2) | BIT(3) | BIT(12), WEEK, false, false, false},
	{"0 0 * * SUN", 1, 1, 1, DAYS, MONTHS, BIT(0), false, false, false},
	{"0 0 * * 0", 1, 1, 1, DAYS, MONTHS, BIT(0), false, false, false},
	{"0 0 * * 7", 1, 1, 1, DAYS, MONTHS, BIT(0), false, false, false},
	{"0 0 * * 0-7", 1, 1, 1, DAYS, MONTHS, WEEK, false, false, false},
	{"0 0 * * 5-7", 1, 1, 1, DAYS, MONTHS, BIT(5) | BIT(6) | BIT(0), false, false, false},
	{"0 0 * * fri-sun", 1, 1, 1, DAYS, MONTHS, BIT(5) | BIT(6) | BIT(0), false, false, false},
	{"0 0 * * sun-tue", 1, 1, 1, DAYS, MONTHS, BIT(0) | BIT(1) | BIT(2), false, false, false},
	{"0 0 * * sun-sun", 1, 1, 1, DAYS, MONTHS, BIT(0), false, false, false},
	{"0 0 * * mon-fri/2", 1, 1, 1, DAYS, MONTHS, BIT(1) | BIT(3) | BIT(5), false, false, false},
	{"0 0 * * */3", 1, 1, 1, DAYS, MONTHS, BIT(0) | BIT(3) | BIT(6), false, false, false},
	{"0 0 * * 2/2", 1, 1, 1, DAYS, MONTHS, BIT(2) | BIT(4) | BIT(6), false, false, false},
	{"0 0 * * 7/2", 1, 1, 1, DAYS, MONTHS, BIT(0), false, false, false},
	{"0 0 L * *", 1, 1, 1, 0, MONTHS, WEEK, true, false, false},
	{"0 0 1,15,l 2 *", 1, 1, 1, BIT(1) | BIT(15), BIT(2), WEEK, true, false, false},
	{"0 0 ? * mon", 1, 1, 1, DAYS, MONTHS, BIT(1), false, false, false},
	{"0 0 13 * ?", 1, 1, 1, BIT(13), MONTHS, WEEK, false, false, false},
	{"0 0 13 * 5", 1, 1, 1, BIT(13), MONTHS, BIT(5), false, true, false},
	{"0 0 */10 * 5", 1, 1, 1, BIT(1) | BIT(11) | BIT(21) | BIT(31), MONTHS, BIT(5), false, false, false},
	{"0 0 13 * */6", 1, 1, 1, BIT(13), MONTHS, BIT(0) | BIT(6), false, false, false},
	{"0 0 $ * *", 1, 1, 1, 0, MONTHS, WEEK, true, false, false},
	{"0 0 15,$ * mon", 1, 1, 1, BIT(15), MONTHS, BIT(1), true, true, false},
	{"0 0 L * 1", 1, 1, 1, 0, MONTHS, BIT(1), true, true, false},
	{"30 5 4 * * *", BIT(30), BIT(5), BIT(4), DAYS, MONTHS, WEEK, false, false, false},
	{"*/30 5 4 * * *", BIT(0) | BIT(30), BIT(5), BIT(4), DAYS, MONTHS, WEEK, false, false, true},
	{"0 0 29 2 *", 1, 1, 1, BIT(29), BIT(2), WEEK, false, false, false},
	{"0 0 29 2 */6", 1, 1, 1, BIT(29), BIT(2), BIT(0) | BIT(6), false, false, false},
	{"0 0 30,31 2,4 *", 1, 1, 1, BIT(30) | BIT(31), BIT(2) | BIT(4), WEEK, false, false, false},
	{"0 0 30 2 mon", 1, 1, 1, BIT(30), BIT(2), BIT(1), false, true, false},
	{"@yearly", 1, 1, 1, BIT(1), BIT(1), WEEK, false, false, false},
	{"@annually", 1, 1, 1, BIT(1), BIT(1), WEEK, false, false, false},
	{"@monthly", 1, 1, 1, BIT(1), MONTHS, WEEK, false, false, false},
	{"@weekly", 1, 1, 1, DAYS, MONTHS, BIT(0), false, false, false},
	{"@daily", 1, 1, 1, DAYS, MONTHS, WEEK, false, false, false},
	{"@midnight", 1, 1, 1, DAYS, MONTHS, WEEK, false, false, false},
	{" @Hourly ", 1, 1, ALL24, DAYS, MONTHS, WEEK, false, false, true},
};

typedef struct IntervalCase
{
	const char *text;
	int64_t		seconds;
} IntervalCase;

static const IntervalCase interval_cases[] = {
	{"every 1 second", 1}, {"every 30 seconds", 30}, {"every 1 minute", 60},
	{"every 90 minutes", 5400}, {"every 1 hour", 3600}, {" Every  2 HOURS ", 7200},
	{"every 8784 hours", 31622400}, {"every 31622400 seconds", 31622400},
	{"every second", 1}, {"every minute", 60}, {"Every Hour", 3600}, {"every day", 86400}, {"every minutes", 60},
	{"every 1 day", 86400}, {"every 7 days", 604800}, {"every 366 days", 31622400},
	{"1 second", 1}, {"30 seconds", 30}, {"59 second", 59}, {"  30\tSECONDS ", 30}, {"30seconds", 30}, {"every 5minutes", 300},
	{"90 seconds", 90}, {"2 hours", 7200}, {"1 day", 86400},
};

typedef struct ErrorCase
{
	const char *text;
	const char *message;
	const char *hint;			/* its beginning */
} ErrorCase;

#define LONG50 "0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,"
#define WRITE "Write for example"

static const ErrorCase error_cases[] = {
	{NULL, "schedule is empty", WRITE},
	{"", "schedule is empty", WRITE},
	{" \t\n", "schedule is empty", WRITE},
	{LONG50 LONG50 LONG50 LONG50 LONG50 "0 * * * *", "schedule is too long: 259 bytes, at most 255 are allowed", ""},
	{"* * * *", "schedule \"* * * *\" has 4 fields instead of 5 or 6", "Fields are"},
	{"5", "schedule \"5\" has 1 field instead of 5 or 6", "Fields are"},
	{"0 0 0 * * * *", "schedule \"0 0 0 * * * *\" has 7 fields instead of 5 or 6", "Fields are"},
	{"0 4 * * * foo", "invalid value \"foo\" in the day-of-week field", "Allowed are 0 to 7, and names"},
	{"60 * * * *", "value \"60\" is out of range for the minute field", "Allowed are 0 to 59."},
	{"60 * * * * *", "value \"60\" is out of range for the second field", "Allowed are 0 to 59."},
	{"0 24 * * *", "value \"24\" is out of range for the hour field", "Allowed are 0 to 23."},
	{"0 0 0 * *", "value \"0\" is out of range for the day-of-month field", "Allowed are 1 to 31."},
	{"0 0 32 * *", "value \"32\" is out of range for the day-of-month field", "Allowed are 1 to 31."},
	{"0 0 1 0 *", "value \"0\" is out of range for the month field", "Allowed are 1 to 12, and names"},
	{"0 0 1 13 *", "value \"13\" is out of range for the month field", "Allowed are 1 to 12, and names"},
	{"0 0 * * 8", "value \"8\" is out of range for the day-of-week field", "Allowed are 0 to 7, and names"},
	{"99999999999999999999 * * * *", "value \"99999999999999999999\" is out of range for the minute field", ""},
	{"-5 * * * *", "invalid range \"-5\" in the minute field", ""},
	{"5- * * * *", "invalid range \"5-\" in the minute field", ""},
	{"1-2-3 * * * *", "invalid value \"2-3\" in the minute field", ""},
	{"+5 * * * *", "invalid value \"+5\" in the minute field", ""},
	{"5x * * * *", "invalid value \"5x\" in the minute field", ""},
	{"*5 * * * *", "invalid value \"*5\" in the minute field", ""},
	{"** * * * *", "invalid value \"**\" in the minute field", ""},
	{"0 0 * * monday", "invalid value \"monday\" in the day-of-week field", ""},
	{"0 0 * jan mon-fry", "invalid value \"fry\" in the day-of-week field", ""},
	{"0 0 * mon *", "invalid value \"mon\" in the month field", ""},
	{"jan 0 * * *", "invalid value \"jan\" in the minute field", "Allowed are 0 to 59."},
	{"30-10 * * * *", "range \"30-10\" runs backwards in the minute field", "Write it as a list"},
	{"0 22-6 * * *", "range \"22-6\" runs backwards in the hour field", "Write it as a list"},
	{"0 0 * * sat-mon", "range \"sat-mon\" runs backwards in the day-of-week field", "Write it as a list"},
	{"0 0 * * 5-0", "range \"5-0\" runs backwards in the day-of-week field", "Write it as a list"},
	{"0-60 * * * *", "value \"60\" is out of range for the minute field", ""},
	{"*/0 * * * *", "step \"0\" is out of range for the minute field", "Steps are 1 to 60"},
	{"*/61 * * * *", "step \"61\" is out of range for the minute field", "Steps are 1 to 60"},
	{"0 */25 * * *", "step \"25\" is out of range for the hour field", "Steps are 1 to 24"},
	{"0 0 * * */8", "step \"8\" is out of range for the day-of-week field", "Steps are 1 to 7"},
	{"*/ * * * *", "incomplete step \"*/\" in the minute field", "A step follows"},
	{"/5 * * * *", "incomplete step \"/5\" in the minute field", "A step follows"},
	{"*/x * * * *", "invalid step \"x\" in the minute field", ""},
	{"*/-5 * * * *", "invalid step \"-5\" in the minute field", ""},
	{"*/5/5 * * * *", "invalid step \"5/5\" in the minute field", ""},
	{"1,,2 * * * *", "empty value in the list \"1,,2\" of the minute field", ""},
	{",1 * * * *", "empty value in the list \",1\" of the minute field", ""},
	{"0 1, * * *", "empty value in the list \"1,\" of the hour field", ""},
	{"L * * * *", "\"L\" is not allowed in the minute field, only in day-of-month", ""},
	{"0 $ * * *", "\"$\" is not allowed in the hour field, only in day-of-month", ""},
	{"0 0 $/2 * *", "invalid value \"$\" in the day-of-month field", ""},
	{"0 0 * * L", "\"L\" is not allowed in the day-of-week field, only in day-of-month", ""},
	{"0 0 L/2 * *", "invalid value \"L\" in the day-of-month field", ""},
	{"0 0 L-3 * *", "invalid value \"L\" in the day-of-month field", ""},
	{"0 0 15W * *", "invalid value \"15W\" in the day-of-month field", ""},
	{"0 0 * * 5L", "invalid value \"5L\" in the day-of-week field", ""},
	{"? * * * *", "\"?\" is not allowed in the minute field, only in day-of-month and day-of-week", ""},
	{"0 0 ?/2 * *", "invalid value \"?\" in the day-of-month field", ""},
	{"H5 * * * *", "invalid value \"H5\" in the minute field", WRITE},
	{"H( * * * *", "invalid value \"H(\" in the minute field", WRITE},
	{"H() * * * *", "invalid value \"H()\" in the minute field", WRITE},
	{"H(5 * * * *", "invalid value \"H(5\" in the minute field", WRITE},
	{"H(1-5)x * * * *", "invalid value \"H(1-5)x\" in the minute field", WRITE},
	{"H(0-60) * * * *", "value \"60\" is out of range for the minute field", ""},
	{"H(30-10) * * * *", "range \"30-10\" runs backwards in the minute field", ""},
	{"H/0 * * * *", "step \"0\" is out of range for the minute field", ""},
	{"H-5 * * * *", "invalid value \"H-5\" in the minute field", WRITE},
	{"0 0 30 2 *", "schedule \"0 0 30 2 *\" matches no date", "None of its months"},
	{"0 0 31 2,4,6,9,11 *", "schedule \"0 0 31 2,4,6,9,11 *\" matches no date", "None of its months"},
	{"@", "unknown macro \"@\"", "Macros are"},
	{"@dayly", "unknown macro \"@dayly\"", "Macros are"},
	{"@daily at noon", "unexpected \"at\" after macro \"@daily\"", ""},
	{"every", "invalid interval \"every\"", WRITE},
	{"every 5", "invalid interval \"every 5\"", WRITE},
	{"every 5 minutes please", "invalid interval \"every 5 minutes please\"", WRITE},
	{"every 5 7", "invalid unit \"7\" in interval \"every 5 7\"", "Units are"},
	{"every 5x minutes", "invalid interval \"every 5x minutes\"", WRITE},
	{"every every minute", "invalid interval \"every every minute\"", WRITE},
	{"every x minutes", "invalid interval \"every x minutes\"", WRITE},
	{"every -5 minutes", "invalid interval \"every -5 minutes\"", WRITE},
	{"every 1.5 hours", "invalid interval \"every 1.5 hours\"", WRITE},
	{"every 0 seconds", "number \"0\" is out of range in interval \"every 0 seconds\"", "Intervals are"},
	{"every 8785 hours", "number \"8785\" is out of range in interval \"every 8785 hours\"", "Intervals are"},
	{"every 99999999999999999999 hours", "number \"99999999999999999999\" is out of range in interval \"every 99999999999999999999 hours\"", ""},
	{"every 367 days", "number \"367\" is out of range in interval \"every 367 days\"", "Intervals are 1 second to 366 days."},
	{"every week", "invalid unit \"week\" in interval \"every week\"", "Units are"},
	{"every 2 weeks", "invalid unit \"weeks\" in interval \"every 2 weeks\"", "Units are seconds, minutes, hours and days. For weeks"},
	{"every 30 s", "invalid unit \"s\" in interval \"every 30 s\"", "Units are"},
	{"30 secs", "invalid unit \"secs\" in interval \"30 secs\"", "Units are"},
	{"0 seconds", "number \"0\" is out of range in interval \"0 seconds\"", "Intervals are"},
	{"seconds", "schedule \"seconds\" has 1 field instead of 5 or 6", "Fields are"},
	{"30 seconds please", "schedule \"30 seconds please\" has 3 fields instead of 5 or 6", "Fields are"},
	{"5 4", "schedule \"5 4\" has 2 fields instead of 5 or 6", "Fields are"},
	{"every 2 minute5", "invalid unit \"minute5\" in interval \"every 2 minute5\"", "Units are"},
	{"\xc3\xa4 * * * *", "invalid value \"\xc3\xa4\" in the minute field", ""},
};

static void
test_fields(void)
{
	for (size_t i = 0; i < sizeof(field_cases) / sizeof(field_cases[0]); i++)
	{
		const FieldCase *expected = &field_cases[i];
		SweepCronError error;
		SweepCron	cron;
		bool		parsed = sweep_cron_parse(expected->text, 0, &cron, &error);

		if (!check(parsed && cron.kind == SWEEP_CRON_FIELDS && error.message[0] == '\0' &&
				   cron.seconds == expected->seconds && cron.minutes == expected->minutes &&
				   cron.hours == expected->hours && cron.days == expected->days &&
				   cron.months == expected->months && cron.weekdays == expected->weekdays &&
				   cron.last_day == expected->last_day &&
				   cron.either_day == expected->either_day && cron.repeats == expected->repeats,
				   "fields of \"%s\"", i == 2 ? "0 0 * * * (newline)" : expected->text))
			printf("# %s s %llx m %llx h %llx d %llx mon %llx wd %llx last %d either %d repeats %d\n",
				   error.message, (unsigned long long) cron.seconds,
				   (unsigned long long) cron.minutes, (unsigned long long) cron.hours,
				   (unsigned long long) cron.days, (unsigned long long) cron.months,
				   (unsigned long long) cron.weekdays, cron.last_day, cron.either_day,
				   cron.repeats);
	}
}

static void
test_others(void)
{
	char		text[SWEEP_CRON_MAX_LENGTH + 2];
	SweepCronError error;
	SweepCron	cron;

	for (size_t i = 0; i < sizeof(interval_cases) / sizeof(interval_cases[0]); i++)
		check(sweep_cron_parse(interval_cases[i].text, 0, &cron, &error) &&
			  cron.kind == SWEEP_CRON_INTERVAL && cron.interval == interval_cases[i].seconds,
			  "interval \"%s\"", interval_cases[i].text);
	check(sweep_cron_parse("@reboot", 0, &cron, &error) && cron.kind == SWEEP_CRON_REBOOT,
		  "@reboot");

	memset(text, ' ', sizeof(text));
	memcpy(text, "0 4 * * *", 9);
	text[SWEEP_CRON_MAX_LENGTH] = '\0';
	check(sweep_cron_parse(text, 0, &cron, &error), "the longest text");
	text[SWEEP_CRON_MAX_LENGTH] = ' ';
	text[SWEEP_CRON_MAX_LENGTH + 1] = '\0';
	check(!sweep_cron_parse(text, 0, &cron, &error), "one byte more");
}

static void
test_errors(void)
{
	for (size_t i = 0; i < sizeof(error_cases) / sizeof(error_cases[0]); i++)
	{
		const ErrorCase *expected = &error_cases[i];
		SweepCronError error;
		SweepCron	cron;
		bool		parsed = sweep_cron_parse(expected->text, 0, &cron, &error);

		if (!check(!parsed && strcmp(error.message, expected->message) == 0 &&
				   strncmp(error.hint, expected->hint, strlen(expected->hint)) == 0,
				   "refused: %s", expected->message))
			printf("# %s: %s (%s)\n", parsed ? "accepted" : "refused", error.message, error.hint);
		if (error.hint[0] != '\0' && error.hint[strlen(error.hint) - 1] != '.')
			check(false, "hint is a whole sentence: %s", error.hint);
	}
}

int
main(void)
{
	test_fields();
	test_others();
	test_errors();
	return check_finish();
}
