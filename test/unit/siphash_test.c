/*
 * siphash_test.c
 *		room: pure
 *	  The published vectors: key 00 01 … 0f, message 00 01 …; the first eight bytes of it are the first argument.
 */
#include <stdint.h>

#include "check.h"
#include "pure/siphash.h"

int
main(void)
{
	static const struct
	{
		size_t		length;
		uint64_t	hash;
	}			vectors[] = {
		{8, UINT64_C(0x93f5f5799a932462)},
		{15, UINT64_C(0xa129ca6149be45e5)},
		{16, UINT64_C(0x3f2acc7f57c29bdb)},
		{63, UINT64_C(0x958a324ceb064572)},
	};
	static const uint64_t key[] = {UINT64_C(0x0706050403020100), UINT64_C(0x0f0e0d0c0b0a0908)};
	static const uint64_t other_key[] = {UINT64_C(0x0706050403020101), UINT64_C(0x0f0e0d0c0b0a0908)};
	unsigned char message[64];

	for (int i = 0; i < 64; i++)
		message[i] = (unsigned char) i;
	for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++)
	{
		char		what[40];

		snprintf(what, sizeof(what), "%d bytes", (int) vectors[i].length);
		check_number((long long) sweep_siphash(key, key[0], message + 8, vectors[i].length - 8), (long long) vectors[i].hash, what);
	}
	check(sweep_siphash(key, key[0], message + 8, 7) != sweep_siphash(other_key, key[0], message + 8, 7), "another key");
	check(sweep_siphash(key, 0, message + 8, 7) != sweep_siphash(key, 1, message + 8, 7), "another first word");
	return check_finish();
}
