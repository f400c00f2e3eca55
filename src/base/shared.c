/*
 * shared.c
 *		Shared memory of the processes of pg_sweep.
 *
 * Everything in SweepShared is guarded by one LWLock, except the progress of a slot (its own spinlock,
 * written once per batch or transaction by its process, copied by readers) and the atomics. There are no pointers in it: a process is
 * identified by its pid and proc number, and a slot that is used again has a new generation.
 *
 * The table of slots has room for as many background runs and consumers as there can be workers and for some sessions that
 * CALL sweep.run; a session that finds no slot performs its run nevertheless, which is only not shown. All kinds use
 * any free slot, but each kind only as many as its number.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "mb/pg_wchar.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

#include "base/clock.h"
#include "base/settings.h"
#include "base/shared.h"

#define SESSION_SLOTS 64
#define TRANCHE "pg_sweep"

static SweepShared *shared = NULL;
static LWLock *shared_lock = NULL;

static SweepRefusal check_quota(const SweepClaimant *claimant);
static bool find_free_slot(const SweepClaimant *claimant, SweepSlot **slot);
static void set_run(SweepSlot *slot, int64 run_id);
static int	room_for_runs(bool preferred);
static void tell_of_end(SweepDatabase *entry);
static void count_slots(const SweepClaimant *claimant, SweepUse *use);
static Size databases_offset(void);
static Size memory_size(void);

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
	shared->launcher_left_us = sweep_monotonic_us();
	pg_atomic_init_u64(&shared->runs_said_us, 0);
	pg_atomic_init_u64(&shared->consumers_said_us, 0);
	shared->slot_count = max_worker_processes + SESSION_SLOTS;
	ConditionVariableInit(&shared->changed);
	for (int i = 0; i < (int) lengthof(shared->asked); i++)
	{
		pg_atomic_init_u32(&shared->asked[i], 0);
		pg_atomic_init_u32(&shared->prepared[i], 0);
	}
	for (int i = 0; i < sweep_shared_database_count(); i++)
		pg_atomic_init_u32(&sweep_shared_database(i)->asked, 0);
	for (int i = 0; i < shared->slot_count; i++)
	{
		pg_atomic_init_u32(&shared->slots[i].stop_request, 0);
		pg_atomic_init_u64(&shared->slots[i].timeout_deadline_us, 0);
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
sweep_shared_claim(const SweepClaimant *claimant, SweepRefusal *refusal)
{
	bool		worker = claimant->worker;
	SweepSlot  *slot;

	*refusal = REFUSED_NOT;
	if (!find_free_slot(claimant, &slot))
		return NULL;
	*refusal = check_quota(claimant);
	if (*refusal == REFUSED_NOT && slot == NULL)
		*refusal = REFUSED_ALL;
	if (*refusal != REFUSED_NOT)
		return NULL;
	if (slot->state == SLOT_FREE)
		slot->procno = worker ? INVALID_PROC_NUMBER : MyProcNumber;
	slot->state = worker ? SLOT_STARTING : SLOT_RUNNING;
	slot->handed_over = slot->waits_on = slot->launched = false;
	slot->worker = worker;
	slot->generation = ++shared->generation;
	slot->database = MyDatabaseId;
	slot->role = claimant->role;
	slot->consumer_id = claimant->consumer_id;
	slot->pid = worker ? 0 : MyProcPid;
	/* It may be longer if it had fewer bytes in the encoding of the database from which it was restored. */
	strlcpy(slot->job, claimant->job, pg_mbcliplen(claimant->job, strlen(claimant->job), sizeof(slot->job) - 1) + 1);
	set_run(slot, claimant->run_id);
	return slot;
}

static SweepRefusal
check_quota(const SweepClaimant *claimant)
{
	bool		run = claimant->worker && claimant->consumer_id == 0;
	SweepUse	use;
	SweepRefusal refusal;

	count_slots(claimant, &use);
	refusal = sweep_quota_check(&use, run ? sweep_max_running_jobs : claimant->worker ? sweep_max_consumers : SESSION_SLOTS, claimant->unlimited);
	return refusal == REFUSED_NOT && run && use.all >= room_for_runs(claimant->preferred) ? REFUSED_RESERVED : refusal;
}

static void
set_run(SweepSlot *slot, int64 run_id)
{
	slot->run_id = run_id;
	slot->follower = 0;
	slot->put_back = false;
	slot->claimed_us = sweep_monotonic_us();
	pg_atomic_write_u32(&slot->stop_request, 0);
	pg_atomic_write_u64(&slot->timeout_deadline_us, 0);
	slot->reminders = 0;
	memset(&slot->live, 0, sizeof(slot->live));
	slot->handled = slot->failed = 0;
	slot->last_error[0] = '\0';
}

void
sweep_shared_keep_follower(SweepSlot *slot, int64 run_id)
{
	sweep_shared_lock(LW_EXCLUSIVE);
	slot->follower = slot->worker ? run_id : 0;
	sweep_shared_unlock();
}

bool
sweep_shared_go_on(SweepSlot *slot)
{
	SweepDatabase *entry;
	bool		goes_on;

	sweep_shared_lock(LW_EXCLUSIVE);
	entry = sweep_shared_find_database(slot->database);
	goes_on = !shared->line && !shared->left_short && (entry == NULL || (!entry->leave && !entry->crowded));
	/* The runs of any database may wait for this one to end. */
	for (int i = 0; i < sweep_shared_database_count(); i++)
		goes_on &= sweep_shared_database(i)->state != DATABASE_RUNNING || sweep_shared_database(i)->short_of == REFUSED_NOT;
	if (goes_on)
	{
		set_run(slot, slot->follower);
		slot->definition_size = 0;
		/* No process has become free, so a scheduler need not be started. */
		if (entry != NULL)
			tell_of_end(entry);
	}
	sweep_shared_unlock();
	if (goes_on)
		ConditionVariableBroadcast(&shared->changed);
	return goes_on;
}

SweepDatabase *
sweep_shared_find_database(Oid database)
{
	for (int i = 0; i < sweep_shared_database_count(); i++)
	{
		SweepDatabase *entry = sweep_shared_database(i);

		if ((entry->state == DATABASE_STARTING || entry->state == DATABASE_RUNNING) && entry->database == database)
			return entry;
	}
	return NULL;
}

int
sweep_shared_database_count(void)
{
	return max_worker_processes;
}

SweepDatabase *
sweep_shared_database(int index)
{
	return (SweepDatabase *) ((char *) shared + databases_offset()) + index;
}

/* False when the run has a slot already, or is kept for a follower, or its scheduler is to leave. A slot with an idle worker of the role is preferred. */
static bool
find_free_slot(const SweepClaimant *claimant, SweepSlot **free_slot)
{
	const SweepDatabase *entry = claimant->worker ? sweep_shared_find_database(MyDatabaseId) : NULL;
	bool		run = claimant->consumer_id == 0;

	*free_slot = NULL;
	for (int i = 0; i < shared->slot_count; i++)
	{
		SweepSlot  *slot = &shared->slots[i];
		bool		idle = slot->state == SLOT_IDLE && slot->database == MyDatabaseId && slot->role == claimant->role && claimant->worker && run;

		if (run && sweep_shared_has_run(slot) && (slot->run_id == claimant->run_id || slot->follower == claimant->run_id))
			return false;
		if ((idle && (*free_slot == NULL || (*free_slot)->state == SLOT_FREE)) || (slot->state == SLOT_FREE && *free_slot == NULL))
			*free_slot = slot;
	}
	return entry == NULL || !entry->leave;
}

/* At least one slot is left for runs without preference, whatever is reserved. */
static int
room_for_runs(bool preferred)
{
	return preferred ? sweep_max_running_jobs : Max(sweep_max_running_jobs - sweep_reserved_workers, 1);
}

/* Counts the slots of the claimant's kind: background runs, consumers or sessions. */
static void
count_slots(const SweepClaimant *claimant, SweepUse *use)
{
	memset(use, 0, sizeof(*use));
	for (int i = 0; i < shared->slot_count; i++)
	{
		const SweepSlot *slot = &shared->slots[i];

		if (!sweep_shared_is_claimed(slot) || slot->worker != claimant->worker || (slot->consumer_id == 0) != (claimant->consumer_id == 0))
			continue;
		use->all++;
		use->of_role += slot->role == claimant->role;
		use->of_database += slot->database == MyDatabaseId;
	}
}

void
sweep_shared_unclaim(SweepSlot *slot)
{
	/* After a successful sweep.cancel the run must be recorded as not begun. */
	slot->state = slot->consumer_id != 0 || pg_atomic_read_u32(&slot->stop_request) == 0 ? SLOT_FREE : SLOT_UNOPENED;
}

bool
sweep_shared_look(int index, SweepSlot *copy)
{
	SweepSlot  *slot = &shared->slots[index];
	bool		used;

	if (index < 0 || index >= shared->slot_count)
		return false;
	sweep_shared_lock(LW_SHARED);
	used = slot->state != SLOT_FREE && slot->database == MyDatabaseId;
	SpinLockAcquire(&slot->mutex);
	memcpy(copy, slot, used ? sizeof(*copy) : 0);
	SpinLockRelease(&slot->mutex);
	sweep_shared_unlock();
	return used;
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
		slot->procno = MyProcNumber;
	}
	sweep_shared_unlock();
	return attached;
}

void
sweep_shared_release(SweepSlot *slot, bool opened, bool stays)
{
	Oid			database;

	sweep_shared_lock(LW_EXCLUSIVE);
	/* After a successful sweep.cancel a run that would go on waiting is recorded as not begun instead. */
	if (slot->put_back)
		opened = pg_atomic_read_u32(&slot->stop_request) == 0;
	database = slot->database;
	slot->follower = 0;
	slot->state = slot->worker && !opened ? SLOT_UNOPENED : stays ? SLOT_IDLE : SLOT_FREE;
	slot->pid = 0;
	sweep_shared_unlock();
	sweep_shared_note_end(database);
}

void
sweep_shared_note_end(Oid database)
{
	ProcNumber	asked = INVALID_PROC_NUMBER;

	sweep_shared_lock(LW_EXCLUSIVE);
	shared->released = true;
	for (int i = 0; i < sweep_shared_database_count(); i++)
	{
		SweepDatabase *entry = sweep_shared_database(i);

		if (entry->database == database || entry->short_of != REFUSED_NOT)
			tell_of_end(entry);
	}
	if (shared->left_short)
		sweep_shared_wake(shared->launcher);
	if (OidIsValid(database) && sweep_shared_find_database(database) == NULL)
		asked = sweep_shared_ask(database);
	sweep_shared_unlock();
	ConditionVariableBroadcast(&shared->changed);
	sweep_shared_wake(asked);
}

/* Also wakes a scheduler whose flag is set, because within a tick it looks again after each end of a run. */
static void
tell_of_end(SweepDatabase *entry)
{
	if (entry->state != DATABASE_RUNNING)
		return;
	entry->ended = true;
	sweep_shared_wake(entry->procno);
}

int
sweep_shared_room_for_runs(Oid role, bool unlimited)
{
	SweepUse	use;

	count_slots(&(SweepClaimant) {.worker = true, .role = role}, &use);
	return Min(sweep_quota_room(&use, sweep_max_running_jobs, unlimited), Max(room_for_runs(false) - use.all, 0));
}

SweepRefusal
sweep_shared_refuses_run(Oid role, bool unlimited, bool preferred)
{
	const SweepDatabase *entry = sweep_shared_find_database(MyDatabaseId);
	SweepRefusal refusal = check_quota(&(SweepClaimant) {.worker = true, .role = role, .unlimited = unlimited, .preferred = preferred});

	/* Only the scheduler knows whether processes are missing; without a scheduler, the launcher. */
	if (refusal == REFUSED_NOT && (entry != NULL ? entry->short_of == REFUSED_PROCESSES : shared->line || shared->left_short))
		refusal = REFUSED_PROCESSES;
	return refusal;
}

void
sweep_shared_wake_schedulers(void)
{
	for (int i = 0; i < sweep_shared_database_count(); i++)
	{
		if (sweep_shared_database(i)->state == DATABASE_RUNNING)
			sweep_shared_wake(sweep_shared_database(i)->procno);
	}
}

/* If several schedulers have runs that wait for a process, only the first one stays. */
bool
sweep_shared_gives_way(const SweepDatabase *entry)
{
	for (int i = 0; i < sweep_shared_database_count() && !shared->line; i++)
	{
		const SweepDatabase *other = sweep_shared_database(i);

		if (other->state == DATABASE_RUNNING && other->short_of == REFUSED_PROCESSES)
			return other != entry;
	}
	return shared->line;
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

/* A starting scheduler has no process to wake yet, and finds the flag at its first tick. */
ProcNumber
sweep_shared_ask(Oid database)
{
	SweepDatabase *entry = sweep_shared_find_database(database);
	uint32		bit = sweep_shared_bit(database);

	if (entry != NULL)
	{
		pg_atomic_write_u32(&entry->asked, database);
		return entry->procno;
	}
	pg_atomic_fetch_or_u32(&shared->asked[bit / 32], 1U << bit % 32);
	return shared->launcher;
}

uint32
sweep_shared_bit(Oid database)
{
	return hash_bytes_uint32(database) % SWEEP_ASKED_BITS;
}

bool
sweep_shared_is_set(const bool *flag)
{
	bool		set;

	sweep_shared_lock(LW_SHARED);
	set = *flag;
	sweep_shared_unlock();
	return set;
}

void
sweep_shared_set(bool *flag, bool value)
{
	sweep_shared_lock(LW_EXCLUSIVE);
	*flag = value;
	sweep_shared_unlock();
}

static Size
memory_size(void)
{
	return add_size(databases_offset(), mul_size(sizeof(SweepDatabase), sweep_shared_database_count()));
}

/* The entries of databases come after the slots. */
static Size
databases_offset(void)
{
	return MAXALIGN(add_size(offsetof(SweepShared, slots), mul_size(sizeof(SweepSlot), max_worker_processes + SESSION_SLOTS)));
}
