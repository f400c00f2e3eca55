/*
 * queue_shared.c
 *		What is known of each queue: where its messages are to be found next, and how many there are.
 *
 * Messages are rows of sweep.queue_message; nothing here is needed to keep them. What is kept here is
 * where the next claim begins to look, so that no claim walks over what others have claimed or removed,
 * and which messages are claimed (queue_hold.c), so that a claim writes nothing. It is lost when the
 * server restarts: then every queue is looked at from its start, once, and what was held comes again.
 *
 * The rule that loses no message: a transaction that has sent lowers the position of its lane to the
 * lowest id that it wrote, after it has become visible (queue_books.c). Whoever searched with an older
 * snapshot, and could not see it, takes over the lowest position that was set while it searched.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "utils/timestamp.h"

#include "consumer_shared.h"
#include "queue_hold.h"
#include "queue_memory.h"
#include "settings.h"
#include "shared.h"

/* A queue that was used within this time is in use; that there are too many is said this often. */
#define IN_USE_US (60 * USECS_PER_SEC)

/* While there are others, messages that fall due are looked for this often. */
#define DUE_SEARCH_US (10 * INT64CONST(1000))

#define RATE_PERIOD_US (10 * USECS_PER_SEC)

static SweepQueueSlot *find_free_slot(void);
static void drop_slot(SweepQueueSlot *slot);
static void flush_found(SweepQueueSlot *slot);
static void initialize_slot(SweepQueueSlot *slot, Oid relation, int32 queue_id);
static void apply_foreign_change(const SweepQueueChange *change);
static void add_to_rate(SweepRate *rate, int64 count, TimestampTz now);

SweepQueueSlot *
sweep_queue_find_slot(Oid relation, int32 queue_id)
{
	/* Where a queue was the last time: the slots are too large to walk over them in every commit. */
	static int	hints[256];
	int		   *hint = &hints[(uint32) queue_id % lengthof(hints)];

	for (int i = -1; i < sweep_max_queues; i++)
	{
		int			number = i < 0 ? *hint : i;
		SweepQueueSlot *slot = sweep_queue_slot(number);

		if (slot->queue_id == queue_id && slot->relation == relation && slot->database == MyDatabaseId && slot->generation != 0)
		{
			*hint = number;
			return slot;
		}
	}
	return NULL;
}

SweepQueueSlot *
sweep_queue_get_slot(Oid relation, int32 queue_id)
{
	SweepQueueSlot *slot = sweep_queue_find_slot(relation, queue_id);

	if (slot != NULL)
		return slot;
	slot = find_free_slot();
	if (slot == NULL && sweep_hold_reclaim())
		slot = find_free_slot();
	if (slot != NULL)
	{
		/* The counters of the queue that was there are lost. */
		if (slot->generation != 0)
		{
			sweep_queue_count_spoil(slot->database);
			if (slot->used_at > GetCurrentTimestamp() - IN_USE_US)
				sweep_queue_memory()->shared->short_of_slots = true;
		}
		initialize_slot(slot, relation, queue_id);
	}
	return slot;
}

bool
sweep_queue_take_shortage(TimestampTz now)
{
	SweepQueueShared *shared = sweep_queue_memory()->shared;

	if (!shared->short_of_slots || now < shared->shortage_noted_at + IN_USE_US)
		return false;
	shared->short_of_slots = false;
	shared->shortage_noted_at = now;
	return true;
}

/* A free one, or that of an idle queue that was not used for the longest time. */
static SweepQueueSlot *
find_free_slot(void)
{
	SweepQueueSlot *slot = NULL;

	for (int i = 0; i < sweep_max_queues; i++)
	{
		SweepQueueSlot *candidate = sweep_queue_slot(i);

		if (candidate->generation == 0)
		{
			slot = candidate;
			break;
		}
		if (candidate->lease_first < 0 && candidate->returned_first < 0 && candidate->blocked_first < 0 &&
			candidate->waiters == 0 && (slot == NULL || candidate->used_at < slot->used_at))
			slot = candidate;
	}
	return slot;
}

/* The queue is gone; those who wait for its messages are told so when they look. */
static void
drop_slot(SweepQueueSlot *slot)
{
	sweep_hold_drop_all(slot, true);
	sweep_queue_wake(slot, slot->waiters);
	slot->generation = 0;
}

void
sweep_queue_forget_database(Oid database)
{
	for (int i = 0; i < sweep_max_queues; i++)
	{
		SweepQueueSlot *slot = sweep_queue_slot(i);

		if (slot->generation != 0 && slot->database == database)
			drop_slot(slot);
	}
	sweep_queue_count_forget(database);
}

static void
initialize_slot(SweepQueueSlot *slot, Oid relation, int32 queue_id)
{
	memset(slot, 0, sizeof(*slot));
	slot->generation = ++sweep_queue_memory()->shared->generation;
	slot->database = MyDatabaseId;
	slot->relation = relation;
	slot->queue_id = queue_id;
	slot->used_at = GetCurrentTimestamp();
	slot->lease_first = slot->returned_first = slot->returned_last = slot->blocked_first = -1;
	slot->next_expiry = SWEEP_NOTHING_DUE;
	slot->sent.since = slot->acked.since = slot->used_at;
	sweep_queue_reset_slot(slot);
}

SweepQueueSlot *
sweep_queue_slot(int number)
{
	return &sweep_queue_memory()->slots[number];
}

int
sweep_queue_slot_number(const SweepQueueSlot *slot)
{
	return (int) (slot - sweep_queue_memory()->slots);
}

ConditionVariable *
sweep_queue_searched(const SweepQueueSlot *slot)
{
	return &sweep_queue_memory()->searched[sweep_queue_slot_number(slot)];
}

int
sweep_queue_slot_count(void)
{
	return sweep_max_queues;
}

void
sweep_queue_reset_slot(SweepQueueSlot *slot)
{
	slot->pending = (1 << SWEEP_LANES) - 1;
	for (int i = 0; i < SWEEP_LANES; i++)
		slot->position[i] = slot->low[i] = PG_INT64_MIN;
	slot->due_from = slot->due_low = slot->next_due = PG_INT64_MIN;
	slot->found_count = 0;
}

/* Puts what was found and not claimed back behind the positions. */
static void
flush_found(SweepQueueSlot *slot)
{
	for (int i = 0; i < slot->found_count; i++)
	{
		const SweepFound *message = &slot->found[slot->found_first + i];
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
	slot->found_count = 0;
}

void
sweep_queue_note_due(SweepQueueSlot *slot, TimestampTz due_at)
{
	slot->due_from = Min(slot->due_from, due_at);
	slot->due_low = Min(slot->due_low, due_at);
	slot->next_due = Min(slot->next_due, due_at);
}

bool
sweep_queue_needs_search(const SweepQueueSlot *slot, int few, TimestampTz now)
{
	if (slot->found_count <= few)
		return slot->pending != 0 || slot->next_due <= now;
	return slot->next_due <= now && now - slot->due_searched_at >= DUE_SEARCH_US && slot->found_count < SWEEP_QUEUE_FOUND - 1;
}

void
sweep_queue_apply_change(const SweepQueueChange *change, FullTransactionId xid, TimestampTz now)
{
	SweepQueueSlot *slot;
	int			last_lane;
	int64		arrived = change->sent;
	bool		due_earlier;

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
			sweep_queue_forget_count(change->relation);
		return;
	}
	if (change->dropped)
	{
		drop_slot(slot);
		return;
	}
	/* A purge that has deleted nothing may have no id. */
	if (change->purged && FullTransactionIdIsValid(xid))
		sweep_hold_drop_purged(slot, XidFromFullTransactionId(xid), true);
	if (change->reset)
		sweep_queue_reset_slot(slot);
	/* What was found is in the order of priorities; what is more urgent than any of it comes before. */
	last_lane = slot->found_count > 0 ? SWEEP_LANE_INDEX(slot->found[slot->found_first + slot->found_count - 1].lane) : 0;
	if (change->lanes & ((1 << last_lane) - 1))
		flush_found(slot);
	for (uint32 lanes = change->lanes; lanes != 0; lanes &= lanes - 1)
	{
		int			lane = pg_rightmost_one_pos32(lanes);

		slot->position[lane] = Min(slot->position[lane], change->low[lane]);
		slot->low[lane] = Min(slot->low[lane], change->low[lane]);
	}
	slot->pending |= change->lanes;
	due_earlier = change->first_due < slot->next_due;
	sweep_queue_note_due(slot, change->first_due);
	if (sweep_queue_count_wants(change->relation, xid))
	{
		slot->rows[0] += change->rows[0];
		slot->rows[1] += change->rows[1];
		slot->dead += change->dead;
	}
	slot->used_at = now;
	add_to_rate(&slot->sent, change->sent, slot->used_at);
	add_to_rate(&slot->acked, change->acked, slot->used_at);
	/* What failed or was dead, and is to be delivered at once, arrives as well. */
	if (change->first_due <= now)
		arrived = Max(arrived, change->rows[1]);
	if (arrived > 0 && !slot->news)
	{
		slot->news = true;
		sweep_consumer_shared_wake_notifier(slot->database);
	}
	/* Somebody must know when it is due. */
	sweep_queue_wake(slot, Max(arrived, due_earlier ? 1 : 0));
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
			sweep_hold_drop_all(slot, false);
		sweep_queue_reset_slot(slot);
		sweep_queue_wake(slot, slot->waiters);
	}
	sweep_queue_count_spoil(MyDatabaseId);
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
add_to_rate(SweepRate *rate, int64 count, TimestampTz now)
{
	rate->total += count;
	if (now - rate->since >= RATE_PERIOD_US)
	{
		rate->per_second = sweep_queue_rate(rate, now);
		rate->since = now;
		rate->total_since = rate->total;
	}
}

double
sweep_queue_rate(const SweepRate *rate, TimestampTz now)
{
	double		seconds = (double) (now - rate->since) / USECS_PER_SEC;

	/* A period that has just begun says little: then the one before it. */
	if (seconds < 2 && rate->per_second > 0)
		return rate->per_second;
	return (double) (rate->total - rate->total_since) / Max(seconds, 0.1);
}
