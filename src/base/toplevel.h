/*
 * toplevel.h
 *		One statement at top level, as a session executes what its client sends.
 */
#ifndef SWEEP_TOPLEVEL_H
#define SWEEP_TOPLEVEL_H

#include "nodes/parsenodes.h"
#include "tcop/cmdtag.h"

/* Before the statement: begins a transaction, unless the statement belongs to a block. */
extern void sweep_toplevel_begin(void);

/*
 * Executes it, as the current user. What it returns is thrown away row by row; what came of it is in the completion.
 * The source is the text that the statement was parsed from; it, the statement and the current memory context must outlive
 * all transactions that the statement begins. Raises what the statement raises.
 */
extern void sweep_toplevel_execute(const char *source, RawStmt *statement, QueryCompletion *completion);

/* After it: commits, unless the statement has left a block open, or ends the block as the statement has said. */
extern void sweep_toplevel_end(void);

/* What a client would be told, "INSERT 0 5", in the current memory context; and the number in it, 0 if there is none. */
extern char *sweep_toplevel_tag(const QueryCompletion *completion);
extern int64 sweep_toplevel_rows(const QueryCompletion *completion);

#endif							/* SWEEP_TOPLEVEL_H */
