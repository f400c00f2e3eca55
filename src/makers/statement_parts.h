/*
 * statement_parts.h
 *		The parts of a DELETE or UPDATE.
 */
#ifndef SWEEP_STATEMENT_PARTS_H
#define SWEEP_STATEMENT_PARTS_H

#include "nodes/parsenodes.h"

/* NULL = the statement has no such part. In all parts except "written", the time of the statement, such as now(), may be replaced by $3. */
typedef struct SweepStatementTexts
{
	const char *written;		/* the whole statement */
	const char *set;			/* after SET */
	const char *source;			/* after FROM or USING */
	const char *own;			/* the conditions of WHERE that use only the row that is changed */
	const char *others;			/* the other conditions of WHERE */
} SweepStatementTexts;

/* Writes the parts of an analysed query; "freezes": with now() and the like as a parameter. Raises an error for a clause that it does not know. */
extern void sweep_statement_write(Query *analysed, bool freezes, SweepStatementTexts *texts);

/* Whether it follows from the statement alone that no row meets its condition after the update. */
extern bool sweep_statement_falsifies(const Query *query);

#endif							/* SWEEP_STATEMENT_PARTS_H */
