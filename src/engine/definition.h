/*
 * definition.h
 *		The settings of a job that a run needs, and their way from the scheduler to the process of the run.
 */
#ifndef SWEEP_DEFINITION_H
#define SWEEP_DEFINITION_H

#include "engine/run_state.h"
#include "nodes/parsenodes.h"

/* The columns of a definition, in a statement with the run as r and its job as j. */
#define SWEEP_JOB_COLUMN(kind, member, column) ", " column
#define SWEEP_COLUMN_OF_RUN(kind, member, column, by_name) ", " column
#define SWEEP_DEFINITION_OF_RUN "j.name" SWEEP_JOB_SETTINGS(SWEEP_JOB_COLUMN) SWEEP_RUN_SETTINGS(SWEEP_COLUMN_OF_RUN)

/* Reads the columns SWEEP_DEFINITION_OF_RUN of the current row, of which the first one is number first_column, into the run. */
extern void sweep_definition_read(SweepRun *run, int first_column);

/* Reads a job by its name, for a run with these args. Raises when there is none, or the args are not allowed. */
extern void sweep_definition_read_job(SweepRun *run, text *name, Jsonb *args);

/*
 * Reads the same columns to hand them over to another process. When they are too large for that, reads none of
 * them and sets run->unread. Does not merge the args of job and run.
 */
extern void sweep_definition_read_small(SweepRun *run, int first_column);

/*
 * Writes the definition into a buffer, for another process. Returns the number of bytes, or 0 when they
 * are too many.
 */
extern Size sweep_definition_pack(const SweepRun *run, char *buffer, Size size);

/*
 * The statements (RawStmt) of the sql of a job, in the current memory context. Raises when one cannot be parsed or needs a
 * client, when there is none, and when the last one leaves a transaction block open.
 */
extern List *sweep_definition_parse_sql(const char *source);

/* Where a statement begins, in bytes. */
extern int	sweep_definition_start(const char *source, const RawStmt *statement);

/* Reads a definition from a buffer that sweep_definition_pack has written, and merges the args. */
extern void sweep_definition_unpack(SweepRun *run, const char *buffer);

/* Parses a text of a job; false unless it is one statement. Raises with the place in that text. */
extern bool sweep_definition_parse(const char *source, RawStmt **raw);

/* Does work as that role, with these settings (texts), in a security-restricted operation. */
extern void sweep_definition_visit(Oid role, Jsonb *settings, void (*work) (void *arg), void *arg);

/* Analyses the statement as in a run of that role. Its first parameter is the batch size, if it has that, the next one the batch. */
extern Query *sweep_definition_analyse(Oid role, const char *source, Jsonb *settings, RawStmt *raw, bool has_size);

#endif							/* SWEEP_DEFINITION_H */
