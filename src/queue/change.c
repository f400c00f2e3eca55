/*
 * change.c
 *		The changes that transactions make to queues.
 *
 * A change counts messages that were sent, ended or deleted. It is applied at the end of the transaction (transaction.c),
 * or when a process finds that a prepared one has ended (prepared.c): it moves the positions of searches, keeps the
 * counters, and wakes processes that wait. After a statement that is not the extension's own, all queues of the
 * database are searched from their start.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "utils/timestamp.h"

#include "base/ask.h"
#include "base/clock.h"
#include "base/shared.h"
#include "queue/change.h"
#include "queue/in_flight.h"
#include "queue/slot_pool.h"

void
sweep_change_add_sent(SweepQueueChange *change, int16 lane, int64 message_id, TimestampTz due_at)
{
	uint32		number = SWEEP_LANE_INDEX(lane);
	uint32		bit = (uint32) 1 << number;

	change->sent++;
	change->rows[SWEEP_LANE_IS_DELAYED(lane)]++;
	if (SWEEP_LANE_IS_DELAYED(lane))
		change->first_due = Min(change->first_due, due_at);
	else if ((change->lanes & bit) == 0 || message_id < change->low[number])
	{
		change->lanes |= bit;
		change->low[number] = message_id;
	}
}

void
sweep_change_add(SweepQueueChange *to, const SweepQueueChange *from)
{
	for (int i = 0; i < SWEEP_LANES; i++)
	{
		if ((from->lanes & (1 << i)) == 0)
			continue;
		to->low[i] = (to->lanes & (1 << i)) ? Min(to->low[i], from->low[i]) : from->low[i];
		to->lanes |= 1 << i;
	}
	to->first_due = Min(to->first_due, from->first_due);
	for (int i = 0; i < 2; i++)
		to->rows[i] += from->rows[i];
	to->dead += from->dead;
	to->sent += from->sent;
	to->acked += from->acked;
	to->reset |= from->reset;
	to->reset_if_undone |= from->reset_if_undone;
	to->purged |= from->purged;
	to->emptied |= from->emptied;
	to->dropped |= from->dropped;
}

/* Forgets a queue that is gone; processes that wait for its messages find that out when they look. */
static void
drop_slot(SweepQueueSlot *slot)
{
	if (!sweep_in_flight_remove_all(slot))
		return;
	sweep_queue_wake(slot, slot->waiters);
	if (slot->lease_count == 0)
		sweep_queue_free_slot(slot);
}

/* Applies it to all queues of a database: a statement that is not the extension's own has written to the table, or the table was dropped. */
static void
apply_to_all(Oid database, const SweepQueueChange *change)
{
	int			looked_at = 0;

	for (int i = 0; i < sweep_max_queues; i++)
	{
		SweepQueueSlot *slot = sweep_queue_slot(i);

		if (slot->generation != 0 && slot->database == database && change->dropped)
		{
			if (!OidIsValid(change->relation) || slot->relation == change->relation)
				drop_slot(slot);
		}
		else if (slot->generation != 0 && slot->database == database && (!change->emptied || sweep_in_flight_remove_all(slot)))
		{
			sweep_queue_reset_slot(slot);
			sweep_queue_wake(slot, slot->waiters);
		}
		(void) sweep_queue_lend_lock_after(SWEEP_QUEUE_SLOTS_PIECE, &looked_at);
	}
	sweep_queue_spoil_counts(database);
}

/* Puts what is prefetched and not claimed back behind the positions. */
static void
flush_prefetched(SweepQueueSlot *slot)
{
	for (int i = 0; i < slot->prefetched_count; i++)
	{
		const SweepMessageRef *message = &slot->prefetched[slot->prefetched_first + i];

		if (SWEEP_LANE_IS_DELAYED(message->lane))
			sweep_queue_note_due(slot, message->due_at);
		else
			sweep_queue_lower_position(slot, SWEEP_LANE_INDEX(message->lane), message->message_id);
	}
	slot->prefetched_count = 0;
}

/* Makes the messages that were sent, failed or redriven known to searches. */
static void
apply_positions(SweepQueueSlot *slot, const SweepQueueChange *change)
{
	int			last_lane = 0;

	if (change->reset)
		sweep_queue_reset_slot(slot);
	/* Prefetched messages are in the order of priorities: a message that comes before some of them is searched before them. */
	if (slot->prefetched_count > 0)
		last_lane = SWEEP_LANE_INDEX(slot->prefetched[slot->prefetched_first + slot->prefetched_count - 1].lane);
	if (change->lanes & ((1 << last_lane) - 1))
		flush_prefetched(slot);
	for (uint32 lanes = change->lanes; lanes != 0; lanes &= lanes - 1)
	{
		int			lane = pg_rightmost_one_pos32(lanes);

		sweep_queue_lower_position(slot, lane, change->low[lane]);
	}
	sweep_queue_note_due(slot, change->first_due);
}

void
sweep_change_apply(const SweepQueueChange *change, FullTransactionId xid, TimestampTz now)
{
	SweepQueueSlot *slot;
	const SweepQueueDatabase *counters;
	int64		arrived = change->sent;

	if (change->queue_id == 0)
	{
		apply_to_all(MyDatabaseId, change);
		return;
	}
	if (change->dropped)
	{
		slot = sweep_queue_find_slot(change->relation, change->queue_id);
		if (slot != NULL)
			drop_slot(slot);
		return;
	}
	slot = sweep_queue_get_slot(change->relation, change->queue_id);
	if (slot == NULL)
	{
		/* Without a slot there are no counters: the rows are counted when sweep.queues is read. */
		sweep_queue_spoil_counts(MyDatabaseId);
		return;
	}
	apply_positions(slot, change);
	counters = sweep_queue_counts(change->relation, xid);
	if (counters != NULL)
		sweep_queue_add_rows(slot, counters, change->rows, change->dead);
	slot->used_us = sweep_monotonic_us();
	sweep_queue_add_to_rate(&slot->sent, change->sent, slot->used_us);
	sweep_queue_add_to_rate(&slot->acked, change->acked, slot->used_us);
	/* A message that has failed or was dead, and is to be delivered at once, arrives as well. */
	if (change->first_due <= now)
		arrived = Max(arrived, change->rows[1]);
	if (arrived > 0 && slot->news == NEWS_NONE)
		sweep_ask_to_notify(slot->database);
	if (arrived > 0 && slot->news != NEWS_UNWANTED)
		slot->news = NEWS_PENDING;
	sweep_queue_wake(slot, arrived);
}

void
sweep_change_undo(const SweepQueueChange *change)
{
	SweepQueueChange again = {
		.relation = change->relation, .queue_id = change->queue_id, .first_due = SWEEP_NOTHING_DUE, .reset = true
	};

	if (change->reset || change->reset_if_undone)
		sweep_change_apply(&again, InvalidFullTransactionId, GetCurrentTimestamp());
}

void
sweep_change_forget_database(Oid database)
{
	apply_to_all(database, &(SweepQueueChange) {.dropped = true});
	for (int i = 0; i < SWEEP_COUNTED_DATABASES; i++)
		if (sweep_queue_memory.shared->databases[i].database == database)
			sweep_queue_memory.shared->databases[i].database = InvalidOid;
}
