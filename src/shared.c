/*
 * shared.c
 *		Shared memory of the processes of pg_sweep.
 *
 * Everything in SweepShared is guarded by one LWLock, except the progress of a slot (its own spinlock,
 * written once per batch by the run, copied by readers) and the atomics. There are no pointers in it:
 * a process is named by its pid and its proc number, a recycled slot is told by its generation.
 *
 * The table of slots has room for pg_sweep.max_running_jobs background runs and for some sessions that
 * CALL sweep.run; a session that finds no slot runs all the same, it is just not shown.
 */
#include "postgres.h"

#include <signal.h>
#include <time.h>

#include "fmgr.h"
#include "funcapi.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "settings.h"
#include "shared.h"

#define SESSION_SLOTS 64
#define TRANCHE "pg_sweep"

const char *const sweep_phase_names[] = {"starting", "lease", "step", "commit", "ending"};

StaticAssertDecl(lengthof(sweep_phase_names) == PHASE_ENDING + 1, "every phase has a name");

static SweepShared *shared = NULL;
static LWLock *shared_lock = NULL;

static void wake_scheduler(Oid database, bool asked);
static bool sees_all_runs(void);
static Size memory_size(void);

PG_FUNCTION_INFO_V1(sweep_shared_signal_cancel);
PG_FUNCTION_INFO_V1(sweep_shared_running);

void
sweep_shared_request(void)
{
	RequestAddinShmemSpace(memory_size());
	RequestNamedLWLockTranche(TRANCHE, 1);
}

void
sweep_shared_initialize(void)
{
	bool		found;

	shared = ShmemInitStruct("pg_sweep", memory_size(), &found);
	shared_lock = &GetNamedLWLockTranche(TRANCHE)->lock;
	if (found)
		return;
	memset(shared, 0, memory_size());
	shared->launcher = INVALID_PROC_NUMBER;
	shared->slot_count = sweep_max_running_jobs + SESSION_SLOTS;
	ConditionVariableInit(&shared->changed);
	for (int i = 0; i < shared->slot_count; i++)
	{
		pg_atomic_init_u32(&shared->slots[i].stop_request, 0);
		pg_atomic_init_u64(&shared->slots[i].lease_deadline_us, 0);
		SpinLockInit(&shared->slots[i].mutex);
	}
}

bool
sweep_shared_exists(void)
{
	return shared != NULL;
}

SweepShared *
sweep_shared(void)
{
	return shared;
}

void
sweep_shared_lock(LWLockMode mode)
{
	LWLockAcquire(shared_lock, mode);
}

void
sweep_shared_unlock(void)
{
	LWLockRelease(shared_lock);
}

SweepSlot *
sweep_shared_claim(Oid database, Oid role, int64 run_id, const char *job, bool worker)
{
	SweepSlot  *slot = NULL;
	int			workers = 0;

	sweep_shared_lock(LW_EXCLUSIVE);
	for (int i = 0; i < shared->slot_count; i++)
	{
		SweepSlot  *candidate = &shared->slots[i];

		if (candidate->state == SLOT_FREE)
		{
			if (slot == NULL)
				slot = candidate;
		}
		else if (candidate->database == database && candidate->run_id == run_id)
		{
			sweep_shared_unlock();
			return NULL;
		}
		else if (candidate->worker && candidate->state != SLOT_UNOPENED)
			workers++;
	}
	if (worker && workers >= sweep_max_running_jobs)
		slot = NULL;
	if (slot != NULL)
	{
		slot->state = worker ? SLOT_STARTING : SLOT_RUNNING;
		slot->worker = worker;
		slot->generation = ++shared->generation;
		slot->database = database;
		slot->role = role;
		slot->run_id = run_id;
		slot->pid = worker ? 0 : MyProcPid;
		slot->claimed_at = GetCurrentTimestamp();
		strlcpy(slot->job, job, sizeof(slot->job));
		pg_atomic_write_u32(&slot->stop_request, 0);
		pg_atomic_write_u64(&slot->lease_deadline_us, 0);
		memset(&slot->live, 0, sizeof(slot->live));
	}
	sweep_shared_unlock();
	return slot;
}

void
sweep_shared_unclaim(SweepSlot *slot)
{
	sweep_shared_lock(LW_EXCLUSIVE);
	slot->state = SLOT_FREE;
	sweep_shared_unlock();
}

bool
sweep_shared_attach(SweepSlot *slot, uint64 generation)
{
	bool		attached;

	sweep_shared_lock(LW_EXCLUSIVE);
	attached = slot->generation == generation && slot->state == SLOT_STARTING;
	if (attached)
	{
		slot->state = SLOT_RUNNING;
		slot->pid = MyProcPid;
	}
	sweep_shared_unlock();
	return attached;
}

void
sweep_shared_release(SweepSlot *slot, bool opened)
{
	ProcNumber	schedulers[SWEEP_MAX_DATABASES];
	int			count = 0;

	sweep_shared_lock(LW_EXCLUSIVE);
	slot->state = slot->worker && !opened ? SLOT_UNOPENED : SLOT_FREE;
	slot->pid = 0;
	for (int i = 0; i < SWEEP_MAX_DATABASES; i++)
	{
		SweepDatabase *entry = &shared->databases[i];

		if (entry->state == DATABASE_RUNNING && (entry->database == slot->database || entry->short_of_workers))
		{
			entry->asked = true;
			schedulers[count++] = entry->procno;
		}
	}
	sweep_shared_unlock();
	ConditionVariableBroadcast(&shared->changed);
	for (int i = 0; i < count; i++)
		sweep_shared_wake(schedulers[i]);
}

SweepSlot *
sweep_shared_find(Oid database, int64 run_id)
{
	for (int i = 0; i < shared->slot_count; i++)
	{
		SweepSlot  *slot = &shared->slots[i];

		if (slot->state != SLOT_FREE && slot->database == database && slot->run_id == run_id)
			return slot;
	}
	return NULL;
}

int
sweep_shared_count_runs(Oid database)
{
	int			count = 0;

	sweep_shared_lock(LW_SHARED);
	for (int i = 0; i < shared->slot_count; i++)
	{
		SweepSlot  *slot = &shared->slots[i];

		if ((slot->state == SLOT_STARTING || slot->state == SLOT_RUNNING) && slot->database == database)
			count++;
	}
	sweep_shared_unlock();
	return count;
}

int
sweep_shared_count_free_workers(void)
{
	int			count = sweep_max_running_jobs;

	if (shared == NULL)
		return 0;
	sweep_shared_lock(LW_SHARED);
	for (int i = 0; i < shared->slot_count; i++)
	{
		SweepSlot  *slot = &shared->slots[i];

		if (slot->worker && (slot->state == SLOT_STARTING || slot->state == SLOT_RUNNING))
			count--;
	}
	sweep_shared_unlock();
	return Max(count, 0);
}

void
sweep_shared_wake(ProcNumber procno)
{
	if (procno != INVALID_PROC_NUMBER)
		SetLatch(&GetPGProcByNumber(procno)->procLatch);
}

void
sweep_shared_wake_launcher(bool rescan)
{
	ProcNumber	launcher;

	sweep_shared_lock(LW_EXCLUSIVE);
	if (rescan)
		shared->rescan = true;
	launcher = shared->launcher;
	sweep_shared_unlock();
	sweep_shared_wake(launcher);
}

void
sweep_shared_ask_scheduler(Oid database)
{
	wake_scheduler(database, true);
}

void
sweep_shared_wake_scheduler(Oid database)
{
	wake_scheduler(database, false);
}

static void
wake_scheduler(Oid database, bool asked)
{
	ProcNumber	scheduler = INVALID_PROC_NUMBER;

	sweep_shared_lock(LW_EXCLUSIVE);
	for (int i = 0; i < SWEEP_MAX_DATABASES; i++)
	{
		SweepDatabase *entry = &shared->databases[i];

		if (entry->state != DATABASE_RUNNING || entry->database != database)
			continue;
		entry->asked |= asked;
		scheduler = entry->procno;
	}
	sweep_shared_unlock();
	sweep_shared_wake(scheduler);
}

int64
sweep_monotonic_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64) now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int64
sweep_interval_us(const Interval *interval)
{
	int64		days = interval->month * INT64CONST(30) + interval->day + interval->time / USECS_PER_DAY;

	if (days >= SWEEP_LONGEST_DAYS)
		return SWEEP_LONGEST_DAYS * USECS_PER_DAY;
	if (days <= -SWEEP_LONGEST_DAYS)
		return -SWEEP_LONGEST_DAYS * USECS_PER_DAY;
	return days * USECS_PER_DAY + interval->time % USECS_PER_DAY;
}

/* SQL: sweep._signal_cancel(run_id bigint) RETURNS boolean: false when no process runs it */
Datum
sweep_shared_signal_cancel(PG_FUNCTION_ARGS)
{
	SweepSlot  *slot;
	bool		found;

	if (shared == NULL)
		PG_RETURN_BOOL(false);

	/*
	 * The signal is sent under the lock: the process must take it to give the slot back, so the signal
	 * cannot hit what the process does afterwards.
	 */
	sweep_shared_lock(LW_EXCLUSIVE);
	slot = sweep_shared_find(MyDatabaseId, PG_GETARG_INT64(0));
	found = slot != NULL && (slot->state == SLOT_RUNNING || slot->state == SLOT_STARTING);
	if (found)
	{
		pg_atomic_fetch_or_u32(&slot->stop_request, SWEEP_STOP_REQUEST_CANCEL);
		if (slot->pid != 0)
			kill(slot->pid, SIGINT);
	}
	sweep_shared_unlock();
	PG_RETURN_BOOL(found);
}

/*
 * SQL: sweep._running() RETURNS SETOF record: one row per run in progress in this database. Source of
 * sweep.running.
 */
Datum
sweep_shared_running(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	bool		sees_all = sees_all_runs();

	InitMaterializedSRF(fcinfo, 0);
	if (shared == NULL)
		return (Datum) 0;
	sweep_shared_lock(LW_SHARED);
	for (int i = 0; i < shared->slot_count; i++)
	{
		SweepSlot  *slot = &shared->slots[i];
		SweepLiveProgress live;
		Datum		values[11];
		bool		nulls[11] = {0};

		if (slot->state == SLOT_FREE || slot->state == SLOT_UNOPENED || slot->database != MyDatabaseId ||
			!(sees_all || is_member_of_role(GetUserId(), slot->role)))
			continue;
		SpinLockAcquire(&slot->mutex);
		live = slot->live;
		SpinLockRelease(&slot->mutex);
		values[0] = Int64GetDatum(slot->run_id);
		values[1] = CStringGetTextDatum(slot->job);
		values[2] = Int32GetDatum(slot->pid);
		nulls[2] = slot->pid == 0;
		values[3] = CStringGetTextDatum(sweep_phase_names[live.phase]);
		values[4] = Int64GetDatum(live.batches);
		values[5] = Int64GetDatum(live.rows);
		values[6] = Float8GetDatum(live.last_batch_us / 1000.0);
		nulls[6] = live.batches == 0;
		values[7] = Int32GetDatum(live.batch_size);
		values[8] = Int64GetDatum(live.estimated_rows);
		nulls[8] = live.estimated_rows == 0;
		values[9] = TimestampTzGetDatum(live.started_at);
		nulls[9] = live.started_at == 0;
		values[10] = TimestampTzGetDatum(live.deadline);
		nulls[10] = live.deadline == 0;
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	sweep_shared_unlock();
	return (Datum) 0;
}

/* Whether the current user may see the runs of all roles, as in sweep._may_see(). */
static bool
sees_all_runs(void)
{
	static const char *const roles[] = {"sweep_monitor", "sweep_operator", "sweep_admin"};

	for (size_t i = 0; i < lengthof(roles); i++)
	{
		Oid			role = get_role_oid(roles[i], true);

		if (OidIsValid(role) && is_member_of_role(GetUserId(), role))
			return true;
	}
	return false;
}

static Size
memory_size(void)
{
	return add_size(offsetof(SweepShared, slots),
					mul_size(sizeof(SweepSlot), sweep_max_running_jobs + SESSION_SLOTS));
}
