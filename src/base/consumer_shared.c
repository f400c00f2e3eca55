/*
 * consumer_shared.c
 *		The slots of consumers in shared memory.
 *
 * Called by the scheduler, which claims a slot for each process of a consumer, and by the process, which writes its counters once per
 * transaction, under the spinlock of the slot. The functions that a run and a consumer have in common are in shared.c.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"

#include "base/consumer_shared.h"
#include "base/settings.h"

static void dismiss(Oid database, int32 consumer_id, int surplus);

/* Whether the slot has a process that was not asked to leave. */
static bool
is_wanted(SweepSlot *slot)
{
	return slot->consumer_id != 0 && slot->state != SLOT_FREE && pg_atomic_read_u32(&slot->stop_request) == 0;
}

int
sweep_consumer_shared_processes(int32 consumer_id)
{
	int			count = 0;

	sweep_shared_lock(LW_SHARED);
	for (int i = 0; i < sweep_shared()->slot_count; i++)
	{
		SweepSlot  *slot = &sweep_shared()->slots[i];

		count += is_wanted(slot) && slot->database == MyDatabaseId && slot->consumer_id == consumer_id;
	}
	sweep_shared_unlock();
	return count;
}

bool
sweep_consumer_shared_ask_to_leave(SweepSlot *slot)
{
	if (pg_atomic_exchange_u32(&slot->stop_request, SWEEP_STOP_REQUEST_CANCEL) != 0)
		return false;
	sweep_shared_wake(slot->procno);
	return true;
}

void
sweep_consumer_shared_dismiss(Oid database, int32 consumer_id, int surplus)
{
	sweep_shared_lock(LW_SHARED);
	dismiss(database, consumer_id, surplus);
	sweep_shared_unlock();
}

/* The caller has the lock. */
static void
dismiss(Oid database, int32 consumer_id, int surplus)
{
	for (int i = 0; i < sweep_shared()->slot_count && surplus > 0; i++)
	{
		SweepSlot  *slot = &sweep_shared()->slots[i];

		if (is_wanted(slot) && slot->database == database && (consumer_id < 0 || slot->consumer_id == consumer_id))
			surplus -= sweep_consumer_shared_ask_to_leave(slot);
	}
}

/* A process that was asked to leave already does not count. */
void
sweep_consumer_shared_dismiss_excess(Oid database)
{
	int			excess = -sweep_max_consumers;

	sweep_shared_lock(LW_EXCLUSIVE);
	for (int i = 0; i < sweep_shared()->slot_count; i++)
		excess += is_wanted(&sweep_shared()->slots[i]);
	dismiss(database, -1, excess);
	sweep_shared_unlock();
}

bool
sweep_consumer_shared_any(Oid database, bool starting)
{
	bool		any = false;

	sweep_shared_lock(LW_SHARED);
	for (int i = 0; i < sweep_shared()->slot_count; i++)
	{
		const SweepSlot *slot = &sweep_shared()->slots[i];

		any |= slot->consumer_id != 0 && slot->database == database && (starting ? slot->state == SLOT_STARTING : slot->state != SLOT_FREE);
	}
	sweep_shared_unlock();
	return any;
}

void
sweep_consumer_shared_note(SweepSlot *slot, int64 messages, const char *error)
{
	int			length = error == NULL ? 0 : pg_mbcliplen(error, strlen(error), SWEEP_CONSUMER_ERROR_SIZE - 1);

	SpinLockAcquire(&slot->mutex);
	if (error == NULL)
		slot->handled += messages;
	else
	{
		slot->failed += messages;
		memcpy(slot->last_error, error, length);
		slot->last_error[length] = '\0';
	}
	SpinLockRelease(&slot->mutex);
}
