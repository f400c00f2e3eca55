/*
 * holder.c
 *		How many leases, messages and slots each role and each database has.
 *
 * Claims ask whether a role has its share (base/quota.h), and must not become slower for it. An entry per role in a
 * database, one per role and one per database go up and down with each message, under the lock that a claim has in any
 * case. A process mostly finds its entry where it was the last time. An entry in which nothing is counted can be given
 * to another role. When none is left, the other roles are counted together, in the first entry.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "queue/holder.h"

static bool
is_idle(const SweepQueueHolder *entry)
{
	return entry->held[HELD_LEASES] == 0 && entry->held[HELD_MESSAGES] == 0 && entry->held[HELD_SLOTS] == 0;
}

/* 0 if none is left. "but": an idle entry that is about to be used. */
static int
find_entry(Oid database, Oid role, int hint, int but)
{
	SweepQueueShared *shared = sweep_queue_memory.shared;
	int			idle = 0;

	for (int i = 0; i <= shared->holder_count; i++)
	{
		int			number = i == 0 ? hint : i;
		const SweepQueueHolder *entry = &shared->holders[number];

		if (number == 0)
			continue;
		if (entry->role == role && entry->database == database)
			return number;
		if (idle == 0 && number != but && is_idle(entry))
			idle = number;
	}
	if (idle == 0 && shared->holder_count < SWEEP_HOLDERS - 1)
		idle = ++shared->holder_count;
	if (idle != 0)
		shared->holders[idle] = (SweepQueueHolder) {.database = database, .role = role};
	return idle;
}

int
sweep_holder_find(Oid role)
{
	static int	hints[3];
	SweepQueueHolder *entry;

	if (!OidIsValid(role))
		return hints[2] = find_entry(MyDatabaseId, InvalidOid, hints[2], 0);
	hints[0] = find_entry(MyDatabaseId, role, hints[0], 0);
	entry = &sweep_queue_memory.shared->holders[hints[0]];
	/* The entries of the role and of the database may have been given to others while this one was idle. */
	if (hints[0] != 0 && is_idle(entry))
	{
		entry->of_role = hints[1] = find_entry(InvalidOid, role, hints[1], hints[0]);
		/* The entry of the role is in use before that of the database is looked for. */
		sweep_queue_memory.shared->holders[hints[1]].held[HELD_LEASES]++;
		entry->of_database = hints[2] = find_entry(MyDatabaseId, InvalidOid, hints[2], hints[0]);
		sweep_queue_memory.shared->holders[hints[1]].held[HELD_LEASES]--;
		if (entry->of_role == 0 || entry->of_database == 0)
			return hints[0] = 0;
	}
	return hints[0];
}

SweepUse
sweep_holder_use(int holder, SweepHeld what)
{
	const SweepQueueShared *shared = sweep_queue_memory.shared;
	const SweepQueueHolder *entry = &shared->holders[holder];
	SweepUse	use = {.of_role = entry->held[what], .all = shared->held[what]};

	if (entry->of_role != 0)
	{
		use.of_role = shared->holders[entry->of_role].held[what];
		use.of_database = shared->holders[entry->of_database].held[what];
	}
	return use;
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
	use = sweep_holder_use(sweep_holder_find(GetUserId()), what);
	for (int i = 1; i <= shared->holder_count; i++)
		if (!OidIsValid(shared->holders[i].database) && shared->holders[i].held[what] > most.held[what])
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
