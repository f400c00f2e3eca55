/*
 * consumer_shared.c
 *		Shared memory of the consumers in the databases.
 *
 * A table of slots, as many as there can be workers, under one lock, which is not the lock of the runs. The scheduler claims a slot and starts a
 * process. The process frees the slot when it ends, and writes its counters once per transaction, under the spinlock of the slot. There are no
 * pointers in it: a process is identified by its proc number, and a slot that is used again has a new generation.
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "base/ask.h"
#include "base/clock.h"
#include "base/consumer_shared.h"
#include "base/role.h"
#include "base/settings.h"
#include "base/shared.h"

#define TRANCHE "pg_sweep_consumers"

typedef struct SharedConsumers
{
	uint64		generation;
	SweepConsumerSlot slots[FLEXIBLE_ARRAY_MEMBER];
} SharedConsumers;

static SharedConsumers *consumers = NULL;
static LWLock *consumers_lock = NULL;

static Size memory_size(void);
static void add_use(const SweepConsumerSlot *slot, Oid role, SweepUse *use);
static void dismiss(Oid database, int32 consumer_id, int surplus);
static void put_process(ReturnSetInfo *result, const SweepConsumerSlot *slot);

PG_FUNCTION_INFO_V1(sweep_consumer_shared_list);

void
sweep_consumer_shared_request(void)
{
	RequestAddinShmemSpace(memory_size());
	RequestNamedLWLockTranche(TRANCHE, 1);
}

void
sweep_consumer_shared_initialize(void)
{
	bool		found;

	consumers = ShmemInitStruct(TRANCHE, memory_size(), &found);
	consumers_lock = &GetNamedLWLockTranche(TRANCHE)->lock;
	if (found)
		return;
	memset(consumers, 0, memory_size());
	for (int i = 0; i < sweep_consumer_shared_count(); i++)
	{
		pg_atomic_init_u32(&consumers->slots[i].leave, 0);
		SpinLockInit(&consumers->slots[i].mutex);
	}
}

int
sweep_consumer_shared_count(void)
{
	return consumers == NULL ? 0 : max_worker_processes;
}

SweepConsumerSlot *
sweep_consumer_shared_slot(int index)
{
	return &consumers->slots[index];
}

int
sweep_consumer_shared_claim(int32 consumer_id, Oid role, bool unlimited, SweepRefusal *refusal)
{
	int			found = -1;
	SweepUse	use = {0};

	LWLockAcquire(consumers_lock, LW_EXCLUSIVE);
	for (int i = 0; i < sweep_consumer_shared_count(); i++)
	{
		const SweepConsumerSlot *slot = &consumers->slots[i];

		if (slot->state == CONSUMER_FREE)
			found = found < 0 ? i : found;
		else
			add_use(slot, role, &use);
	}
	*refusal = sweep_quota_check(&use, sweep_max_consumers, unlimited);
	if (*refusal == REFUSED_NOT && found < 0)
		*refusal = REFUSED_ALL;
	if (*refusal != REFUSED_NOT)
		found = -1;
	if (found >= 0)
	{
		SweepConsumerSlot *slot = &consumers->slots[found];

		slot->state = CONSUMER_STARTING;
		slot->generation = ++consumers->generation;
		slot->database = MyDatabaseId;
		slot->role = role;
		slot->consumer_id = consumer_id;
		slot->pid = 0;
		slot->procno = INVALID_PROC_NUMBER;
		slot->claimed_at = GetCurrentTimestamp();
		slot->claimed_us = sweep_monotonic_us();
		slot->handled = slot->failed = 0;
		slot->last_error[0] = '\0';
		pg_atomic_write_u32(&slot->leave, 0);
	}
	LWLockRelease(consumers_lock);
	return found;
}

static void
add_use(const SweepConsumerSlot *slot, Oid role, SweepUse *use)
{
	use->all++;
	use->of_role += slot->role == role;
	use->of_database += slot->database == MyDatabaseId;
}

int
sweep_consumer_shared_add_use(Oid role, SweepUse *use)
{
	int			starting = 0;

	LWLockAcquire(consumers_lock, LW_SHARED);
	for (int i = 0; i < sweep_consumer_shared_count(); i++)
	{
		const SweepConsumerSlot *slot = &consumers->slots[i];

		starting += slot->state == CONSUMER_STARTING;
		if (slot->state != CONSUMER_FREE)
			add_use(slot, role, use);
	}
	LWLockRelease(consumers_lock);
	return starting;
}

void
sweep_consumer_shared_unclaim(int index)
{
	LWLockAcquire(consumers_lock, LW_EXCLUSIVE);
	if (consumers->slots[index].state == CONSUMER_STARTING)
		consumers->slots[index].state = CONSUMER_FREE;
	LWLockRelease(consumers_lock);
}

bool
sweep_consumer_shared_attach(int index, uint64 generation)
{
	SweepConsumerSlot *slot = &consumers->slots[index];
	bool		attached;

	LWLockAcquire(consumers_lock, LW_EXCLUSIVE);
	attached = slot->generation == generation && slot->state == CONSUMER_STARTING;
	if (attached)
	{
		slot->state = CONSUMER_RUNNING;
		slot->pid = MyProcPid;
		slot->procno = MyProcNumber;
	}
	LWLockRelease(consumers_lock);
	return attached;
}

void
sweep_consumer_shared_release(int index)
{
	Oid			database;

	LWLockAcquire(consumers_lock, LW_EXCLUSIVE);
	database = consumers->slots[index].database;
	consumers->slots[index].state = CONSUMER_FREE;
	LWLockRelease(consumers_lock);
	ConditionVariableBroadcast(&sweep_shared()->changed);
	sweep_ask(database);
}

SweepConsumerState
sweep_consumer_shared_look(int index, SweepConsumerSlot *copy)
{
	SweepConsumerSlot *slot = &consumers->slots[index];

	if (index < 0 || index >= sweep_consumer_shared_count())
		return CONSUMER_FREE;
	LWLockAcquire(consumers_lock, LW_SHARED);
	SpinLockAcquire(&slot->mutex);
	memcpy(copy, slot, sizeof(*copy));
	SpinLockRelease(&slot->mutex);
	LWLockRelease(consumers_lock);
	return copy->database == MyDatabaseId ? copy->state : CONSUMER_FREE;
}

int
sweep_consumer_shared_processes(int32 consumer_id)
{
	int			count = 0;

	LWLockAcquire(consumers_lock, LW_SHARED);
	for (int i = 0; i < sweep_consumer_shared_count(); i++)
	{
		SweepConsumerSlot *slot = &consumers->slots[i];

		if (slot->state != CONSUMER_FREE && slot->database == MyDatabaseId && slot->consumer_id == consumer_id &&
			pg_atomic_read_u32(&slot->leave) == 0)
			count++;
	}
	LWLockRelease(consumers_lock);
	return count;
}

void
sweep_consumer_shared_dismiss(Oid database, int32 consumer_id, int surplus)
{
	LWLockAcquire(consumers_lock, LW_SHARED);
	dismiss(database, consumer_id, surplus);
	LWLockRelease(consumers_lock);
}

/* The caller has the lock. */
static void
dismiss(Oid database, int32 consumer_id, int surplus)
{
	for (int i = 0; i < sweep_consumer_shared_count() && surplus > 0; i++)
	{
		SweepConsumerSlot *slot = &consumers->slots[i];

		if (slot->state == CONSUMER_FREE || slot->database != database ||
			(consumer_id >= 0 && slot->consumer_id != consumer_id) ||
			pg_atomic_exchange_u32(&slot->leave, 1) != 0)
			continue;
		surplus--;
		sweep_shared_wake(slot->procno);
	}
}

/* A process that was asked to leave already does not count. */
void
sweep_consumer_shared_dismiss_excess(Oid database)
{
	int			excess = -sweep_max_consumers;

	LWLockAcquire(consumers_lock, LW_EXCLUSIVE);
	for (int i = 0; i < sweep_consumer_shared_count(); i++)
	{
		SweepConsumerSlot *slot = &consumers->slots[i];

		excess += slot->state != CONSUMER_FREE && pg_atomic_read_u32(&slot->leave) == 0;
	}
	dismiss(database, -1, excess);
	LWLockRelease(consumers_lock);
}

bool
sweep_consumer_shared_any(Oid database)
{
	bool		any = false;

	LWLockAcquire(consumers_lock, LW_SHARED);
	for (int i = 0; i < sweep_consumer_shared_count(); i++)
		any |= consumers->slots[i].state != CONSUMER_FREE && consumers->slots[i].database == database;
	LWLockRelease(consumers_lock);
	return any;
}

void
sweep_consumer_shared_note(int index, int64 messages, const char *error)
{
	SweepConsumerSlot *slot = &consumers->slots[index];
	int			length = error == NULL ? 0 : pg_mbcliplen(error, strlen(error), SWEEP_CONSUMER_ERROR_SIZE - 1);

	SpinLockAcquire(&slot->mutex);
	if (error == NULL)
		slot->handled += messages;
	else
	{
		slot->failed += messages;
		memcpy(slot->last_error, error, length);
		slot->last_error[length] = '\0';
	}
	SpinLockRelease(&slot->mutex);
}

/*
 * SQL: sweep._consumer_processes() RETURNS SETOF record: source of sweep.consumers. Every role may call it, so it
 * shows a role only the rows that the view would show: an error may contain parts of a message.
 */
Datum
sweep_consumer_shared_list(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < sweep_consumer_shared_count(); i++)
	{
		SweepConsumerSlot slot;

		if (sweep_consumer_shared_look(i, &slot) == CONSUMER_RUNNING && (sweep_role_acts_for(GetUserId(), slot.role) || sweep_role_sees_all(GetUserId())))
			put_process(result, &slot);
	}
	return (Datum) 0;
}

static void
put_process(ReturnSetInfo *result, const SweepConsumerSlot *slot)
{
	Datum		values[] = {
		Int32GetDatum(slot->consumer_id), Int32GetDatum(slot->pid), Int64GetDatum(slot->handled), Int64GetDatum(slot->failed),
		TimestampTzGetDatum(slot->claimed_at), CStringGetTextDatum(slot->last_error)
	};
	bool		nulls[lengthof(values)] = {[5] = slot->last_error[0] == '\0'};

	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

static Size
memory_size(void)
{
	return add_size(offsetof(SharedConsumers, slots),
					mul_size(sizeof(SweepConsumerSlot), max_worker_processes));
}
