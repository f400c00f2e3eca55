/*
 * function.h
 *		The call of a function of a job that returns one sweep.progress.
 */
#ifndef SWEEP_FUNCTION_H
#define SWEEP_FUNCTION_H

#include "postgres.h"
#include "step.h"

typedef struct SweepFunction SweepFunction;

/*
 * Looks the function up: its first argument is a sweep.batch, its second, if it has one, jsonb. Raises when it
 * does not exist. Within a transaction that has passed the gate, as is the call.
 */
extern SweepFunction *sweep_function_find(MemoryContext context, const char *name, int argument_count);

/*
 * Calls it as the current user; what it returns is in the given context. Raises what it raises, and when it
 * has ceased to exist, may not be executed, or has returned no number of rows.
 */
extern void sweep_function_call(SweepFunction *function, const NullableDatum *arguments, SweepProgress *progress, MemoryContext context);

#endif							/* SWEEP_FUNCTION_H */
