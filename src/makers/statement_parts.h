/*
 * statement_parts.h
 *		The parts of a DELETE or UPDATE.
 */
#ifndef SWEEP_STATEMENT_PARTS_H
#define SWEEP_STATEMENT_PARTS_H

#include "nodes/parsenodes.h"

/* NULL = the statement has none. In all but the first, the moment of the statement, such as now(), may be $3. */
typedef struct SweepStatementTexts
{
	const char *written;		/* the whole statement */
	const char *set;			/* behind SET */
	const char *source;			/* behind FROM or USING */
	const char *own;			/* behind WHERE, as far as it is about the row that is changed alone */
	const char *others;			/* the rest of it */
} SweepStatementTexts;

/* Writes an analysed query, with the moment as a parameter or as it is. Raises for a clause that it does not know. */
extern void sweep_statement_write(Query *analysed, bool freezes, SweepStatementTexts *texts);

/* Whether no row meets the condition after the update, as far as that follows from the statement alone. */
extern bool sweep_statement_falsifies(const Query *query);

#endif							/* SWEEP_STATEMENT_PARTS_H */
