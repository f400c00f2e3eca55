/*
 * slot_pool.c
 *		Room for queues and messages: who is given it, and who gives way when there is none.
 *
 * Called by the first that uses a queue: a claim, a commit, whoever waits or counts. A queue whose slot was given away
 * loses nothing: it is looked at from its start when it is used again.
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/quota.h"
#include "queue/in_flight.h"
#include "queue/slot_pool.h"

/* A queue that was used within this time is in use; that there are too many is said this often. */
#define IN_USE_US (60 * USECS_PER_SEC)

/* A role that has its share looks at the leases of all queues no more often than this: that is a long way. */
#define EXPIRE_EVERY_US (100 * INT64CONST(1000))

static SweepQueueSlot *find_free_slot(Oid role, SweepRefusal *refusal);
static SweepRefusal check_slots(Oid role);
static void count_slots(Oid role, SweepUse *use);
static void initialize_slot(SweepQueueSlot *slot, Oid relation, int32 queue_id, Oid role);

SweepQueueSlot *
sweep_queue_allot_slot(Oid relation, int32 queue_id, Oid role)
{
	SweepRefusal refusal;
	SweepQueueSlot *slot = find_free_slot(role, &refusal);

	/* Who has his share makes room among his own: the others' queues need not be looked at from their start. */
	if (slot == NULL && sweep_queue_reclaim(refusal == REFUSED_ROLE ? role : InvalidOid))
		slot = find_free_slot(role, &refusal);
	if (slot != NULL)
	{
		/* The counters of the queue that was there are lost. */
		if (slot->generation != 0)
		{
			sweep_queue_spoil_counts(slot->database);
			if (slot->used_us > sweep_monotonic_us() - IN_USE_US)
				sweep_queue_memory.shared->short_of_slots = true;
		}
		initialize_slot(slot, relation, queue_id, role);
	}
	return slot;
}

bool
sweep_queue_adopt_slot(SweepQueueSlot *slot)
{
	if (check_slots(GetUserId()) == REFUSED_ROLE)
		return false;
	slot->role = GetUserId();
	return true;
}

bool
sweep_queue_take_shortage(int64 now_us)
{
	SweepQueueShared *shared = sweep_queue_memory.shared;

	if (now_us < shared->shortage_noted_us + IN_USE_US)
		return false;
	shared->short_of_slots = false;
	shared->shortage_noted_us = now_us;
	return true;
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
		if (candidate->generation == 0 || candidate->lease_first >= 0 || candidate->returned.first >= 0 ||
			candidate->blocked.first >= 0 || candidate->waiters > 0 ||
			(*refusal == REFUSED_ROLE && candidate->role != role) ||
			(*refusal == REFUSED_DATABASE && candidate->database != MyDatabaseId))
			continue;
		if (slot == NULL || candidate->used_us < slot->used_us)
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

static void
initialize_slot(SweepQueueSlot *slot, Oid relation, int32 queue_id, Oid role)
{
	memset(slot, 0, sizeof(*slot));
	slot->generation = ++sweep_queue_memory.shared->generation;
	slot->database = MyDatabaseId;
	slot->relation = relation;
	slot->queue_id = queue_id;
	slot->role = role;
	slot->used_us = sweep_monotonic_us();
	slot->lease_first = slot->returned.first = slot->returned.last = slot->blocked.first = slot->blocked.last = -1;
	slot->next_expiry_us = SWEEP_NOTHING_DUE;
	slot->sent.since_us = slot->acked.since_us = slot->used_us;
	sweep_queue_reset_slot(slot);
}

void
sweep_queue_expire_all(int holder, int64 now_us)
{
	SweepQueueHolder *entry = &sweep_queue_memory.shared->holders[holder];

	if (now_us - entry->expired_us < EXPIRE_EVERY_US)
		return;
	entry->expired_us = now_us;
	for (int i = 0; i < sweep_max_queues; i++)
		if (sweep_queue_slot(i)->generation != 0)
			sweep_in_flight_expire(sweep_queue_slot(i), now_us);
}

bool
sweep_queue_reclaim(Oid role)
{
	int64		now_us = sweep_monotonic_us();
	bool		reclaimed = false;

	for (int i = 0; i < sweep_max_queues; i++)
	{
		SweepQueueSlot *slot = sweep_queue_slot(i);

		if (slot->generation == 0 || (OidIsValid(role) && slot->role != role))
			continue;
		sweep_in_flight_expire(slot, now_us);
		if (slot->returned.first < 0)
			continue;
		while (slot->returned.first >= 0)
			sweep_in_flight_remove(slot->returned.first);
		sweep_queue_reset_slot(slot);
		reclaimed = true;
	}
	return reclaimed;
}
