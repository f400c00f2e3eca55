/*
 * definition.h
 *		The settings of a job that a run needs, and how the scheduler hands them to the process of the run.
 */
#ifndef SWEEP_DEFINITION_H
#define SWEEP_DEFINITION_H

#include "engine/run_state.h"

/* The columns of a definition, in a statement with the run as r and its job as j. */
#define SWEEP_JOB_COLUMN(kind, member, column) ", " column
#define SWEEP_COLUMN_OF_RUN(kind, member, column, by_name) ", " column
#define SWEEP_DEFINITION_OF_RUN "j.name" SWEEP_JOB_SETTINGS(SWEEP_JOB_COLUMN) SWEEP_RUN_SETTINGS(SWEEP_COLUMN_OF_RUN)

/* Creates a run without a definition for this slot, in a memory context of its own. */
extern SweepRun *sweep_run_create(MemoryContext parent, SweepSlot *slot);

/* Raises unless current, session and authenticated user are the job's role: no code of a job runs with the rights of another role. */
extern void sweep_run_check_role(const SweepRun *run);

/* Reads as_of from the args of the run, if there is one; raises when it is not a valid timestamp. */
extern void sweep_run_read_clock(SweepRun *run);

/* The limits of the loop of the run. */
extern SweepLimits sweep_run_limits(const SweepRun *run);

/* Reads the columns SWEEP_DEFINITION_OF_RUN of the current row, from number first_column on, into the run. */
extern void sweep_definition_read(SweepRun *run, int first_column);

/* Reads a job by its name, for a run with these args. Raises when the job does not exist, or the args are not allowed. */
extern void sweep_definition_read_job(SweepRun *run, text *name, Jsonb *args);

/*
 * Reads the same columns to hand them over to another process. When they are too large for the slot, reads none of
 * them and sets run->unread. Does not merge the args of job and run.
 */
extern void sweep_definition_read_small(SweepRun *run, int first_column);

/*
 * Writes the definition into a buffer, for another process. Returns the number of bytes, or 0 when the buffer is too
 * small.
 */
extern Size sweep_definition_pack(const SweepRun *run, char *buffer, Size size);

/* Reads a definition from a buffer that sweep_definition_pack has written, and merges the args. */
extern void sweep_definition_unpack(SweepRun *run, const char *buffer);

#endif							/* SWEEP_DEFINITION_H */
