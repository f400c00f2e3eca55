/*
 * log_context.h
 *		The line of CONTEXT in everything that a process of pg_sweep logs.
 */
#ifndef SWEEP_LOG_CONTEXT_H
#define SWEEP_LOG_CONTEXT_H

/* The process has such a line from its first transaction on: the database, and the role unless it is the engine's. */
extern void sweep_log_context_begin(bool with_role);

/* Whether the names are to be looked up, in the first transaction of the process. */
extern bool sweep_log_context_is_pending;
extern void sweep_log_context_look_up(void);

/* Names the work in progress, "job \"x\", run 3"; NULL: nothing. The text is copied. */
extern void sweep_log_context_say(const char *work);

/* Removes this line, which is the last one, from the copy of an error. */
extern void sweep_log_context_cut(ErrorData *error);

#endif							/* SWEEP_LOG_CONTEXT_H */
