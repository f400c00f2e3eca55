/*
 * lease.c
 *		The leases of the queues, in shared memory, and how much of it each role and database uses.
 *
 * The id of a lease begins with its number, so that it is found directly. The leases of a queue that have an end form a
 * leftist heap: the first end is known, and a change takes logarithmic time. A claim gives its lease an end when the
 * lease has all its messages.
 *
 * Claims check the quota of the role and of the database (base/quota.h). The counts in their entries change with each
 * message. A process mostly finds the entries where they were the last time. An entry whose counts are 0 can be given to
 * another role or database; when none is left, all other roles are counted together, and so are all other databases.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "queue/lease.h"

int
sweep_holder_find(Oid role, Oid database)
{
	static int	hints[2] = {SWEEP_OTHER_DATABASES, SWEEP_OTHER_DATABASES};
	SweepQueueShared *shared = sweep_queue_memory.shared;
	int			others = OidIsValid(role) ? SWEEP_OTHER_ROLES : SWEEP_OTHER_DATABASES;
	int			idle = -1;

	if (!OidIsValid(role) && !OidIsValid(database))
		return -1;
	for (int i = SWEEP_OTHER_DATABASES; i < shared->holder_count; i++)
	{
		int			number = i == SWEEP_OTHER_DATABASES ? hints[others] : i;
		const SweepQueueHolder *entry = &shared->holders[number];

		if (number <= SWEEP_OTHER_DATABASES)
			continue;
		if (entry->role == role && entry->database == database)
			return hints[others] = number;
		/* This process has just found that entry for the database, or the role, and is about to use it. */
		if (idle < 0 && number != hints[1 - others] && entry->held[HELD_LEASES] == 0 && entry->held[HELD_MESSAGES] == 0 &&
			entry->held[HELD_SLOTS] == 0)
			idle = number;
	}
	if (idle < 0 && shared->holder_count < SWEEP_HOLDERS)
		idle = shared->holder_count++;
	if (idle < 0)
		return others;
	shared->holders[idle] = (SweepQueueHolder) {.database = database, .role = role};
	return hints[others] = idle;
}

SweepUse
sweep_holder_use(int role, int database, SweepHeld what)
{
	const SweepQueueShared *shared = sweep_queue_memory.shared;

	return (SweepUse) {
		.of_role = role >= 0 ? shared->holders[role].held[what] : 0, .of_database = shared->holders[database].held[what],
		.all = shared->held[what]
	};
}

void
sweep_holder_refuse(SweepHeld what, SweepRefusal refusal, const char *queue)
{
	const SweepQueueShared *shared = sweep_queue_memory.shared;
	const char *setting = what == HELD_SLOTS ? "pg_sweep.max_queues" : "pg_sweep.max_in_flight";
	char	   *name = GetUserNameFromId(GetUserId(), true);
	char	   *most_name;
	SweepQueueHolder most = {0};
	SweepUse	use;

	sweep_queue_lock(LW_EXCLUSIVE);
	use = sweep_holder_use(sweep_holder_find(GetUserId(), InvalidOid), sweep_holder_find(InvalidOid, MyDatabaseId), what);
	for (int i = 0; i < shared->holder_count; i++)
		if (OidIsValid(shared->holders[i].role) && shared->holders[i].held[what] > most.held[what])
			most = shared->holders[i];
	sweep_queue_unlock();
	most_name = OidIsValid(most.role) ? GetUserNameFromId(most.role, true) : NULL;
	ereport(ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 what == HELD_SLOTS ? errmsg("queue \"%s\" cannot be claimed from: too many queues are in use", queue) :
			 refusal == REFUSED_ROLE ? errmsg("role \"%s\" has claimed too many messages", name ? name : "") :
			 refusal == REFUSED_DATABASE ? errmsg("too many messages are claimed in this database") :
			 errmsg("too many messages are claimed"),
			 errdetail("Role \"%s\" holds %d and this database %d of %d; %d are in use in all, most of them, %d, by role \"%s\".",
					   name ? name : "", use.of_role, use.of_database, what == HELD_SLOTS ? sweep_max_queues : sweep_max_in_flight,
					   use.all, most.held[what], most_name ? most_name : ""),
			 refusal == REFUSED_ALL ? errhint("Acknowledge what is claimed, or increase %s and restart the server.", setting) :
			 errhint("Acknowledge what is claimed, or raise %s.", sweep_quota_setting(refusal, NULL))));
}

static int
rank_of(int number)
{
	return number < 0 ? 0 : sweep_queue_lease(number)->rank;
}

/* Puts the child with the higher rank to the left; returns whether the rank of the lease has changed. */
static bool
order_children(SweepQueueLease *lease)
{
	int			rank = Min(rank_of(lease->left), rank_of(lease->right)) + 1;
	bool		changed = rank != lease->rank;

	if (rank_of(lease->left) < rank_of(lease->right))
	{
		int			left = lease->left;

		lease->left = lease->right;
		lease->right = left;
	}
	lease->rank = (int16) rank;
	return changed;
}

/* Merges two heaps and returns the root. The recursion follows the right spines, which are short. */
static int
merge(int a, int b)
{
	SweepQueueLease *lease;

	if (a < 0 || b < 0)
		return a < 0 ? b : a;
	if (sweep_queue_lease(b)->expires_us < sweep_queue_lease(a)->expires_us)
	{
		int			first = b;

		b = a;
		a = first;
	}
	lease = sweep_queue_lease(a);
	lease->right = merge(lease->right, b);
	sweep_queue_lease(lease->right)->parent = a;
	(void) order_children(lease);
	return a;
}

static void
set_root(SweepQueueSlot *slot, int root)
{
	slot->lease_root = root;
	if (root >= 0)
		sweep_queue_lease(root)->parent = -1;
}

static void
take_from_heap(int number)
{
	SweepQueueLease *lease = sweep_queue_lease(number);
	int			rest = merge(lease->left, lease->right);
	int			parent = lease->parent;

	if (parent < 0)
	{
		set_root(sweep_queue_slot(lease->slot), rest);
		return;
	}
	if (rest >= 0)
		sweep_queue_lease(rest)->parent = parent;
	if (sweep_queue_lease(parent)->left == number)
		sweep_queue_lease(parent)->left = rest;
	else
		sweep_queue_lease(parent)->right = rest;
	/* Few ranks change: their number is logarithmic. */
	while (parent >= 0 && order_children(sweep_queue_lease(parent)))
		parent = sweep_queue_lease(parent)->parent;
}

/* Draws many bytes at a time: each pg_strong_random() takes an eighth of the time of a claim, for any number of bytes. */
void
sweep_lease_draw(uint8 *random)
{
	static uint8 supply[32][UUID_LEN];
	static int	left = 0;

	if (left == 0)
	{
		if (!pg_strong_random(supply, sizeof(supply)))
			ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not generate random values")));
		left = lengthof(supply);
	}
	memcpy(random, supply[--left], UUID_LEN);
}

int
sweep_lease_new(SweepQueueSlot *slot, const uint8 *random, Oid role)
{
	SweepQueueShared *shared = sweep_queue_memory.shared;
	int			number = shared->free_lease;
	SweepQueueLease *lease;

	if (number < 0 && shared->used_leases == sweep_max_in_flight)
		return -1;
	if (number >= 0)
		shared->free_lease = sweep_queue_lease(number)->left;
	else
		number = shared->used_leases++;
	lease = sweep_queue_lease(number);
	memcpy(lease->id.data, &number, sizeof(number));
	memcpy(lease->id.data + sizeof(number), random, UUID_LEN - sizeof(number));
	lease->slot = (int16) sweep_queue_slot_number(slot);
	lease->messages = (SweepMessageList) {.first = -1, .last = -1};
	lease->ending = 0;
	lease->expires_us = SWEEP_NOTHING_DUE;
	lease->holder = (int16) sweep_holder_find(role, InvalidOid);
	sweep_holder_count(lease->holder, slot->database_holder, HELD_LEASES, 1);
	slot->lease_count++;
	return number;
}

SweepQueueLease *
sweep_lease_find(const pg_uuid_t *id)
{
	int			number;
	SweepQueueLease *lease;

	memcpy(&number, id->data, sizeof(number));
	if (number < 0 || number >= sweep_queue_memory.shared->used_leases)
		return NULL;
	lease = sweep_queue_lease(number);
	if (lease->slot < 0 || memcmp(&lease->id, id, sizeof(*id)) != 0 || sweep_queue_slot(lease->slot)->database != MyDatabaseId)
		return NULL;
	return lease;
}

void
sweep_lease_set_expiry(int number, int64 expires_us)
{
	SweepQueueLease *lease = sweep_queue_lease(number);
	SweepQueueSlot *slot = sweep_queue_slot(lease->slot);

	if (sweep_lease_has_end(lease))
		take_from_heap(number);
	lease->expires_us = expires_us;
	lease->left = lease->right = -1;
	lease->rank = 1;
	set_root(slot, merge(slot->lease_root, number));
	sweep_queue_note_expiry(slot, expires_us);
}

void
sweep_lease_free(int number)
{
	SweepQueueLease *lease = sweep_queue_lease(number);
	SweepQueueSlot *slot = sweep_queue_slot(lease->slot);

	if (lease->messages.count > 0 || lease->ending > 0)
		return;
	if (sweep_lease_has_end(lease))
		take_from_heap(number);
	sweep_holder_count(lease->holder, slot->database_holder, HELD_LEASES, -1);
	slot->lease_count--;
	lease->slot = -1;
	lease->left = sweep_queue_memory.shared->free_lease;
	sweep_queue_memory.shared->free_lease = number;
}
