/*
 * scheduler.h
 *		The process that starts what is due in one database.
 */
#ifndef SWEEP_SCHEDULER_H
#define SWEEP_SCHEDULER_H

#include "base/shared.h"

/* Starts the scheduler of a database; false when there is no room for it now. */
extern bool sweep_scheduler_start(Oid database, const char *name);

extern PGDLLEXPORT void sweep_scheduler_main(Datum arg);

#endif							/* SWEEP_SCHEDULER_H */
