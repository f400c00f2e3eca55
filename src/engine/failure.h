/*
 * failure.h
 *		What the error of an item means for the run.
 */
#ifndef SWEEP_FAILURE_H
#define SWEEP_FAILURE_H

#include "engine/run_state.h"

/*
 * An error that is none of the item: somebody stopped the run, the server is short of something, or the
 * job itself is broken. Else a dropped table would put a whole backlog into quarantine.
 */
extern bool sweep_failure_is_interruption(SweepRun *run, const ErrorData *error);

/* An error that may be gone at the next try: a serialization failure, a deadlock, a lock not obtained. */
extern bool sweep_failure_is_passing(const ErrorData *error);

/* The error as the rescue function gets it and a message keeps it; in the current memory context. */
extern Jsonb *sweep_failure_jsonb(const ErrorData *error);

#endif							/* SWEEP_FAILURE_H */
