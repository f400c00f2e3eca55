/*
 * log_context.h
 *		The CONTEXT line in all log messages of a process of pg_sweep.
 */
#ifndef SWEEP_LOG_CONTEXT_H
#define SWEEP_LOG_CONTEXT_H

/* Adds the line from the first transaction of the process on. It names the database, and the role if with_role is set. */
extern void sweep_log_context_begin(bool with_role);

/* Whether the names are still to be looked up, in the first transaction of the process. */
extern bool sweep_log_context_is_pending;
extern void sweep_log_context_look_up(void);

/* Sets the work in progress, "job \"x\", run 3"; NULL = none. The text is copied. */
extern void sweep_log_context_say(const char *work);

/* Removes the line, which is the last one, from the copy of an error. */
extern void sweep_log_context_cut(ErrorData *error);

#endif							/* SWEEP_LOG_CONTEXT_H */
