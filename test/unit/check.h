/*
 * check.h
 *	  The little that a unit test needs: count checks, print TAP.
 *
 * Included by every test program once. A program ends with
 * "return check_finish();", which prints the plan and gives the exit status.
 */
#ifndef CHECK_H
#define CHECK_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static int	check_total;
static int	check_failures;

/* One check with its description. Returns its outcome, for more diagnostics. */
static inline bool __attribute__((format(printf, 2, 3)))
check(bool passed, const char *format,...)
{
	va_list		arguments;

	check_total++;
	if (!passed)
		check_failures++;
	printf("%s %d - ", passed ? "ok" : "not ok", check_total);
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	printf("\n");
	return passed;
}

/* Two numbers that must be the same. */
static inline bool
check_number(long long found, long long expected, const char *what)
{
	bool		passed = check(found == expected, "%s", what);

	if (!passed)
		printf("# found %lld, expected %lld\n", found, expected);
	return passed;
}

/* Two texts that must be the same; either may be NULL. */
static inline bool
check_text(const char *found, const char *expected, const char *what)
{
	bool		same = found == expected ||
		(found != NULL && expected != NULL && strcmp(found, expected) == 0);

	if (!check(same, "%s", what))
		printf("# found:    %s\n# expected: %s\n",
			   found ? found : "(null)", expected ? expected : "(null)");
	return same;
}

static inline int
check_finish(void)
{
	printf("1..%d\n", check_total);
	if (check_failures > 0)
		printf("# %d of %d checks failed\n", check_failures, check_total);
	return check_failures > 0 ? 1 : 0;
}

#endif							/* CHECK_H */
