/*
 * ask.c
 *		Has a scheduler look into a database.
 *
 * A flag is set after the commit that it tells of has become visible, and is taken back, under the lock, before the
 * snapshot that looks. A process that finds the flag set may therefore leave it at that. The flag is in the entry of
 * the scheduler while there is one that has not left; whether it may leave is decided under the lock as well. Without one it is
 * a bit that several databases share: the launcher takes it back, starts a scheduler in each of them that has none, and
 * passes it on to those that it has started since. Model: test/model/idle.pml.
 */
#include "postgres.h"

#include "base/ask.h"

void
sweep_ask(Oid database)
{
	uint32		bit;
	ProcNumber	asked;

	if (!sweep_shared_exists())
		return;
	bit = sweep_shared_bit(database);
	/* The commit first, then the flags. */
	pg_memory_barrier();
	if (pg_atomic_read_u32(&sweep_shared()->asked[bit / 32]) & (1U << bit % 32))
		return;
	for (int i = 0; i < sweep_shared_database_count(); i++)
	{
		if (pg_atomic_read_u32(&sweep_shared_database(i)->asked) == database)
			return;
	}
	sweep_shared_lock(LW_EXCLUSIVE);
	asked = sweep_shared_ask(database);
	sweep_shared_unlock();
	sweep_shared_wake(asked);
}

void
sweep_ask_to_notify(Oid database)
{
	SweepDatabase *entry;
	ProcNumber	asked;

	sweep_shared_lock(LW_EXCLUSIVE);
	entry = sweep_shared_find_database(database);
	if (entry != NULL)
		entry->news = true;
	asked = entry != NULL ? entry->procno : sweep_shared_ask(database);
	sweep_shared_unlock();
	sweep_shared_wake(asked);
}

/* Nothing says which prepared transaction has ended. sweep._next_wake() looks for those that are older than the server. */
void
sweep_ask_for_prepared(void)
{
	uint32		bit = sweep_shared_bit(MyDatabaseId);

	if (pg_atomic_read_u32(&sweep_shared()->prepared[bit / 32]) & (1U << bit % 32))
		sweep_ask(MyDatabaseId);
}

void
sweep_ask_note_prepared(void)
{
	uint32		bit = sweep_shared_bit(MyDatabaseId);

	pg_atomic_fetch_or_u32(&sweep_shared()->prepared[bit / 32], 1U << bit % 32);
}
