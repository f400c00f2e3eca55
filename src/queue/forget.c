/*
 * forget.c
 *		Holds of messages that are gone: with their queue, by a purge, by a transaction that has ended.
 *
 * Called by the end of the transaction that has removed them, or by whoever finds that a prepared one has
 * ended. It walks along the lists of the queue concerned; only after a purge, which is rare and may have
 * taken something from each of them, over everything that is claimed.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "base/settings.h"
#include "queue/in_flight.h"

static void lease_again(SweepInFlight *entry);

void
sweep_in_flight_remove_all(SweepQueueSlot *slot, bool ending)
{
	int			next_lease;
	int			next;

	for (int lease = slot->lease_first; lease >= 0; lease = next_lease)
	{
		next_lease = sweep_in_flight_leases()[lease].next;
		for (int number = sweep_in_flight_leases()[lease].first; number >= 0; number = next)
		{
			const SweepInFlight *entry = &sweep_in_flight_entries()[number];

			next = entry->next;
			/* What a transaction is ending, it also forgets. */
			if (ending || (entry->state != IN_FLIGHT_ENDING && entry->state != IN_FLIGHT_PREPARED))
				sweep_in_flight_remove(number);
		}
	}
	/* The end of one that is blocked may return another one. */
	while (slot->blocked_first >= 0)
		sweep_in_flight_remove(slot->blocked_first);
	while (slot->returned_first >= 0)
		sweep_in_flight_remove(slot->returned_first);
}

void
sweep_in_flight_note_purged(const SweepQueueSlot *slot, int16 lane, int64 message_id, TransactionId xid)
{
	int			number = sweep_in_flight_find(slot, lane, message_id);

	if (number >= 0)
		sweep_in_flight_entries()[number].purged_by = xid;
}

void
sweep_in_flight_settle_purged(SweepQueueSlot *slot, TransactionId xid, bool committed)
{
	int			number = sweep_queue_slot_number(slot);

	if (slot->lease_first < 0 && slot->returned_first < 0 && slot->blocked_first < 0)
		return;
	for (int i = 0; i < sweep_max_leases; i++)
	{
		SweepInFlight  *entry = &sweep_in_flight_entries()[i];

		if (entry->state == IN_FLIGHT_FREE || entry->slot != number || entry->purged_by != xid)
			continue;
		if (!committed)
			entry->purged_by = InvalidTransactionId;
		else if (entry->state != IN_FLIGHT_ENDING && entry->state != IN_FLIGHT_PREPARED)
			sweep_in_flight_remove(i);
	}
}

void
sweep_in_flight_settle_ending(int number, bool committed)
{
	SweepInFlight  *entry = &sweep_in_flight_entries()[number];

	if (entry->state != IN_FLIGHT_ENDING || entry->pid != MyProcPid)
		return;
	if (committed)
		sweep_in_flight_remove(number);
	else
		lease_again(entry);
}

/* Its lease may have run out, and been stepped over for that, while the message was being ended. */
static void
lease_again(SweepInFlight *entry)
{
	entry->state = IN_FLIGHT_LEASED;
	sweep_queue_note_expiry(sweep_queue_slot(entry->slot), sweep_in_flight_leases()[entry->lease].expires_at);
}

void
sweep_in_flight_settle_prepared(SweepQueueSlot *slot, TransactionId xid, bool committed)
{
	int			next_lease;
	int			next;

	for (int lease = slot->lease_first; lease >= 0; lease = next_lease)
	{
		next_lease = sweep_in_flight_leases()[lease].next;
		for (int number = sweep_in_flight_leases()[lease].first; number >= 0; number = next)
		{
			SweepInFlight  *entry = &sweep_in_flight_entries()[number];

			next = entry->next;
			if (entry->state != IN_FLIGHT_PREPARED || entry->xid != xid)
				continue;
			if (committed)
				sweep_in_flight_remove(number);
			else
				lease_again(entry);
		}
	}
}
