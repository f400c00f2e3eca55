/*
 * secret.h
 *		Hashes that are trusted, because only processes of the server can compute them.
 */
#ifndef SWEEP_SECRET_H
#define SWEEP_SECRET_H

/* Called when the library is loaded. */
extern void sweep_secret_draw(void);

/* Hashes the number and the bytes behind it; the hash is the same in all processes of a server that preloads the library, until it is started again. */
extern uint64 sweep_secret_hash(uint64 first, const void *data, Size size);

#endif							/* SWEEP_SECRET_H */
