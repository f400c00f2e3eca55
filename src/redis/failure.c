/*
 * failure.c
 *		Why something with Redis did not work.
 *
 * Called by target.c and connection.c. The text of a failure becomes an error message, a line of the log
 * and a value in a table, none of which checks its encoding again; and much of it comes from outside: error
 * replies of whoever answers at the address, the text of the operating system and of OpenSSL in the
 * language of the server's environment, settings, of which the server does not check the encoding. So all
 * of it is cleaned here. Nothing is allocated and nothing raises.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"

#include "redis/failure.h"

#define CUT_MARK "..."

static SweepRedisFailure failure;

const SweepRedisFailure *
sweep_redis_failure(void)
{
	return &failure;
}

SweepRedisOutcome
sweep_redis_fail(SweepRedisClass class, const char *detail, const char *hint, const char *format,...)
{
	/* So much longer that a character is never cut where the text is cut below. */
	char		text[sizeof(failure.message) + MAX_MULTIBYTE_CHAR_LEN];
	va_list		arguments;
	size_t		length;

	va_start(arguments, format);
	(void) vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	sweep_redis_clean_text(text, strlen(text));
	length = strlen(text);
	if (length >= sizeof(failure.message))
	{
		length = (size_t) pg_mbcliplen(text, (int) length, (int) (sizeof(failure.message) - sizeof(CUT_MARK)));
		memcpy(text + length, CUT_MARK, sizeof(CUT_MARK));
	}
	strlcpy(failure.message, text, sizeof(failure.message));
	failure.class = class;
	failure.detail = detail;
	failure.hint = hint;
	return REDIS_FAILED;
}

void
sweep_redis_clean_text(char *text, size_t length)
{
	int			encoding = GetDatabaseEncoding();
	size_t		at = 0;

	while (at < length)
	{
		unsigned char c = (unsigned char) text[at];
		int			size = 1;

		if (IS_HIGHBIT_SET(c))
			size = pg_encoding_verifymbchar(encoding, text + at, (int) Min(length - at, MAX_MULTIBYTE_CHAR_LEN));
		/* Those of the second row of Unicode do to a terminal what those of the first do. */
		if (size < 1 || c < 0x20 || c == 0x7f ||
			(encoding == PG_UTF8 && c == 0xc2 && (unsigned char) text[at + 1] < 0xa0))
		{
			text[at] = '?';
			size = 1;
		}
		at += (size_t) size;
	}
}
