/*
 * turns.c
 *		Turns: the role of which a run is started next.
 *
 * Called by scheduler.c. Where fewer processes are free than runs are due, a role with a long backlog of old
 * runs would start all of them before those of any other role. Among runs of one priority, roles therefore take turns: first
 * the first run of each, in the order of their numbers, beginning behind the role whose run was started last, then the second
 * ones. That role is all that the next scheduler of the database has to know. Runs of one role keep their order.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "base/known.h"
#include "base/shared.h"
#include "process/turns.h"

typedef struct Role
{
	Oid			role;
	int			seen;			/* in the list */
} Role;

StaticAssertDecl(offsetof(Role, role) == 0, "it is found by its first field");

static List *roles = NIL;		/* of Role, as long as the process lives */
static int64 *started = NULL;	/* runs that had a slot before the list was read */
static int	started_count = 0;
static Size turn_offset = 0;		/* of the list that is being sorted */
static Oid	behind = InvalidOid;

static void note_started(void);
static int	compare(const ListCell *first, const ListCell *second);

void
sweep_turns_begin(void)
{
	ListCell   *cell;

	foreach(cell, roles)
		((Role *) lfirst(cell))->seen = 0;
	note_started();
}

static void
note_started(void)
{
	SweepShared *shared = sweep_shared();

	if (started == NULL)
		started = MemoryContextAlloc(TopMemoryContext, sizeof(*started) * shared->slot_count);
	started_count = 0;
	sweep_shared_lock(LW_SHARED);
	for (int i = 0; i < shared->slot_count; i++)
	{
		SweepSlot  *slot = &shared->slots[i];

		if (sweep_shared_has_run(slot))
			started[started_count++] = slot->run_id;
	}
	sweep_shared_unlock();
}

bool
sweep_turns_has_started(int64 run_id)
{
	for (int i = 0; i < started_count; i++)
	{
		if (started[i] == run_id)
			return true;
	}
	return false;
}

SweepTurn
sweep_turns_next(Oid role, int priority)
{
	Role	   *found = sweep_known_find(&roles, role, sizeof(Role), TopMemoryContext);

	return (SweepTurn) {.priority = priority, .nth = found->seen++, .role = role};
}

void
sweep_turns_sort(List *list, Size offset, Oid last_role)
{
	turn_offset = offset;
	behind = last_role;
	list_sort(list, compare);
}

static int
compare(const ListCell *first, const ListCell *second)
{
	const SweepTurn *a = (const SweepTurn *) ((const char *) lfirst(first) + turn_offset);
	const SweepTurn *b = (const SweepTurn *) ((const char *) lfirst(second) + turn_offset);

	if (a->priority != b->priority)
		return a->priority > b->priority ? -1 : 1;
	if (a->nth != b->nth)
		return a->nth < b->nth ? -1 : 1;
	if ((a->role > behind) != (b->role > behind))
		return a->role > behind ? -1 : 1;
	return a->role < b->role ? -1 : 1;
}
