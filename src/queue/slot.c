/*
 * slot.c
 *		The state of each queue: its next messages, counters and waiting processes; and what a commit changes in it.
 *
 * Messages are rows of sweep.queue_message, and none is lost with this memory. A slot has the positions where the next
 * search begins, so that claims do not read rows that others have claimed or removed. Messages in flight (in_flight.c)
 * are noted in memory and not in the rows, so that a claim writes nothing. All of it is lost when the server restarts:
 * then each queue is searched once from its start, and claimed messages are delivered again.
 *
 * No message is lost because a transaction, after it has become visible, lowers the position of each lane to the lowest
 * id that it wrote there (transaction.c). A search whose snapshot did not see that transaction ends with the lowest
 * position that was set while it searched.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"

#include "base/ask.h"
#include "base/clock.h"
#include "base/shared.h"
#include "queue/queue.h"
#include "queue/slot.h"

/* Minimal time between two searches for messages that have fallen due, while other messages are prefetched, in us. */
#define DUE_SEARCH_US (10 * INT64CONST(1000))

#define RATE_PERIOD_US (10 * USECS_PER_SEC)

int *
sweep_queue_slot_chain(Oid database, int32 queue_id)
{
	return &sweep_queue_memory.slot_chains[murmurhash32((uint32) queue_id ^ murmurhash32(database)) % (uint32) sweep_max_queues];
}

SweepQueueSlot *
sweep_queue_find_slot(Oid relation, int32 queue_id)
{
	for (int number = *sweep_queue_slot_chain(MyDatabaseId, queue_id); number >= 0; number = sweep_queue_slot(number)->next)
	{
		SweepQueueSlot *slot = sweep_queue_slot(number);

		if (slot->queue_id == queue_id && slot->relation == relation && slot->database == MyDatabaseId)
			return slot;
	}
	return NULL;
}

/* Wakes all processes in the list. They stay in it: each looks for messages, and sleeps on while there are none. */
static void
wake_all(const SweepQueueSlot *slot)
{
	for (int i = 0; i < slot->waiters; i++)
		sweep_shared_wake(slot->waiting[i]);
}

void
sweep_queue_reset_slot(SweepQueueSlot *slot)
{
	slot->pending = (1 << SWEEP_LANES) - 1;
	for (int i = 0; i < SWEEP_LANES; i++)
		slot->position[i] = slot->low[i] = PG_INT64_MIN;
	slot->due_from = slot->due_low = slot->next_due = PG_INT64_MIN;
	slot->prefetched_count = 0;
	if (slot->news == NEWS_UNWANTED)
		slot->news = NEWS_PENDING;
	wake_all(slot);
}

void
sweep_queue_lower_position(SweepQueueSlot *slot, int lane, int64 message_id)
{
	slot->position[lane] = Min(slot->position[lane], message_id);
	slot->low[lane] = Min(slot->low[lane], message_id);
	slot->pending |= (uint32) 1 << lane;
}

void
sweep_queue_note_due(SweepQueueSlot *slot, TimestampTz due_at)
{
	bool		earlier = due_at < slot->next_due;

	slot->due_from = Min(slot->due_from, due_at);
	slot->due_low = Min(slot->due_low, due_at);
	slot->next_due = Min(slot->next_due, due_at);
	if (earlier)
		wake_all(slot);
}

void
sweep_queue_note_expiry(SweepQueueSlot *slot, int64 expires_us)
{
	bool		earlier = expires_us < slot->next_expiry_us;

	slot->next_expiry_us = Min(slot->next_expiry_us, expires_us);
	if (earlier)
		wake_all(slot);
}

bool
sweep_queue_needs_search(const SweepQueueSlot *slot, int few, TimestampTz now)
{
	if (slot->prefetched_count <= few)
		return slot->pending != 0 || slot->next_due <= now;
	return slot->next_due <= now && slot->prefetched_count < SWEEP_QUEUE_PREFETCH - 1 &&
		sweep_monotonic_us() - slot->due_searched_us >= DUE_SEARCH_US;
}

void
sweep_queue_wake(SweepQueueSlot *slot, int64 count)
{
	int			woken = (int) Min(count, slot->waiters);

	for (int i = 0; i < woken; i++)
		sweep_shared_wake(slot->waiting[i]);
	slot->waiters -= woken;
	memmove(slot->waiting, slot->waiting + woken, sizeof(ProcNumber) * slot->waiters);
}

static void
add_to_rate(SweepRate *rate, int64 count, int64 now_us)
{
	int64		elapsed_us = now_us - rate->since_us;

	if (elapsed_us >= 2 * RATE_PERIOD_US)
	{
		rate->since_us = now_us;
		rate->count = rate->count_before = 0;
	}
	else if (elapsed_us >= RATE_PERIOD_US)
	{
		rate->since_us += RATE_PERIOD_US;
		rate->count_before = rate->count;
		rate->count = 0;
	}
	rate->count += count;
}

double
sweep_queue_rate(const SweepRate *rate, int64 now_us)
{
	double		periods = (double) (now_us - rate->since_us) / RATE_PERIOD_US;
	double		count = 0;

	/* The period before counts with the part of it that lies within the last ten seconds, as if its messages were spread evenly. */
	if (periods < 1)
		count = (double) rate->count + (double) rate->count_before * (1 - Max(periods, 0));
	else if (periods < 2)
		count = (double) rate->count * (2 - periods);
	return count * USECS_PER_SEC / RATE_PERIOD_US;
}

SweepQueueDatabase *
sweep_queue_find_database(Oid relation, bool create)
{
	SweepQueueShared *shared = sweep_queue_memory.shared;
	SweepQueueDatabase *entry = NULL;

	for (int i = 0; i < SWEEP_COUNTED_DATABASES; i++)
	{
		SweepQueueDatabase *candidate = &shared->databases[i];

		if (candidate->database == MyDatabaseId && candidate->relation == relation)
			return candidate;
		if (candidate->database == MyDatabaseId || (candidate->database == InvalidOid && entry == NULL))
			entry = candidate;
	}
	if (!create)
		return NULL;
	if (entry == NULL)
		entry = &shared->databases[shared->victim_database++ % SWEEP_COUNTED_DATABASES];
	memset(entry, 0, sizeof(*entry));
	entry->database = MyDatabaseId;
	entry->relation = relation;
	return entry;
}

TransactionId *
sweep_queue_running(const SweepQueueDatabase *entry)
{
	return sweep_queue_memory.running + (entry - sweep_queue_memory.shared->databases) * sweep_queue_memory.running_limit;
}

/* The entry of this database if its counters lack the commit, because the snapshot of the count does not see it; else NULL. */
static const SweepQueueDatabase *
find_counting_database(Oid relation, FullTransactionId xid)
{
	const SweepQueueDatabase *entry = sweep_queue_find_database(relation, false);

	if (entry == NULL || !entry->counting || FullTransactionIdPrecedes(xid, entry->xmin))
		return NULL;
	if (FullTransactionIdFollowsOrEquals(xid, entry->xmax))
		return entry;
	for (uint32 i = 0; i < entry->running_count; i++)
		if (sweep_queue_running(entry)[i] == XidFromFullTransactionId(xid))
			return entry;
	return NULL;
}

void
sweep_queue_add_rows(SweepQueueSlot *slot, const SweepQueueDatabase *entry, const int64 *rows, int64 dead)
{
	if (slot->count_number != entry->count_number)
		slot->rows[0] = slot->rows[1] = slot->dead = 0;
	slot->count_number = entry->count_number;
	slot->rows[0] += rows[0];
	slot->rows[1] += rows[1];
	slot->dead += dead;
}

void
sweep_queue_spoil_counts(Oid database)
{
	for (int i = 0; i < SWEEP_COUNTED_DATABASES; i++)
	{
		SweepQueueDatabase *entry = &sweep_queue_memory.shared->databases[i];

		if (entry->database == database)
			entry->counted = entry->counting = false;
	}
}

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
	to->own_statements += from->own_statements;
}

/* Drops the prefetched messages, and lowers the positions, so that the next search finds them again. */
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
	/* Prefetched messages are in order of priority. When a message comes before the last of them, all are searched for again. */
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
sweep_queue_apply(SweepQueueSlot *slot, const SweepQueueChange *change, FullTransactionId xid, TimestampTz now)
{
	const SweepQueueDatabase *database = find_counting_database(change->relation, xid);
	int64		arrived = change->sent;

	apply_positions(slot, change);
	if (database != NULL)
		sweep_queue_add_rows(slot, database, change->rows, change->dead);
	slot->used_us = sweep_monotonic_us();
	add_to_rate(&slot->sent, change->sent, slot->used_us);
	add_to_rate(&slot->acked, change->acked, slot->used_us);
	/* A failed or redriven message that is due at once counts as well. */
	if (change->first_due <= now)
		arrived = Max(arrived, change->rows[1]);
	if (arrived > 0 && slot->news == NEWS_NONE)
		sweep_ask_to_notify(slot->database);
	if (arrived > 0 && slot->news != NEWS_UNWANTED)
		slot->news = NEWS_PENDING;
	sweep_queue_wake(slot, arrived);
}

/* Takes SENDING as well: a scheduler has died while it was sending that notification. */
int
sweep_queue_take_news(SweepQueueNews *taken, int64 *wait_us)
{
	int64		now_us = sweep_monotonic_us();
	int			looked_at = 0;
	int			count = 0;

	sweep_queue_lock(LW_EXCLUSIVE);
	for (int i = 0; i < sweep_max_queues; i++)
	{
		SweepQueueSlot *slot = sweep_queue_slot(i);
		int64		left_us = slot->announced_us == 0 ? 0 : slot->announced_us + sweep_notify_interval * INT64CONST(1000) - now_us;

		if (slot->generation != 0 && slot->database == MyDatabaseId && (slot->news == NEWS_PENDING || slot->news == NEWS_SENDING))
		{
			if (left_us > 0)
				*wait_us = Min(*wait_us, left_us);
			else
			{
				slot->news = NEWS_SENDING;
				taken[count++] = (SweepQueueNews) {i, slot->queue_id, NEWS_PENDING};
			}
		}
		(void) sweep_queue_lend_lock_after(SWEEP_QUEUE_SLOTS_PIECE, &looked_at);
	}
	sweep_queue_unlock();
	return count;
}

void
sweep_queue_settle_news(const SweepQueueNews *taken, int count)
{
	int			settled = 0;

	sweep_queue_lock(LW_EXCLUSIVE);
	for (int i = 0; i < count; i++)
	{
		SweepQueueSlot *slot = sweep_queue_slot(taken[i].slot);

		if (slot->queue_id == taken[i].queue_id && slot->database == MyDatabaseId)
		{
			/* The state is PENDING again if a message has come since: it needs another notification. */
			if (slot->news == NEWS_SENDING)
				slot->news = taken[i].state;
			if (taken[i].state == NEWS_NONE)
				slot->announced_us = sweep_monotonic_us();
		}
		(void) sweep_queue_lend_lock_after(SWEEP_QUEUE_SLOTS_PIECE, &settled);
	}
	sweep_queue_unlock();
}
