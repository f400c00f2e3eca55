/*
 * reply_class.c
 *		The error replies of Redis, in a table.
 *
 * An error reply begins with a word in capitals, its code. Before Redis 7 an error within a script comes
 * as "ERR Error running script ...: -OOM ..."; therefore the codes are searched for in the whole text of an ERR.
 * A reply that is not in the table is an error of the command that was sent.
 */
#include "redis/reply_class.h"

#include <stddef.h>
#include <string.h>

typedef struct Known
{
	const char *text;
	SweepRedisClass class;
	const char *hint;
} Known;

/* Codes, in the order in which they are searched for after ERR. */
static const Known codes[] = {
	{"LOADING", REDIS_CLASS_RETRY, "Redis is reading its data; it will be tried again."},
	{"READONLY", REDIS_CLASS_RETRY, "pg_sweep.redis_url leads to a replica; it must lead to the master."},
	{"OOM", REDIS_CLASS_RETRY, "Redis has reached its maxmemory."},
	{"MISCONF", REDIS_CLASS_RETRY, "Redis cannot save its data; its log has the reason."},
	{"MASTERDOWN", REDIS_CLASS_RETRY, NULL},
	{"NOREPLICAS", REDIS_CLASS_RETRY, NULL},
	{"TRYAGAIN", REDIS_CLASS_RETRY, NULL},
	{"CLUSTERDOWN", REDIS_CLASS_RETRY, NULL},
	{"UNBLOCKED", REDIS_CLASS_RETRY, NULL},
	{"BUSY", REDIS_CLASS_RETRY, "Redis is busy with a script."},
	{"NOAUTH", REDIS_CLASS_CONFIGURATION, "Set pg_sweep.redis_password_file, and pg_sweep.redis_user if Redis has users."},
	{"WRONGPASS", REDIS_CLASS_CONFIGURATION, "Check pg_sweep.redis_user and the file of pg_sweep.redis_password_file."},
	{"NOPERM", REDIS_CLASS_CONFIGURATION, "Grant the user the commands and keys that doc/operations.md lists."},
	{"WRONGTYPE", REDIS_CLASS_CONFIGURATION, "Something else uses the key: check pg_sweep.redis_key_prefix."},
	{"DENIED", REDIS_CLASS_CONFIGURATION, "Redis is in protected mode: give it a password or a bind address."},
	{"MOVED", REDIS_CLASS_CONFIGURATION, "Redis Cluster is not followed: pg_sweep.redis_url must lead to the node that has the keys."},
	{"ASK", REDIS_CLASS_CONFIGURATION, "Redis Cluster is not followed: pg_sweep.redis_url must lead to the node that has the keys."},
	{"CROSSSLOT", REDIS_CLASS_CONFIGURATION, "Redis Cluster keeps keys with the same braces together: pg_sweep.redis_key_prefix must have none."},
	{"NOSCRIPT", REDIS_CLASS_CONFIGURATION, NULL},
	{"NOPROTO", REDIS_CLASS_CONFIGURATION, NULL},
};

/* Phrases of the text after ERR. */
static const Known phrases[] = {
	{"max number of clients", REDIS_CLASS_RETRY, "Redis has reached its maxclients."},
	{"invalid password", REDIS_CLASS_CONFIGURATION, "Check pg_sweep.redis_user and the file of pg_sweep.redis_password_file."},
	{"without any password", REDIS_CLASS_CONFIGURATION, "Redis has no password: empty pg_sweep.redis_password_file."},
	{"no password is set", REDIS_CLASS_CONFIGURATION, "Redis has no password: empty pg_sweep.redis_password_file."},
	{"wrong number of arguments for 'auth'", REDIS_CLASS_CONFIGURATION, "Before Redis 6 there are no users: empty pg_sweep.redis_user."},
	{"DB index", REDIS_CLASS_CONFIGURATION, "Check the number of the database in pg_sweep.redis_url."},
	{"unknown command", REDIS_CLASS_CONFIGURATION, "pg_sweep needs Redis 5 or later, with its commands under their names."},
	{"Write commands not allowed after non deterministic", REDIS_CLASS_CONFIGURATION, "pg_sweep needs Redis 5 or later."},
};

static const Known unknown = {NULL, REDIS_CLASS_MESSAGE, NULL};

#define CAPITALS "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

static const Known *
find_code(const char *word, size_t length)
{
	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
	{
		if (strlen(codes[i].text) == length && strncmp(codes[i].text, word, length) == 0)
			return &codes[i];
	}
	return &unknown;
}

static const Known *
find(const char *reply)
{
	const Known *known = &unknown;
	size_t		length = strcspn(reply, " ");

	if (length != 3 || strncmp(reply, "ERR", 3) != 0)
		return find_code(reply, length);
	for (size_t i = 0; i < sizeof(phrases) / sizeof(phrases[0]); i++)
	{
		if (strstr(reply, phrases[i].text) != NULL)
			return &phrases[i];
	}
	for (const char *word = reply; *word != '\0' && known == &unknown; word += length)
	{
		word += strcspn(word, CAPITALS);
		length = strspn(word, CAPITALS);
		known = find_code(word, length);
	}
	return known;
}

SweepRedisClass
sweep_redis_reply_class(const char *reply)
{
	return find(reply)->class;
}

const char *
sweep_redis_reply_hint(const char *reply)
{
	return find(reply)->hint;
}
