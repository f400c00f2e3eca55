/*
 * function.h
 *		The call of a function of a job that returns one sweep.progress.
 */
#ifndef SWEEP_FUNCTION_H
#define SWEEP_FUNCTION_H

#include "postgres.h"
#include "engine/step.h"

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

/* A function of one argument that a statement calls: its name, quoted and with its schema. */
typedef struct SweepFunctionWatch
{
	const char *name;
	Oid			argument;		/* its type */
	uint64		checked_at;		/* 0 = not yet */
} SweepFunctionWatch;

/*
 * Before each execution of that statement, as the user who executes it. Raises when the function belongs to
 * somebody who could not become that user; looks only when a function, a role or a membership has changed.
 */
extern void sweep_function_check(SweepFunctionWatch *watch);

#endif							/* SWEEP_FUNCTION_H */
