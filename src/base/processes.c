/*
 * processes.c
 *		How many of the server's background processes a role may use, for runs and consumers together.
 *
 * pg_sweep.max_running_jobs and pg_sweep.max_consumers may be higher than the processes that max_worker_processes leaves. A share of these
 * settings could then be all processes, so a role is also limited to a share of the processes. Free processes are counted at each question,
 * because other extensions, logical replication and parallel queries start and end processes at any time.
 */
#include "postgres.h"

#include "fmgr.h"
#include "replication/walsender.h"
#include "storage/proc.h"
#include "utils/builtins.h"

#include "base/processes.h"
#include "base/shared.h"

static int	count(Oid role, SweepUse *use);
static int	count_free(void);

PG_FUNCTION_INFO_V1(sweep_processes_missing);

int
sweep_processes_count(void)
{
	SweepUse	use;
	int			total;

	sweep_shared_lock(LW_SHARED);
	total = count(InvalidOid, &use) + use.all;
	sweep_shared_unlock();
	return total;
}

int
sweep_processes_for_schedulers(void)
{
	SweepUse	use;
	int			count_used = 0;
	int			free;

	sweep_shared_lock(LW_SHARED);
	free = count(InvalidOid, &use);
	for (int i = 0; i < sweep_shared_database_count(); i++)
	{
		SweepDatabaseState state = sweep_shared_database(i)->state;

		count_used += state == DATABASE_STARTING || state == DATABASE_RUNNING;
	}
	sweep_shared_unlock();
	return Max((free + count_used) / 2, 1) - count_used;
}

int
sweep_processes_room(Oid role)
{
	SweepUse	use;
	int			free = count(role, &use);
	int			room = Min(sweep_quota_of_role(free + use.all) - use.of_role, free - 1);

	return Max(room, use.of_role == 0 ? 1 : 0);
}

int
sweep_processes_room_for_runs(Oid role, bool unlimited)
{
	int			room;

	if (!sweep_shared_exists())
		return 0;
	sweep_shared_lock(LW_SHARED);
	room = sweep_shared_room_for_runs(role, unlimited);
	if (!unlimited)
		room = Min(room, sweep_processes_room(role));
	sweep_shared_unlock();
	return room;
}

/* SQL: sweep._missing_worker(role oid, priority int) RETURNS text: the setting that keeps runs of this role and priority waiting in this database */
Datum
sweep_processes_missing(PG_FUNCTION_ARGS)
{
	Oid			role = PG_GETARG_OID(0);
	bool		unlimited = sweep_quota_is_unlimited(role);
	SweepRefusal refusal;
	const char *setting;

	if (!sweep_shared_exists())
		PG_RETURN_NULL();
	sweep_shared_lock(LW_SHARED);
	refusal = sweep_shared_refuses_run(role, unlimited, PG_GETARG_INT32(1) > 0);
	if (refusal == REFUSED_NOT && !unlimited && sweep_processes_room(role) == 0)
		refusal = REFUSED_ROLE_PROCESSES;
	sweep_shared_unlock();
	setting = sweep_quota_setting(refusal, "pg_sweep.max_running_jobs");
	if (setting == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(setting));
}

/* Returns the number of free processes. An idle worker counts as free, because it leaves for any other run. */
static int
count(Oid role, SweepUse *use)
{
	const SweepShared *shared = sweep_shared();
	int			free = count_free();

	memset(use, 0, sizeof(*use));
	for (int i = 0; i < sweep_shared_database_count(); i++)
		free -= sweep_shared_database(i)->state == DATABASE_STARTING;
	for (int i = 0; i < shared->slot_count; i++)
	{
		const SweepSlot *slot = &shared->slots[i];

		if (slot->state == SLOT_IDLE)
			free++;
		if (!slot->worker || !sweep_shared_is_claimed(slot))
			continue;
		free -= slot->state != SLOT_RUNNING && slot->procno == INVALID_PROC_NUMBER;
		use->all++;
		use->of_role += slot->role == role;
	}
	return Max(free, 0);
}

/*
 * Counts the entries of max_worker_processes without a process. Each background worker has an entry in the array of processes, between those
 * for autovacuum and for WAL senders, and owns its latch while it lives.
 */
static int
count_free(void)
{
	int			first = MaxBackends - max_wal_senders - max_worker_processes;
	int			free = max_worker_processes;

	for (int i = 0; i < max_worker_processes; i++)
		free -= GetPGProcByNumber(first + i)->procLatch.owner_pid != 0;
	return free;
}
