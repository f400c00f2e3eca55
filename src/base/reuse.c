/*
 * reuse.c
 *		One worker for several runs of a role.
 *
 * A process of its own for each run costs more than most runs: it is forked, connects, reads the catalog and plans the
 * statements of the engine. While there are more runs than may be in progress, a worker whose run has succeeded
 * therefore stays for a moment, connected as the same role to the same database, and its slot is idle. Called by
 * runner.c, and by the scheduler in it.
 *
 * Who wakes whom: the worker wakes the scheduler when it gives the slot back, as any run that ends does. The scheduler
 * claims the slot for another run, writes what that needs, hands it over and wakes the worker. A worker that has waited
 * long enough, or is terminated, looks under the lock whether it was claimed: then it takes the run, or leaves it to
 * another process. It cannot free the slot itself, which the scheduler may be writing to. A scheduler that ends between
 * claim and hand-over leaves a slot that the next one gives up when it is old (pool.c), and the worker sees that it is no
 * longer its own.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/lwlock.h"
#include "storage/proc.h"

#include "base/reuse.h"

bool
sweep_reuse_is_wanted(void)
{
	const SweepShared *shared = sweep_shared();
	bool		wanted = false;

	sweep_shared_lock(LW_SHARED);
	for (int i = 0; i < SWEEP_MAX_DATABASES && !wanted; i++)
	{
		const SweepDatabase *entry = &shared->databases[i];

		wanted = entry->state == DATABASE_RUNNING && entry->database == MyDatabaseId && entry->crowded && !entry->leave;
	}
	sweep_shared_unlock();
	return wanted;
}

void
sweep_reuse_hand_over(SweepSlot *slot)
{
	ProcNumber	procno;

	sweep_shared_lock(LW_EXCLUSIVE);
	slot->handed_over = true;
	procno = slot->procno;
	sweep_shared_unlock();
	sweep_shared_wake(procno);
}

void
sweep_reuse_dismiss(void)
{
	SweepShared *shared = sweep_shared();
	ProcNumber	procno = INVALID_PROC_NUMBER;

	sweep_shared_lock(LW_EXCLUSIVE);
	for (int i = 0; i < shared->slot_count && procno == INVALID_PROC_NUMBER; i++)
	{
		SweepSlot  *slot = &shared->slots[i];

		if (slot->state != SLOT_IDLE)
			continue;
		/* It sees that the slot is no longer its own. */
		slot->state = SLOT_FREE;
		procno = slot->procno;
	}
	sweep_shared_unlock();
	sweep_shared_wake(procno);
}

SweepReuse
sweep_reuse_look(SweepSlot *slot, bool time_over)
{
	SweepReuse	result = REUSE_LEAVE;

	sweep_shared_lock(LW_EXCLUSIVE);
	if (slot->procno == MyProcNumber && slot->state == SLOT_STARTING)
	{
		result = slot->handed_over ? REUSE_TAKEN : REUSE_NOT_YET;
		if (result == REUSE_TAKEN)
		{
			slot->state = SLOT_RUNNING;
			slot->pid = MyProcPid;
		}
	}
	else if (slot->procno == MyProcNumber && slot->state == SLOT_IDLE)
	{
		result = time_over ? REUSE_LEAVE : REUSE_NOT_YET;
		if (time_over)
			slot->state = SLOT_FREE;
	}
	sweep_shared_unlock();
	return result;
}

void
sweep_reuse_give_up(SweepSlot *slot)
{
	bool		claimed;

	sweep_shared_lock(LW_EXCLUSIVE);
	claimed = slot->procno == MyProcNumber && (slot->state == SLOT_STARTING || slot->state == SLOT_RUNNING);
	if (slot->procno == MyProcNumber && slot->state == SLOT_IDLE)
		slot->state = SLOT_FREE;
	if (claimed)
		slot->waits_on = true;
	sweep_shared_unlock();
	if (claimed)
		sweep_shared_release(slot, false, false);
}
