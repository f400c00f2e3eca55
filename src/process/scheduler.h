/*
 * scheduler.h
 *		The process that starts what is due in one database.
 */
#ifndef SWEEP_SCHEDULER_H
#define SWEEP_SCHEDULER_H

#include "base/compat.h"

extern PGDLLEXPORT void sweep_scheduler_main(Datum arg);

#endif							/* SWEEP_SCHEDULER_H */
