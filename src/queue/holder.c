/*
 * holder.c
 *		Who has claimed how many messages.
 *
 * A claim must not become slower by being counted, so nothing is counted when somebody asks: an entry per
 * role in a database, one per role and one per database go up and down with each message that is claimed or
 * blocked. They are kept under the lock that a claim has anyway. There are few of them, and a process mostly
 * finds its own where it was the last time.
 *
 * An entry in which nothing is counted is given to whoever needs one. Should so many roles hold messages at
 * a time that none is free, the others are counted together, in the first entry.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "queue/holder.h"

static int	find_entry(Oid database, Oid role, int hint);
static bool is_idle(const SweepQueueHolder *entry);

int
sweep_holder_find(Oid role)
{
	static int	hints[3] = {SWEEP_HOLDER_OTHERS, SWEEP_HOLDER_OTHERS, SWEEP_HOLDER_OTHERS};
	SweepQueueHolder *entry;

	hints[0] = find_entry(MyDatabaseId, role, hints[0]);
	entry = sweep_holder_entry(hints[0]);
	/* While it was idle, the others may have been given away. What is about to be used is not idle. */
	if (hints[0] != SWEEP_HOLDER_OTHERS && is_idle(entry))
	{
		entry->leases++;
		hints[1] = entry->of_role = find_entry(InvalidOid, role, hints[1]);
		sweep_holder_entry(entry->of_role)->leases++;
		hints[2] = entry->of_database = find_entry(MyDatabaseId, InvalidOid, hints[2]);
		sweep_holder_entry(entry->of_role)->leases--;
		entry->leases--;
	}
	return hints[0];
}

static int
find_entry(Oid database, Oid role, int hint)
{
	SweepQueueShared *shared = sweep_queue_memory.shared;
	int			idle = SWEEP_HOLDER_OTHERS;

	for (int i = SWEEP_HOLDER_OTHERS; i <= shared->holder_count; i++)
	{
		int			number = i == SWEEP_HOLDER_OTHERS ? hint : i;
		const SweepQueueHolder *entry = sweep_holder_entry(number);

		if (number != SWEEP_HOLDER_OTHERS && entry->role == role && entry->database == database)
			return number;
		if (number != SWEEP_HOLDER_OTHERS && idle == SWEEP_HOLDER_OTHERS && is_idle(entry))
			idle = number;
	}
	if (idle == SWEEP_HOLDER_OTHERS && shared->holder_count < SWEEP_HOLDERS - 1)
		idle = ++shared->holder_count;
	if (idle != SWEEP_HOLDER_OTHERS)
	{
		memset(sweep_holder_entry(idle), 0, sizeof(SweepQueueHolder));
		sweep_holder_entry(idle)->role = role;
		sweep_holder_entry(idle)->database = database;
	}
	return idle;
}

static bool
is_idle(const SweepQueueHolder *entry)
{
	return entry->leases == 0 && entry->messages == 0;
}

SweepUse
sweep_holder_use(int holder)
{
	const SweepQueueHolder *entry = sweep_holder_entry(holder);
	SweepUse	use = {.of_role = entry->messages};

	if (holder != SWEEP_HOLDER_OTHERS)
	{
		use.of_role = sweep_holder_entry(entry->of_role)->messages;
		use.of_database = sweep_holder_entry(entry->of_database)->messages;
	}
	return use;
}

void
sweep_holder_refuse(Oid role, SweepRefusal refusal)
{
	SweepUse	use = {0};
	SweepQueueHolder most = {0};
	char	   *name = GetUserNameFromId(role, true);
	char	   *most_name;

	sweep_queue_lock(LW_SHARED);
	use.all = sweep_queue_memory.shared->held_count;
	for (int i = SWEEP_HOLDER_OTHERS; i <= sweep_queue_memory.shared->holder_count; i++)
	{
		const SweepQueueHolder *entry = sweep_holder_entry(i);

		if (entry->database == InvalidOid && entry->role == role)
			use.of_role = entry->messages;
		else if (entry->database == MyDatabaseId && entry->role == InvalidOid)
			use.of_database = entry->messages;
		if (entry->database == InvalidOid && OidIsValid(entry->role) && entry->messages > most.messages)
			most = *entry;
	}
	sweep_queue_unlock();
	most_name = OidIsValid(most.role) ? GetUserNameFromId(most.role, true) : NULL;
	ereport(ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 refusal == REFUSED_ROLE ? errmsg("role \"%s\" has claimed too many messages", name ? name : "") :
			 refusal == REFUSED_DATABASE ? errmsg("too many messages are claimed in this database") :
			 errmsg("too many messages are claimed"),
			 errdetail("Role \"%s\" holds %d and this database %d of %d; %d are in use in all, most of them, %d, by role \"%s\".",
					   name ? name : "", use.of_role, use.of_database, sweep_max_in_flight, use.all, most.messages,
					   most_name ? most_name : ""),
			 refusal == REFUSED_ALL ? errhint("Acknowledge some, or increase pg_sweep.max_in_flight and restart the server.") :
			 errhint("Acknowledge some, or raise %s.", sweep_quota_setting(refusal, NULL))));
}
