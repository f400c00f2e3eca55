/*
 * compat_query.h
 *		Differences between server versions, see compat.h: portals, the time and plan of a query, copies of its nodes, columns of its tables.
 */
#ifndef SWEEP_COMPAT_QUERY_H
#define SWEEP_COMPAT_QUERY_H

#include "access/table.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "tcop/pquery.h"
#include "utils/rel.h"

/* Runs a portal once, to its end. 18: no longer has an argument for that. */
#if PG_VERSION_NUM >= 180000
#define sweep_portal_run_once(portal, receiver, completion) \
	((void) PortalRun((portal), FETCH_ALL, true, (receiver), (receiver), (completion)))
#else
#define sweep_portal_run_once(portal, receiver, completion) \
	((void) PortalRun((portal), FETCH_ALL, true, true, (receiver), (receiver), (completion)))
#endif

/* 18: the state of EXPLAIN has headers of its own. */
#if PG_VERSION_NUM >= 180000
#include "commands/explain_format.h"
#include "commands/explain_state.h"
#endif

/* 19: copyObject() uses a word of C23, which gcc knows in C11 by this name. */
#if PG_VERSION_NUM >= 190000 && !defined(typeof_unqual)
#define typeof_unqual __typeof_unqual__
#endif

/* 19: the start of an execution makes the timer of a query on request; before, the caller makes it. */
static inline void
sweep_start_timed_query(ExecutorStart_hook_type start, QueryDesc *query, int flags)
{
#if PG_VERSION_NUM >= 190000
	query->query_instr_options |= INSTRUMENT_TIMER;
	start(query, flags);
#else
	start(query, flags);
	if (query->totaltime == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(query->estate->es_query_cxt);

		query->totaltime = InstrAlloc(1, INSTRUMENT_TIMER, false);
		MemoryContextSwitchTo(old);
	}
#endif
}

static inline bool
sweep_query_is_timed(const QueryDesc *query)
{
#if PG_VERSION_NUM >= 190000
	return query->query_instr != NULL;
#else
	return query->totaltime != NULL;
#endif
}

/* Duration of a timed query, called at its end. */
static inline double
sweep_query_ms(QueryDesc *query)
{
#if PG_VERSION_NUM >= 190000
	return INSTR_TIME_GET_MILLISEC(query->query_instr->total);
#else
	InstrEndLoop(query->totaltime);
	return query->totaltime->total * 1000.0;
#endif
}

/* 19: the planner takes the state of EXPLAIN. */
#if PG_VERSION_NUM >= 190000
#define sweep_plan_query(query, source) pg_plan_query((query), (source), 0, NULL, NULL)
#else
#define sweep_plan_query(query, source) pg_plan_query((query), (source), 0, NULL)
#endif

/* Whether no row has a null in this column; the table is locked. 18: NOT NULL may be NOT VALID, and older rows may have nulls. */
static inline bool
sweep_column_never_null(Oid table, AttrNumber number)
{
	Relation	relation = table_open(table, NoLock);
#if PG_VERSION_NUM >= 180000
	bool		is_never = TupleDescCompactAttr(RelationGetDescr(relation), number - 1)->attnullability == ATTNULLABLE_VALID;
#else
	bool		is_never = TupleDescAttr(RelationGetDescr(relation), number - 1)->attnotnull;
#endif

	table_close(relation, NoLock);
	return is_never;
}

#endif							/* SWEEP_COMPAT_QUERY_H */
