/*
 * known.c
 *		Lists of what is known of databases, roles, consumers, queues or tables, by their number.
 */
#include "postgres.h"

#include "base/known.h"

void *
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
