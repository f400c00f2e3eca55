/*
 * secret.h
 *		Keeps the password of pg_sweep.redis_url out of the server log.
 */
#ifndef SWEEP_SECRET_H
#define SWEEP_SECRET_H

/* At server start, so that every process has it. */
extern void sweep_secret_install_hook(void);

#endif							/* SWEEP_SECRET_H */
