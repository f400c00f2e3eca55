/*
 * known.h
 *		Lists of known databases, roles, consumers, queues or tables, by their number.
 */
#ifndef SWEEP_KNOWN_H
#define SWEEP_KNOWN_H

#include "nodes/pg_list.h"

/*
 * The member of the list with this number, which is its first field, of four bytes. If there is none, a member filled with zeroes is added.
 * Members and list live in the given context; the caller may remove a member from the list and free it.
 */
static inline void *
sweep_known_find(List **list, uint32 number, Size size, MemoryContext context)
{
	ListCell   *cell;
	MemoryContext old;
	uint32	   *added;

	foreach(cell, *list)
	{
		if (*(uint32 *) lfirst(cell) == number)
			return lfirst(cell);
	}
	old = MemoryContextSwitchTo(context);
	added = palloc0(size);
	*added = number;
	*list = lappend(*list, added);
	MemoryContextSwitchTo(old);
	return added;
}

#endif							/* SWEEP_KNOWN_H */
