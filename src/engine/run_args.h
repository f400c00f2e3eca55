/*
 * run_args.h
 *		What a run must be given before it begins.
 */
#ifndef SWEEP_RUN_ARGS_H
#define SWEEP_RUN_ARGS_H

#include "engine/run.h"

/* Raises unless current, session and authenticated user are the job's role: nobody runs another's code with his own rights. */
extern void sweep_run_check_role(const SweepRun *run);

/* Raises unless the args of a run are an object, and not too large. */
extern void sweep_run_check_args(Jsonb *args, const char *job);

/* Takes the clock of the run from its args, if they fix it; raises when that is no moment. */
extern void sweep_run_fix_clock(SweepRun *run);

#endif							/* SWEEP_RUN_ARGS_H */
