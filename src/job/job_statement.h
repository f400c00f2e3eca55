/*
 * job_statement.h
 *		The statements that a job has as a text: parsed, checked, analysed.
 */
#ifndef SWEEP_JOB_STATEMENT_H
#define SWEEP_JOB_STATEMENT_H

#include "nodes/parsenodes.h"
#include "parser/parser.h"
#include "utils/jsonb.h"

#include "base/door.h"

/*
 * The statements (RawStmt) of the sql of a job, in the current memory context. Raises when one cannot be parsed or needs a
 * client, when there is none, and when the last one leaves a transaction block open.
 */
extern List *sweep_job_statement_parse_all(const char *source);

/* Where a statement begins, in bytes. */
extern int	sweep_job_statement_start(const char *source, const RawStmt *statement);

/* Parses a text of a job; false unless it is one statement. Raises with the place in that text. */
extern bool sweep_job_statement_parse(const char *source, RawStmt **raw);

/* Parses a text in which a part, from an offset on, is of a user. Raises with the place in that part. */
extern List *sweep_job_statement_parse_part(const char *text, RawParseMode mode, const char *part, int offset);

/* Whether a statement that was only parsed has parameters: a tree walker, whose context is NULL. */
extern bool sweep_job_statement_has_parameter(Node *node, void *context);

/* Enters work as that role, with these settings (texts), in a security-restricted operation; sweep_door_leave() ends it. */
extern void sweep_job_statement_enter(SweepDoor *door, Oid role, Jsonb *settings);

/* Analyses the statement as in a run of that role. Its first parameter is the batch size, if it has that, the next one the batch. */
extern Query *sweep_job_statement_analyse(Oid role, const char *source, Jsonb *settings, RawStmt *raw, bool has_size);

#endif							/* SWEEP_JOB_STATEMENT_H */
