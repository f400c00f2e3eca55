/*
 * slot.c
 *		What is known of each queue: where its messages are to be found next, and how many there are.
 *
 * Messages are rows of sweep.queue_message; nothing here is needed to keep them. What is kept here is
 * where the next claim begins to look, so that no claim walks over what others have claimed or removed,
 * and which messages are claimed (in_flight.c), so that a claim writes nothing. It is lost when the
 * server restarts: then every queue is looked at from its start, once, and what was held comes again.
 *
 * The rule that loses no message: a transaction that has sent lowers the position of its lane to the
 * lowest id that it wrote, after it has become visible (transaction.c). Whoever searched with an older
 * snapshot, and could not see it, takes over the lowest position that was set while it searched.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "utils/timestamp.h"

#include "base/quota.h"
#include "base/settings.h"
#include "base/shared.h"
#include "base/consumer_shared.h"
#include "queue/in_flight.h"
#include "queue/memory.h"

/* A queue that was used within this time is in use; that there are too many is said this often. */
#define IN_USE_US (60 * USECS_PER_SEC)

/* While there are others, messages that fall due are looked for this often. */
#define DUE_SEARCH_US (10 * INT64CONST(1000))

#define RATE_PERIOD_US (10 * USECS_PER_SEC)

static SweepQueueSlot *get_slot(Oid relation, int32 queue_id, Oid role);
static SweepQueueSlot *find_free_slot(Oid role, SweepRefusal *refusal);
static SweepRefusal check_slots(Oid role);
static void count_slots(Oid role, SweepUse *use);
static void drop_slot(SweepQueueSlot *slot);
static void wake_all(const SweepQueueSlot *slot);
static void flush_prefetched(SweepQueueSlot *slot);
static void initialize_slot(SweepQueueSlot *slot, Oid relation, int32 queue_id, Oid role);
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
	return get_slot(relation, queue_id, GetUserId());
}

SweepQueueSlot *
sweep_queue_get_slot_of_nobody(Oid relation, int32 queue_id)
{
	return get_slot(relation, queue_id, InvalidOid);
}

bool
sweep_queue_adopt_slot(SweepQueueSlot *slot)
{
	if (!OidIsValid(slot->role) && check_slots(GetUserId()) == REFUSED_ROLE)
		return false;
	if (!OidIsValid(slot->role))
		slot->role = GetUserId();
	return true;
}

static SweepQueueSlot *
get_slot(Oid relation, int32 queue_id, Oid role)
{
	SweepQueueSlot *slot = sweep_queue_find_slot(relation, queue_id);
	SweepRefusal refusal;

	if (slot != NULL)
		return slot;
	slot = find_free_slot(role, &refusal);
	/* Who has his share makes room among his own: the others' queues need not be looked at from their start. */
	if (slot == NULL && sweep_in_flight_reclaim(refusal == REFUSED_ROLE ? role : InvalidOid))
		slot = find_free_slot(role, &refusal);
	if (slot != NULL)
	{
		/* The counters of the queue that was there are lost. */
		if (slot->generation != 0)
		{
			sweep_queue_count_spoil(slot->database);
			if (slot->used_at > GetCurrentTimestamp() - IN_USE_US)
				sweep_queue_memory()->shared->short_of_slots = true;
		}
		initialize_slot(slot, relation, queue_id, role);
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

/*
 * A free one, or that of an idle queue that was not used for the longest time. Who has his share of them
 * gets one of his own, so that nobody can take more than that from the others. Nothing can be looked up here,
 * for a commit may be what needs it; whoever uses queues was asked about before.
 */
static SweepQueueSlot *
find_free_slot(Oid role, SweepRefusal *refusal)
{
	SweepQueueSlot *slot = NULL;

	*refusal = check_slots(role);
	for (int i = 0; i < sweep_max_queues; i++)
	{
		SweepQueueSlot *candidate = sweep_queue_slot(i);

		if (candidate->generation == 0 && *refusal == REFUSED_NOT)
			return candidate;
		if (candidate->generation == 0 || candidate->lease_first >= 0 || candidate->returned_first >= 0 ||
			candidate->blocked_first >= 0 || candidate->waiters > 0 ||
			(*refusal == REFUSED_ROLE && candidate->role != role) ||
			(*refusal == REFUSED_DATABASE && candidate->database != MyDatabaseId))
			continue;
		if (slot == NULL || candidate->used_at < slot->used_at)
			slot = candidate;
	}
	return slot;
}

/* Who only counts has no share. */
static SweepRefusal
check_slots(Oid role)
{
	SweepUse	use;

	count_slots(role, &use);
	return sweep_quota_check(&use, sweep_max_queues, !OidIsValid(role) || sweep_quota_is_known_unlimited(role));
}

static void
count_slots(Oid role, SweepUse *use)
{
	memset(use, 0, sizeof(*use));
	for (int i = 0; i < sweep_max_queues; i++)
	{
		const SweepQueueSlot *slot = sweep_queue_slot(i);

		if (slot->generation == 0)
			continue;
		use->all++;
		use->of_role += slot->role == role;
		use->of_database += slot->database == MyDatabaseId;
	}
}

void
sweep_queue_refuse_slot(const char *name)
{
	Oid			role = GetUserId();
	char	   *role_name = GetUserNameFromId(role, true);
	bool		unlimited = sweep_quota_is_unlimited(role);
	SweepUse	use;
	SweepRefusal refusal;

	sweep_queue_lock(LW_SHARED);
	count_slots(role, &use);
	sweep_queue_unlock();
	refusal = sweep_quota_check(&use, sweep_max_queues, unlimited);
	ereport(ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("queue \"%s\" cannot be claimed from: too many queues are in use", name),
			 errdetail("Role \"%s\" uses %d and this database %d of %d queues; %d are in use in all.",
					   role_name ? role_name : "", use.of_role, use.of_database, sweep_max_queues, use.all),
			 refusal == REFUSED_ROLE || refusal == REFUSED_DATABASE ?
			 errhint("Acknowledge what is claimed from another queue, or raise %s.", sweep_quota_setting(refusal, NULL)) :
			 errhint("Increase pg_sweep.max_queues and restart the server.")));
}

/* The queue is gone; those who wait for its messages are told so when they look. */
static void
drop_slot(SweepQueueSlot *slot)
{
	sweep_in_flight_remove_all(slot, true);
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
initialize_slot(SweepQueueSlot *slot, Oid relation, int32 queue_id, Oid role)
{
	memset(slot, 0, sizeof(*slot));
	slot->generation = ++sweep_queue_memory()->shared->generation;
	slot->database = MyDatabaseId;
	slot->relation = relation;
	slot->queue_id = queue_id;
	slot->role = role;
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
	slot->prefetched_count = 0;
	wake_all(slot);
}

/* Puts what was found and not claimed back behind the positions. */
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

void
sweep_queue_note_due(SweepQueueSlot *slot, TimestampTz due_at)
{
	bool		earlier = due_at < Min(slot->next_due, slot->next_expiry);

	slot->due_from = Min(slot->due_from, due_at);
	slot->due_low = Min(slot->due_low, due_at);
	slot->next_due = Min(slot->next_due, due_at);
	if (earlier)
		wake_all(slot);
}

void
sweep_queue_note_expiry(SweepQueueSlot *slot, TimestampTz expires_at)
{
	bool		earlier = expires_at < Min(slot->next_due, slot->next_expiry);

	slot->next_expiry = Min(slot->next_expiry, expires_at);
	if (earlier)
		wake_all(slot);
}

/* They stay in the list: they look, and sleep on until there is something. */
static void
wake_all(const SweepQueueSlot *slot)
{
	for (int i = 0; i < slot->waiters; i++)
		sweep_shared_wake(slot->waiting[i]);
}

bool
sweep_queue_needs_search(const SweepQueueSlot *slot, int few, TimestampTz now)
{
	if (slot->prefetched_count <= few)
		return slot->pending != 0 || slot->next_due <= now;
	return slot->next_due <= now && now - slot->due_searched_at >= DUE_SEARCH_US && slot->prefetched_count < SWEEP_QUEUE_PREFETCH - 1;
}

void
sweep_queue_apply_change(const SweepQueueChange *change, FullTransactionId xid, TimestampTz now)
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
		sweep_in_flight_settle_purged(slot, XidFromFullTransactionId(xid), true);
	if (change->reset)
		sweep_queue_reset_slot(slot);
	/* What was found is in the order of priorities; what is more urgent than any of it comes before. */
	last_lane = slot->prefetched_count > 0 ? SWEEP_LANE_INDEX(slot->prefetched[slot->prefetched_first + slot->prefetched_count - 1].lane) : 0;
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
	if (arrived > 0 && !slot->pending_work)
	{
		slot->pending_work = true;
		sweep_consumer_shared_wake_notifier(slot->database);
	}
	sweep_queue_wake(slot, arrived);
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
	TimestampTz elapsed = now - rate->since;

	if (elapsed >= 2 * RATE_PERIOD_US)
	{
		rate->since = now;
		rate->count = rate->count_before = 0;
	}
	else if (elapsed >= RATE_PERIOD_US)
	{
		rate->since += RATE_PERIOD_US;
		rate->count_before = rate->count;
		rate->count = 0;
	}
	rate->count += count;
}

double
sweep_queue_rate(const SweepRate *rate, TimestampTz now)
{
	double		periods = (double) (now - rate->since) / RATE_PERIOD_US;
	double		count = 0;

	/* What remains of a period within the last ten seconds, as if it had been spread evenly. */
	if (periods < 1)
		count = (double) rate->count + (double) rate->count_before * (1 - Max(periods, 0));
	else if (periods < 2)
		count = (double) rate->count * (2 - periods);
	return count * USECS_PER_SEC / RATE_PERIOD_US;
}
