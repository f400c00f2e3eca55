/*
 * memory.h
 *		The shared memory of the queues, for the files that work on it; all others use shared.h.
 */
#ifndef SWEEP_QUEUE_MEMORY_H
#define SWEEP_QUEUE_MEMORY_H

#include "port/atomics.h"
#include "queue/slot.h"

/* As many as have a scheduler, see shared.h. */
#define SWEEP_COUNTED_DATABASES 128

/* What is known of a database. */
typedef struct SweepQueueDatabase
{
	Oid			database;		/* InvalidOid = free */
	Oid			relation;
	bool		knows_prepared;
	bool		counting;		/* the snapshot is valid */
	bool		counted;
	FullTransactionId xmin;
	FullTransactionId xmax;
	uint32		running_count;	/* in progress in the snapshot; their ids are in "running" */
} SweepQueueDatabase;

typedef struct SweepPreparedChange
{
	TransactionId xid;			/* InvalidTransactionId = free */
	Oid			database;
	SweepQueueChange change;
} SweepPreparedChange;

/* Who has claimed how many messages, see holder.c. */
typedef struct SweepQueueHolder
{
	Oid			database;		/* InvalidOid = of the role, in all of them */
	Oid			role;			/* InvalidOid = of the database, all of them */
	int			of_role;		/* of a role in a database: the entry of the role */
	int			of_database;	/* ... and that of the database */
	int			leases;
	int			messages;		/* held, or blocked by another one with their key */
	TimestampTz expired_at;		/* when leases were last looked at for it */
} SweepQueueHolder;

/* Roles that hold messages at a time and are told apart. */
#define SWEEP_HOLDERS 1024

typedef struct SweepQueueShared
{
	uint32		generation;
	int			free_entry;
	int			free_lease;
	int			victim;			/* next entry of databases to be given to another one */
	bool		short_of_slots; /* one in use was given to another queue; nobody has said so yet */
	TimestampTz shortage_noted_at;
	pg_atomic_uint32 prepared_count;
	int			held_count;		/* sum of the messages of all holders */
	int			holder_count;	/* the last entry that was ever used */
	SweepQueueHolder holders[SWEEP_HOLDERS];
	SweepQueueDatabase databases[SWEEP_COUNTED_DATABASES];
} SweepQueueShared;

/* Where its parts are, in this process. */
typedef struct SweepQueueMemory
{
	SweepQueueShared *shared;
	SweepQueueSlot *slots;		/* pg_sweep.max_queues, as the next */
	ConditionVariable *searched;
	SweepInFlight *entries;			/* pg_sweep.max_leases, as the next three */
	SweepQueueLease *leases;
	int		   *buckets;		/* heads of the hash chains of holds */
	int		   *key_buckets;	/* the same by key, of those that have one */
	SweepPreparedChange *prepared;
	int			prepared_limit;
	TransactionId *running;		/* running_limit of each database */
	int			running_limit;
} SweepQueueMemory;

extern const SweepQueueMemory *sweep_queue_memory(void);

/* For sweep_queue_apply_change: whether the counters are to have this commit, and that they are not right. */
extern bool sweep_queue_count_wants(Oid relation, FullTransactionId xid);
extern void sweep_queue_count_spoil(Oid database);

/* For sweep_queue_forget_database. */
extern void sweep_queue_count_forget(Oid database);

#endif							/* SWEEP_QUEUE_MEMORY_H */
