/*
 * watchdog.c
 *		Runs that are past their timeout.
 *
 * Called by launcher.c, each time before it sleeps. A run normally stops itself when its timeout has passed. If it
 * does not, it is asked again each second, and at last its process is terminated, but never killed.
 */
#include "postgres.h"

#include <signal.h>

#include "base/clock.h"
#include "base/shared.h"
#include "process/watchdog.h"

/* Time between two requests to a run that is past its timeout, and requests after which its process is terminated. */
#define WATCHDOG_STEP_MS 1000
#define WATCHDOG_PATIENCE 5

static bool awaits_standby(SweepSlot *slot);

void
sweep_watchdog_look(long *wait_ms)
{
	SweepShared *shared = sweep_shared();
	int64		now_us = sweep_monotonic_us();

	sweep_shared_lock(LW_SHARED);
	for (int i = 0; i < shared->slot_count; i++)
	{
		SweepSlot  *slot = &shared->slots[i];
		int64		deadline_us = (int64) pg_atomic_read_u64(&slot->timeout_deadline_us);

		if (slot->state != SLOT_RUNNING || deadline_us == 0)
			continue;
		deadline_us += (int64) slot->reminders * WATCHDOG_STEP_MS * 1000;
		/* Ending the wait for a standby would not undo the commit. */
		if (now_us >= deadline_us && awaits_standby(slot))
			deadline_us = now_us + WATCHDOG_STEP_MS * 1000;
		else if (now_us >= deadline_us && slot->pid != 0)
		{
			slot->reminders++;
			pg_atomic_fetch_or_u32(&slot->stop_request, SWEEP_STOP_REQUEST_TIMEOUT);
			kill(slot->pid, slot->worker && slot->reminders > WATCHDOG_PATIENCE ? SIGTERM : SIGINT);
			deadline_us = now_us + WATCHDOG_STEP_MS * 1000;
		}
		*wait_ms = Min(*wait_ms, (long) ((deadline_us - now_us) / 1000 + 1));
	}
	sweep_shared_unlock();
}

static bool
awaits_standby(SweepSlot *slot)
{
	SweepPhase	phase;

	SpinLockAcquire(&slot->mutex);
	phase = slot->live.phase;
	SpinLockRelease(&slot->mutex);
	return phase == PHASE_STANDBY;
}
