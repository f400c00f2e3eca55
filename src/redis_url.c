/*
 * redis_url.c
 *		Parser of Redis URLs.
 *
 *	redis://[[user]:password@]host[:port][/db]
 *	rediss://...[?ca_file=/path]			the same over TLS
 *	unix:[//[[user]:password@]]/path[?db=n]		also with one slash, as GitLab writes it
 *
 * User, password, path and parameters are percent-decoded. A user without a colon is the password, as
 * for redis-cli: a user alone could not authenticate. Everything is copied into places of fixed size, and
 * what does not fit is an error, never cut off.
 */
#include "redis_url.h"

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
static const char *parse_user(Piece authority, Piece *rest, SweepRedisUrl *url);
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

void
sweep_redis_url_describe(const SweepRedisUrl *url, char *text)
{
	const char *password = url->password[0] ? ":***@" : "";
	bool		is_address6 = strchr(url->host, ':') != NULL;

	if (url->path[0])
		(void) snprintf(text, SWEEP_REDIS_DESCRIPTION_SIZE, "unix://%s%s%s?db=%d",
						url->user, password, url->path, url->database);
	else
		(void) snprintf(text, SWEEP_REDIS_DESCRIPTION_SIZE, "%s://%s%s%s%s%s:%d/%d",
						url->tls ? "rediss" : "redis", url->user, password,
						is_address6 ? "[" : "", url->host, is_address6 ? "]" : "", url->port, url->database);
}

static const char *
parse_tcp(const char *text, SweepRedisUrl *url)
{
	Piece		authority = piece_until(text, "/?#");
	Piece		host;
	const char *error = parse_user(authority, &host, url);

	if (error == NULL)
		error = parse_host(host, url);
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
	{
		Piece		authority = piece_until(text + 2, "/?#");
		Piece		rest;
		const char *error = parse_user(authority, &rest, url);

		if (error != NULL)
			return error;
		if (rest.length > 0)
			return "The path of a unix socket must begin with a slash.";
		text += 2 + authority.length;
	}
	path = piece_until(text, "?#");
	if (path.length < 2 || path.start[0] != '/')
		return "The path of a unix socket must begin with a slash.";
	if (!decode(path, url->path, sizeof(url->path)))
		return "The path of the unix socket is too long or not well-formed.";
	return parse_parameters(text + path.length, url);
}

/* What stands before the last @ of the authority; the rest is what follows it. */
static const char *
parse_user(Piece authority, Piece *rest, SweepRedisUrl *url)
{
	Piece		user = {authority.start, 0};
	Piece		password = {authority.start, authority.length};
	size_t		colon = 0;

	*rest = authority;
	while (password.length > 0 && authority.start[password.length - 1] != '@')
		password.length--;
	if (password.length == 0)
		return NULL;
	rest->start += password.length;
	rest->length -= password.length;
	password.length--;
	while (colon < password.length && password.start[colon] != ':')
		colon++;
	if (colon < password.length)
	{
		user.length = colon;
		password.start += colon + 1;
		password.length -= colon + 1;
	}
	if (!decode(user, url->user, sizeof(url->user)))
		return "The user is too long or not well-formed.";
	if (!decode(password, url->password, sizeof(url->password)))
		return "The password is too long or not well-formed.";
	if (url->user[0] && !url->password[0])
		return "There is a user but no password.";
	return NULL;
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
	if (!decode(name, url->host, sizeof(url->host)))
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
		else if (name.length == 7 && strncmp(name.start, "ca_file", 7) == 0)
		{
			if (!decode(value, url->ca_file, sizeof(url->ca_file)))
				return "The name of the ca_file is too long or not well-formed.";
		}
		else
			return "The parameters that it may have are db and ca_file.";
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

/* Digits only: neither sign nor space nor more than there can be. */
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
