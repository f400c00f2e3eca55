/*
 * redis_url.c
 *		Parser of Redis URLs.
 *
 *	redis://host[:port][/db][?db=n]
 *	rediss://...							the same over TLS
 *	unix:[//]/path[?db=n]					also with one slash, as GitLab writes it
 *
 * Host and path are percent-decoded. All parts are copied into fields of fixed size; a part that does not fit is an
 * error, and never cut off.
 *
 * A URL must not contain a user or a password, because the server logs settings and shows them. An @ anywhere counts
 * as an attempt to give them, so that a URL with a mistyped password is not accepted as something else; an @ in a
 * path is written %40.
 */
#include "pure/redis_url.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A piece of the text. */
typedef struct Piece
{
	const char *start;
	size_t		length;
} Piece;

static const char *parse_tcp(const char *text, SweepRedisUrl *url);
static const char *parse_unix(const char *text, SweepRedisUrl *url);
static const char *parse_host(Piece host, SweepRedisUrl *url);
static const char *parse_parameters(const char *text, SweepRedisUrl *url);
static Piece piece_until(const char *start, const char *ends);
static bool decode(Piece piece, char *target, size_t size);
static int	hex_digit(char c);
static bool parse_number(Piece piece, long max, int *number);

static const char bad_number[] = "The number of the database must be between 0 and 65535.";

const char *
sweep_redis_url_parse(const char *text, SweepRedisUrl *url)
{
	memset(url, 0, sizeof(*url));
	if (sweep_redis_url_has_login(text))
		return "It must have neither a user nor a password.";
	if (strncmp(text, "redis://", 8) == 0)
		return parse_tcp(text + 8, url);
	if (strncmp(text, "rediss://", 9) == 0)
	{
		url->tls = true;
		return parse_tcp(text + 9, url);
	}
	if (strncmp(text, "unix:", 5) == 0)
		return parse_unix(text + 5, url);
	return "It must begin with redis://, rediss:// or unix://.";
}

bool
sweep_redis_url_has_login(const char *text)
{
	return strchr(text, '@') != NULL;
}

static const char *
parse_tcp(const char *text, SweepRedisUrl *url)
{
	Piece		authority = piece_until(text, "/?#");
	const char *error = parse_host(authority, url);

	if (error != NULL)
		return error;
	text += authority.length;
	if (*text == '/')
	{
		Piece		database = piece_until(text + 1, "?#");

		if (database.length > 0 && !parse_number(database, 65535, &url->database))
			return bad_number;
		text += 1 + database.length;
	}
	return parse_parameters(text, url);
}

static const char *
parse_unix(const char *text, SweepRedisUrl *url)
{
	Piece		path;

	if (strncmp(text, "//", 2) == 0)
		text += 2;
	path = piece_until(text, "?#");
	if (path.length < 2 || path.start[0] != '/')
		return "The path of a unix socket must begin with a slash.";
	if (!decode(path, url->path, sizeof(url->path)))
		return "The path of the unix socket is too long or not well-formed.";
	return parse_parameters(text + path.length, url);
}

static const char *
parse_host(Piece host, SweepRedisUrl *url)
{
	Piece		name;
	Piece		port = {NULL, 0};

	if (host.length > 0 && host.start[0] == '[')
	{
		name = piece_until(host.start + 1, "]");
		if (name.length + 1 >= host.length)
			return "The address has a [ without a ].";
		port.start = name.start + name.length + 1;
	}
	else
	{
		name = piece_until(host.start, ":");
		if (name.length > host.length)
			name.length = host.length;
		port.start = name.start + name.length;
	}
	port.length = host.length - (size_t) (port.start - host.start);
	url->port = SWEEP_REDIS_DEFAULT_PORT;
	if (port.length > 0)
	{
		bool		follows_colon = port.start[0] == ':';

		port.start++;
		port.length--;
		if (!follows_colon || !parse_number(port, 65535, &url->port) || url->port == 0)
			return "The port must be a number between 1 and 65535.";
	}
	if (name.length == 0)
		return "The host is missing.";
	/* An @ that was encoded. */
	if (!decode(name, url->host, sizeof(url->host)) || sweep_redis_url_has_login(url->host))
		return "The host is too long or not well-formed.";
	return NULL;
}

/* ?name=value&name=value; nothing may follow. */
static const char *
parse_parameters(const char *text, SweepRedisUrl *url)
{
	while (*text == '?' || *text == '&')
	{
		Piece		name = piece_until(text + 1, "=&#");
		Piece		value = piece_until(name.start + name.length, "&#");

		text = value.start + value.length;
		if (value.length > 0)
		{
			value.start++;
			value.length--;
		}
		if (name.length == 2 && strncmp(name.start, "db", 2) == 0)
		{
			if (!parse_number(value, 65535, &url->database))
				return bad_number;
		}
		else
			return "The only parameter that it may have is db.";
	}
	return *text == '\0' ? NULL : "It must not have a fragment.";
}

/* From start to the first of the ends, or to the end of the text. */
static Piece
piece_until(const char *start, const char *ends)
{
	return (Piece) {start, strcspn(start, ends)};
}

/* Percent-decodes; false when it does not fit, is not well-formed or has a control character. */
static bool
decode(Piece piece, char *target, size_t size)
{
	size_t		written = 0;

	for (size_t i = 0; i < piece.length; i++)
	{
		unsigned char c = (unsigned char) piece.start[i];

		if (c == '%')
		{
			int			high = i + 2 < piece.length ? hex_digit(piece.start[i + 1]) : -1;
			int			low = high >= 0 ? hex_digit(piece.start[i + 2]) : -1;

			if (low < 0)
				return false;
			c = (unsigned char) (high * 16 + low);
			i += 2;
		}
		if (c < 0x20 || c == 0x7f || written + 1 >= size)
			return false;
		target[written++] = (char) c;
	}
	target[written] = '\0';
	return true;
}

static int
hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* Digits only, without sign or space; false when the number is larger than max. */
static bool
parse_number(Piece piece, long max, int *number)
{
	long		value = 0;

	if (piece.length == 0 || piece.length > 5)
		return false;
	for (size_t i = 0; i < piece.length; i++)
	{
		if (piece.start[i] < '0' || piece.start[i] > '9')
			return false;
		value = value * 10 + (piece.start[i] - '0');
	}
	*number = (int) value;
	return value <= max;
}
