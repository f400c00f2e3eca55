/*
 * known.c
 *		Lists of what a process knows of databases, roles, consumers or queues, by their number.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "process/known.h"

void *
sweep_known_find(List **list, uint32 number, Size size)
{
	ListCell   *cell;
	MemoryContext old;
	uint32	   *added;

	foreach(cell, *list)
	{
		if (*(uint32 *) lfirst(cell) == number)
			return lfirst(cell);
	}
	old = MemoryContextSwitchTo(TopMemoryContext);
	added = palloc0(size);
	*added = number;
	*list = lappend(*list, added);
	MemoryContextSwitchTo(old);
	return added;
}
