/*
 * turns.h
 *		Turns: the role of which a run is started next.
 */
#ifndef SWEEP_TURNS_H
#define SWEEP_TURNS_H

#include "postgres.h"
#include "nodes/pg_list.h"

/* The place of a run among those that may start. */
typedef struct SweepTurn
{
	int			priority;		/* of the job */
	int			nth;			/* of the runs of its role, from 0 */
	Oid			role;
} SweepTurn;

/* Before a list is read. */
extern void sweep_turns_begin(void);

/*
 * Whether the run was started before that: if its process had not begun it, it is listed as waiting. It must not count as
 * the next one of its role, nor be started again should it have ended meanwhile.
 */
extern bool sweep_turns_has_started(int64 run_id);

/* The place of the next run of the list, which is in the order in which they are due, those of higher priority first. */
extern SweepTurn sweep_turns_next(Oid role, int priority);

/* Sorts a list of structures that have their places at this offset; last_role: whose run was started last. */
extern void sweep_turns_sort(List *list, Size offset, Oid last_role);

#endif							/* SWEEP_TURNS_H */
