/*
 * log_context.h
 *		The line of CONTEXT that what a process of pg_sweep logs has.
 */
#ifndef SWEEP_LOG_CONTEXT_H
#define SWEEP_LOG_CONTEXT_H

/* Names the database, and the role unless it is the engine's, from now on. Outside of a transaction. */
extern void sweep_log_context_begin(bool with_role);

/* Names the work in progress, "job \"x\", run 3"; NULL: nothing. The text is copied. */
extern void sweep_log_context_say(const char *work);

#endif							/* SWEEP_LOG_CONTEXT_H */
