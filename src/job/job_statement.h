/*
 * job_statement.h
 *		Parses, checks and analyses the statements of a job.
 */
#ifndef SWEEP_JOB_STATEMENT_H
#define SWEEP_JOB_STATEMENT_H

#include "nodes/parsenodes.h"
#include "parser/parser.h"
#include "utils/jsonb.h"

#include "base/door.h"

/*
 * The statements (RawStmt) of the sql of a job, in the current memory context. Raises an error when one cannot be parsed or needs
 * a client, when there is none, or when the last one leaves a transaction block open.
 */
extern List *sweep_job_statement_parse_all(const char *source);

/* Where a statement begins, in bytes. */
extern int	sweep_job_statement_start(const char *source, const RawStmt *statement);

/* Parses a text of a job; false unless it is one statement. The position of an error is that in the text. */
extern bool sweep_job_statement_parse(const char *source, RawStmt **raw);

/* Parses a text in which a part, from an offset on, was written by a user. The position of an error is that in the part. */
extern List *sweep_job_statement_parse_part(const char *text, RawParseMode mode, const char *part, int offset);

/* Whether a raw parse tree has parameters: a tree walker, whose context is NULL. */
extern bool sweep_job_statement_has_parameter(Node *node, void *context);

/* Begins work as that role, with these settings (texts), in a security-restricted operation; sweep_door_leave() ends it. */
extern void sweep_job_statement_enter(SweepDoor *door, Oid role, Jsonb *settings);

/* Analyses the statement as in a run of that role. With has_size its first parameter is the batch size; the next one is the batch. */
extern Query *sweep_job_statement_analyse(Oid role, const char *source, Jsonb *settings, RawStmt *raw, bool has_size);

#endif							/* SWEEP_JOB_STATEMENT_H */
