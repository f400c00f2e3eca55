/*
 * launcher.h
 *		The process that keeps a scheduler in every database that has the extension.
 */
#ifndef SWEEP_LAUNCHER_H
#define SWEEP_LAUNCHER_H

#include "postgres.h"

/* Registers the launcher, which starts with the server; only called while the library is loaded at server start. */
extern void sweep_launcher_register(void);

extern PGDLLEXPORT void sweep_launcher_main(Datum arg);

#endif							/* SWEEP_LAUNCHER_H */
