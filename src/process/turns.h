/*
 * turns.h
 *		Whose run is started next.
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
	uint64		served;			/* when a run of that role was started last; 0 = not yet */
	int			number;			/* in the order in which they are due */
} SweepTurn;

/* Before the first one of a list. */
extern void sweep_turns_begin(void);

/* The place of the next run of the list, which is in the order in which they are due, those of higher priority first. */
extern SweepTurn sweep_turns_next(Oid role, int priority);

/* Sorts a list of structures that have their places at this offset. */
extern void sweep_turns_sort(List *list, Size offset);

/* A run of the role was started. */
extern void sweep_turns_note(Oid role);

#endif							/* SWEEP_TURNS_H */
