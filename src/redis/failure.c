/*
 * failure.c
 *		The last failure of this module.
 *
 * Called by every other file. The text of a failure becomes an error message, a line of the log and a value in a
 * table, and its encoding is not checked again. Parts of the text come from outside: error replies, messages of the
 * operating system and of OpenSSL in the language of the server's environment, and settings, whose encoding the
 * server does not check. All these parts are cleaned here. No function allocates memory or raises an error.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"

#include "redis/failure.h"

#define CUT_MARK "..."

static SweepBucketError failure;
static const int sqlstates[] = {
	[REDIS_CLASS_RETRY] = ERRCODE_CONNECTION_EXCEPTION,
	[REDIS_CLASS_CONFIGURATION] = ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
	[REDIS_CLASS_MESSAGE] = ERRCODE_EXTERNAL_ROUTINE_EXCEPTION,
};

const SweepBucketError *
sweep_redis_failure(void)
{
	return &failure;
}

SweepBucketResult
sweep_redis_fail(SweepRedisClass class, const char *detail, const char *hint, const char *format,...)
{
	/* Longer than the message by one character, because vsnprintf() may cut a character in two; pg_mbcliplen() does not. */
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
	failure.sqlstate = sqlstates[class];
	strlcpy(failure.detail, detail ? detail : "", sizeof(failure.detail));
	strlcpy(failure.hint, hint ? hint : "", sizeof(failure.hint));
	return BUCKET_FAILED;
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
		/* U+0080 to U+009F are control characters as well. */
		if (size < 1 || c < 0x20 || c == 0x7f ||
			(encoding == PG_UTF8 && c == 0xc2 && (unsigned char) text[at + 1] < 0xa0))
		{
			text[at] = '?';
			size = 1;
		}
		at += (size_t) size;
	}
}
