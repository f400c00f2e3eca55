/*
 * siphash.c
 *		SipHash-2-4, as Aumasson and Bernstein describe it: 64 bits, with a key of 128 bits.
 *
 * Called for values of which only the hash is compared, see base/lock.c. It allocates no memory and cannot fail.
 */
#include "pure/siphash.h"

typedef struct State
{
	uint64_t	v[4];
} State;

static void absorb(State *state, uint64_t word);
static void scramble(State *state, int rounds);
static uint64_t rotate(uint64_t word, int bits);
static uint64_t read_word(const unsigned char *bytes, size_t count);

uint64_t
sweep_siphash(const uint64_t key[2], uint64_t first, const void *data, size_t size)
{
	const unsigned char *bytes = data;
	State		state = {{
		key[0] ^ UINT64_C(0x736f6d6570736575), key[1] ^ UINT64_C(0x646f72616e646f6d),
		key[0] ^ UINT64_C(0x6c7967656e657261), key[1] ^ UINT64_C(0x7465646279746573)
	}};
	size_t		left = size;

	absorb(&state, first);
	for (; left >= 8; left -= 8, bytes += 8)
		absorb(&state, read_word(bytes, 8));
	absorb(&state, (uint64_t) (sizeof(first) + size) << 56 | read_word(bytes, left));
	state.v[2] ^= 0xff;
	scramble(&state, 4);
	return state.v[0] ^ state.v[1] ^ state.v[2] ^ state.v[3];
}

static void
absorb(State *state, uint64_t word)
{
	state->v[3] ^= word;
	scramble(state, 2);
	state->v[0] ^= word;
}

static void
scramble(State *state, int rounds)
{
	uint64_t   *v = state->v;

	while (rounds-- > 0)
	{
		v[0] += v[1];
		v[2] += v[3];
		v[1] = rotate(v[1], 13) ^ v[0];
		v[3] = rotate(v[3], 16) ^ v[2];
		v[0] = rotate(v[0], 32);
		v[2] += v[1];
		v[0] += v[3];
		v[1] = rotate(v[1], 17) ^ v[2];
		v[3] = rotate(v[3], 21) ^ v[0];
		v[2] = rotate(v[2], 32);
	}
}

static uint64_t
rotate(uint64_t word, int bits)
{
	return word << bits | word >> (64 - bits);
}

/* Reads the lowest byte first, on any machine. */
static uint64_t
read_word(const unsigned char *bytes, size_t count)
{
	uint64_t	word = 0;

	for (size_t i = 0; i < count; i++)
		word |= (uint64_t) bytes[i] << (8 * i);
	return word;
}
