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
#include "queue/hold.h"

static void hold_again(SweepHold *hold);

void
sweep_hold_drop_all(SweepQueueSlot *slot, bool ending)
{
	int			next_lease;
	int			next;

	for (int lease = slot->lease_first; lease >= 0; lease = next_lease)
	{
		next_lease = sweep_queue_leases()[lease].next;
		for (int number = sweep_queue_leases()[lease].hold_first; number >= 0; number = next)
		{
			const SweepHold *hold = &sweep_queue_holds()[number];

			next = hold->next;
			/* What a transaction is ending, it also forgets. */
			if (ending || (hold->state != HOLD_ENDING && hold->state != HOLD_PREPARED))
				sweep_hold_free(number);
		}
	}
	/* The end of one that is blocked may return another one. */
	while (slot->blocked_first >= 0)
		sweep_hold_free(slot->blocked_first);
	while (slot->returned_first >= 0)
		sweep_hold_free(slot->returned_first);
}

void
sweep_hold_note_purged(const SweepQueueSlot *slot, int16 lane, int64 message_id, TransactionId xid)
{
	int			number = sweep_hold_find(slot, lane, message_id);

	if (number >= 0)
		sweep_queue_holds()[number].purged_by = xid;
}

void
sweep_hold_drop_purged(SweepQueueSlot *slot, TransactionId xid, bool committed)
{
	int			number = sweep_queue_slot_number(slot);

	if (slot->lease_first < 0 && slot->returned_first < 0 && slot->blocked_first < 0)
		return;
	for (int i = 0; i < sweep_max_leases; i++)
	{
		SweepHold  *hold = &sweep_queue_holds()[i];

		if (hold->state == HOLD_FREE || hold->slot != number || hold->purged_by != xid)
			continue;
		if (!committed)
			hold->purged_by = InvalidTransactionId;
		else if (hold->state != HOLD_ENDING && hold->state != HOLD_PREPARED)
			sweep_hold_free(i);
	}
}

void
sweep_hold_settle_ending(int number, bool committed)
{
	SweepHold  *hold = &sweep_queue_holds()[number];

	if (hold->state != HOLD_ENDING || hold->pid != MyProcPid)
		return;
	if (committed)
		sweep_hold_free(number);
	else
		hold_again(hold);
}

/* Its lease may have run out, and been stepped over for that, while the message was being ended. */
static void
hold_again(SweepHold *hold)
{
	hold->state = HOLD_HELD;
	sweep_queue_note_expiry(sweep_queue_slot(hold->slot), sweep_queue_leases()[hold->lease].expires_at);
}

void
sweep_hold_settle_prepared(SweepQueueSlot *slot, TransactionId xid, bool committed)
{
	int			next_lease;
	int			next;

	for (int lease = slot->lease_first; lease >= 0; lease = next_lease)
	{
		next_lease = sweep_queue_leases()[lease].next;
		for (int number = sweep_queue_leases()[lease].hold_first; number >= 0; number = next)
		{
			SweepHold  *hold = &sweep_queue_holds()[number];

			next = hold->next;
			if (hold->state != HOLD_PREPARED || hold->xid != xid)
				continue;
			if (committed)
				sweep_hold_free(number);
			else
				hold_again(hold);
		}
	}
}
