/*
 * secret.c
 *		The secret of the server, and hashes under it.
 *
 * A hash that is trusted, and not compared with what it was made of, can be met on purpose where its function and its
 * input are known: the number of a lock, the items that a run has picked. These are made under a secret that is drawn while the
 * library is preloaded and that every process inherits. Nothing of it is stored: what it numbers does not outlive the server.
 */
#include "postgres.h"

#include "base/secret.h"
#include "pure/siphash.h"

static uint64_t secret[2];

void
sweep_secret_draw(void)
{
	if (!pg_strong_random(secret, sizeof(secret)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate random values")));
}

uint64
sweep_secret_hash(uint64 first, const void *data, Size size)
{
	return sweep_siphash(secret, first, data, size);
}
