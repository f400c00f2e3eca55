/*
 * memory.c
 *		Requests, lays out and initializes the shared memory of the queues.
 *
 * Called while the server starts. One lightweight lock guards all of it: work under the lock takes a microsecond or two, less than the rest of
 * any claim. With a lock per queue a second one would be needed for the leases, which all queues share.
 */
#include "postgres.h"

#include "access/twophase.h"
#include "miscadmin.h"
#include "storage/shmem.h"

#include "queue/memory.h"
#include "queue/queue.h"

#define TRANCHE "pg_sweep_queue"

/* Time for a woken process to take the lock, in us. */
#define LEND_US 100

StaticAssertDecl(sizeof(SweepQueueSlot) > 33000 && sizeof(SweepQueueSlot) < 35000, "pg_sweep.max_queues says what a queue takes");
StaticAssertDecl(sizeof(SweepInFlight) + sizeof(SweepQueueLease) + 2 * sizeof(int) <= 150, "pg_sweep.max_in_flight says what a message takes");

SweepQueueMemory sweep_queue_memory;

static void *
take_part(char *base, Size *size, Size part)
{
	Size		offset = *size;

	*size = add_size(offset, MAXALIGN(part));
	return base != NULL ? base + offset : NULL;
}

/* Sets the pointers into the memory, if there is any yet, and returns its size. */
static Size
lay_out(char *base)
{
	SweepQueueMemory *memory = &sweep_queue_memory;
	Size		size = 0;

	/* Maximal number of transactions in progress. */
	memory->running_limit = MaxBackends + max_prepared_xacts;
	memory->prepared_limit = 4 * max_prepared_xacts;
	memory->shared = take_part(base, &size, sizeof(SweepQueueShared));
	memory->slots = take_part(base, &size, mul_size(sizeof(SweepQueueSlot), sweep_max_queues));
	memory->slot_chains = take_part(base, &size, mul_size(sizeof(int), sweep_max_queues));
	memory->searched = take_part(base, &size, mul_size(sizeof(ConditionVariable), sweep_max_queues));
	memory->in_flight = take_part(base, &size, mul_size(sizeof(SweepInFlight), sweep_max_in_flight));
	memory->leases = take_part(base, &size, mul_size(sizeof(SweepQueueLease), sweep_max_in_flight));
	memory->message_chains = take_part(base, &size, mul_size(sizeof(int), sweep_max_in_flight));
	memory->key_chains = take_part(base, &size, mul_size(sizeof(int), sweep_max_in_flight));
	memory->prepared = take_part(base, &size, mul_size(sizeof(SweepPreparedChange), memory->prepared_limit));
	memory->running = take_part(base, &size, mul_size(sizeof(TransactionId) * SWEEP_COUNTED_DATABASES, memory->running_limit));
	return size;
}

void
sweep_queue_request_memory(void)
{
	RequestAddinShmemSpace(lay_out(NULL));
	RequestNamedLWLockTranche(TRANCHE, 1);
}

/* Sets the fields whose unused value is not zero. */
static void
make_lists(void)
{
	SweepQueueShared *shared = sweep_queue_memory.shared;

	for (int i = 0; i < sweep_max_in_flight; i++)
		sweep_queue_memory.message_chains[i] = sweep_queue_memory.key_chains[i] = -1;
	for (int i = 0; i < sweep_max_queues; i++)
	{
		sweep_queue_memory.slot_chains[i] = -1;
		sweep_queue_slot(i)->next = i + 1 < sweep_max_queues ? i + 1 : -1;
		ConditionVariableInit(&sweep_queue_memory.searched[i]);
	}
	shared->free_in_flight = shared->free_lease = -1;
	shared->holder_count = SWEEP_OTHER_DATABASES + 1;
	pg_atomic_init_u32(&shared->prepared_count, 0);
}

void
sweep_queue_initialize_memory(void)
{
	bool		found;
	Size		size = lay_out(NULL);

	(void) lay_out(ShmemInitStruct("pg_sweep queues", size, &found));
	sweep_queue_memory.lock = &GetNamedLWLockTranche(TRANCHE)->lock;
	if (found)
		return;
	memset(sweep_queue_memory.shared, 0, size);
	make_lists();
}

void
sweep_queue_refuse_without_memory(const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("%s needs pg_sweep to be loaded at server start", what),
			 errhint("Add pg_sweep to shared_preload_libraries and restart the server. Sending works without.")));
}

/* A lightweight lock is not fair: without a pause, a process that is woken for it finds it taken again. */
void
sweep_queue_lend_lock(void)
{
	sweep_queue_unlock();
	pg_usleep(LEND_US);
	sweep_queue_lock(LW_EXCLUSIVE);
}
