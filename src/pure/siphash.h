/*
 * siphash.h
 *		A hash that only a process with its key can compute.
 */
#ifndef SWEEP_SIPHASH_H
#define SWEEP_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

/* SipHash-2-4 of "first", as eight bytes with the lowest one first, and the bytes that follow. */
extern uint64_t sweep_siphash(const uint64_t key[2], uint64_t first, const void *data, size_t size);

#endif							/* SWEEP_SIPHASH_H */
