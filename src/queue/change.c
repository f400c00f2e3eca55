/*
 * change.c
 *		What transactions have done to queues.
 *
 * A change tells of messages that were sent, ended or deleted; it is applied at the end of the transaction
 * (transaction.c), or when somebody finds that a prepared one has ended (prepared.c). It moves the positions of
 * searches, keeps the counters, and wakes those who wait. What nobody tells of in detail, a statement that is not ours,
 * has all queues of the database looked at from their start.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/consumer_shared.h"
#include "queue/change.h"
#include "queue/in_flight.h"
#include "queue/slot_pool.h"

static void apply_foreign_change(const SweepQueueChange *change);
static void flush_prefetched(SweepQueueSlot *slot);
static void drop_slot(SweepQueueSlot *slot);

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

void
sweep_change_apply(const SweepQueueChange *change, FullTransactionId xid, TimestampTz now)
{
	SweepQueueSlot *slot;
	int			last_lane;
	int64		arrived = change->sent;

	if (change->queue_id == 0)
	{
		apply_foreign_change(change);
		return;
	}
	slot = change->dropped ? sweep_queue_find_slot(change->relation, change->queue_id)
		: sweep_queue_get_slot(change->relation, change->queue_id);
	if (slot == NULL)
	{
		/* What nobody counts is counted anew when somebody asks. */
		if (!change->dropped)
			sweep_queue_spoil_counts(MyDatabaseId);
		return;
	}
	if (change->dropped)
	{
		drop_slot(slot);
		return;
	}
	if (change->reset)
		sweep_queue_reset_slot(slot);
	/* What is prefetched is in the order of priorities; what is more urgent than any of it comes before. */
	last_lane = slot->prefetched_count == 0 ? 0
		: SWEEP_LANE_INDEX(slot->prefetched[slot->prefetched_first + slot->prefetched_count - 1].lane);
	if (change->lanes & ((1 << last_lane) - 1))
		flush_prefetched(slot);
	for (uint32 lanes = change->lanes; lanes != 0; lanes &= lanes - 1)
	{
		int			lane = pg_rightmost_one_pos32(lanes);

		slot->position[lane] = Min(slot->position[lane], change->low[lane]);
		slot->low[lane] = Min(slot->low[lane], change->low[lane]);
	}
	slot->pending |= change->lanes;
	sweep_queue_note_due(slot, change->first_due);
	if (sweep_queue_counts(change->relation, xid))
	{
		slot->rows[0] += change->rows[0];
		slot->rows[1] += change->rows[1];
		slot->dead += change->dead;
	}
	slot->used_us = sweep_monotonic_us();
	sweep_queue_add_to_rate(&slot->sent, change->sent, slot->used_us);
	sweep_queue_add_to_rate(&slot->acked, change->acked, slot->used_us);
	/* What failed or was dead, and is to be delivered at once, arrives as well. */
	if (change->first_due <= now)
		arrived = Max(arrived, change->rows[1]);
	if (arrived > 0 && !slot->pending_work)
	{
		slot->pending_work = true;
		sweep_consumer_shared_wake_notifier(slot->database);
	}
	sweep_queue_wake(slot, arrived);
}

void
sweep_change_undo(const SweepQueueChange *change)
{
	SweepQueueChange again = {.relation = change->relation,.queue_id = change->queue_id,.first_due = SWEEP_NOTHING_DUE,.reset = true};

	if (change->reset || change->reset_if_undone)
		sweep_change_apply(&again, InvalidFullTransactionId, GetCurrentTimestamp());
}

void
sweep_change_forget_database(Oid database)
{
	for (int i = 0; i < sweep_max_queues; i++)
	{
		SweepQueueSlot *slot = sweep_queue_slot(i);

		if (slot->generation != 0 && slot->database == database)
			drop_slot(slot);
	}
	for (int i = 0; i < SWEEP_COUNTED_DATABASES; i++)
		if (sweep_queue_memory.shared->databases[i].database == database)
			sweep_queue_memory.shared->databases[i].database = InvalidOid;
}

/* Somebody else has written to the table, or dropped it: nothing is known of any queue of the database. */
static void
apply_foreign_change(const SweepQueueChange *change)
{
	for (int i = 0; i < sweep_max_queues; i++)
	{
		SweepQueueSlot *slot = sweep_queue_slot(i);

		if (slot->generation == 0 || slot->database != MyDatabaseId)
			continue;
		if (change->dropped)
		{
			if (slot->relation == change->relation)
				drop_slot(slot);
			continue;
		}
		if (change->emptied)
			sweep_in_flight_remove_all(slot, false);
		sweep_queue_reset_slot(slot);
		sweep_queue_wake(slot, slot->waiters);
	}
	sweep_queue_spoil_counts(MyDatabaseId);
}

/* Puts what is prefetched and not claimed back behind the positions. */
static void
flush_prefetched(SweepQueueSlot *slot)
{
	for (int i = 0; i < slot->prefetched_count; i++)
	{
		const SweepMessageRef *message = &slot->prefetched[slot->prefetched_first + i];
		int			lane = SWEEP_LANE_INDEX(message->lane);

		if (SWEEP_LANE_IS_DELAYED(message->lane))
		{
			sweep_queue_note_due(slot, message->due_at);
		}
		else
		{
			slot->position[lane] = Min(slot->position[lane], message->message_id);
			slot->low[lane] = Min(slot->low[lane], message->message_id);
			slot->pending |= 1 << lane;
		}
	}
	slot->prefetched_count = 0;
}

/* The queue is gone; those who wait for its messages are told so when they look. */
static void
drop_slot(SweepQueueSlot *slot)
{
	sweep_in_flight_remove_all(slot, true);
	sweep_queue_wake(slot, slot->waiters);
	slot->generation = 0;
}
