/*
 * memory.h
 *		The shared memory of the queues: what it consists of, and the lock that guards it.
 *
 * For the files of this room; all others use queue.h. There is none when the library was not loaded at server
 * start: sending works without, claiming not. Everything here is guarded by one lightweight lock, held for
 * moments and never while a table is read. It has no pointers: messages in flight, leases, slots and holders
 * are known by their numbers.
 */
#ifndef SWEEP_QUEUE_MEMORY_H
#define SWEEP_QUEUE_MEMORY_H

#include "access/transam.h"
#include "base/compat.h"
#include "base/settings.h"
#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/itemptr.h"
#include "storage/lwlock.h"
#include "utils/uuid.h"

/* A lane is the messages of one priority; the lane of a delayed message is its priority + 100. */
#define SWEEP_PRIORITY_MIN	(-8)
#define SWEEP_PRIORITY_MAX	7
#define SWEEP_LANES			(SWEEP_PRIORITY_MAX - SWEEP_PRIORITY_MIN + 1)
#define SWEEP_LANE_DELAYED	100

/* Messages that are prefetched, ahead of the claims that take them. */
#define SWEEP_QUEUE_PREFETCH	1024

/* When no more are left than four such claims take, the claim that leaves so few looks for more, ahead of those that follow. */
#define SWEEP_QUEUE_LOW(wanted)	((wanted) < SWEEP_QUEUE_PREFETCH / 8 ? Max(128, 4 * (wanted)) : SWEEP_QUEUE_PREFETCH / 2)

/* Processes that a queue wakes; more of them look now and then. */
#define SWEEP_QUEUE_WAITERS 256

#define SWEEP_NOTHING_DUE	PG_INT64_MAX

/* Index of a lane in the arrays below; the highest priority comes first. */
#define SWEEP_LANE_IS_DELAYED(lane) ((lane) > SWEEP_LANE_DELAYED / 2)
#define SWEEP_LANE_PRIORITY(lane) (SWEEP_LANE_IS_DELAYED(lane) ? (lane) - SWEEP_LANE_DELAYED : (lane))
#define SWEEP_LANE_INDEX(lane) (SWEEP_PRIORITY_MAX - SWEEP_LANE_PRIORITY(lane))

/* A message that can be claimed, or is. */
typedef struct SweepMessageRef
{
	int64		message_id;
	TimestampTz due_at;			/* of a delayed message */
	ItemPointerData tid;		/* where its row was; verified when it is read */
	int16		lane;
	int16		attempts;		/* recorded in the row */
	uint32		key_hash;		/* of a key that is free while it is claimed; 0 = it has none */
} SweepMessageRef;

/* A list of messages in flight, by their numbers; -1 = none. */
typedef struct SweepMessageList
{
	int			first;
	int			last;
	int			count;
} SweepMessageList;

/* Counts of the present period and of the one before it, see sweep_queue_rate. */
typedef struct SweepRate
{
	int64		since_us;		/* begin of the present period */
	int64		count;
	int64		count_before;
} SweepRate;

/*
 * One queue. "position" of a lane: every message with a lower id is claimed, gone, or belongs to a
 * transaction that will lower the position when it commits. "low" is what commits have lowered it to
 * since the search in progress began, which must not step over them. The same for delayed messages,
 * by their due times.
 */
typedef struct SweepQueueSlot
{
	uint32		generation;		/* changes with each use of the slot; 0 = free */
	Oid			database;
	Oid			relation;		/* sweep.queue_message: another one after DROP EXTENSION */
	int32		queue_id;
	Oid			role;			/* that used the queue when it was given the slot; InvalidOid = nobody yet */
	int64		used_us;
	uint32		pending;		/* bit per lane: there may be messages from its position on */
	int64		position[SWEEP_LANES];
	int64		low[SWEEP_LANES];
	TimestampTz due_from;
	TimestampTz due_low;
	TimestampTz next_due;		/* none is due before */
	int64		due_searched_us;
	int			prefetched_first;
	int			prefetched_count;
	SweepMessageRef prefetched[SWEEP_QUEUE_PREFETCH];
	int			lease_first;	/* list of its leases; -1 = none */
	int64		next_expiry_us; /* no lease that holds something ends before, but for what is being ended */
	SweepMessageList returned;	/* in flight without a lease, to be claimed again */
	SweepMessageList blocked;	/* wait for another one with their key */
	int			held[2];		/* messages of its leases: not delayed, delayed */
	int64		rows[2];		/* committed messages: not delayed, delayed; valid while counted */
	int64		dead;
	SweepRate	sent;
	SweepRate	acked;
	int64		prune_us;		/* of kept messages, see done.c: not before */
	TimestampTz prune_from;		/* older ones were deleted, but for some that a look from the front finds */
	int64		prune_front_us; /* no look from the front before */
	bool		pending_work;	/* messages have come since the notifier looked */
	int64		looked_us;		/* when one of the waiters went to look for ... */
	int64		looked_for;		/* ... what was due then, or whose lease had ended */
	int			waiters;		/* processes that wait for messages, the first in first out */
	ProcNumber	waiting[SWEEP_QUEUE_WAITERS];
} SweepQueueSlot;

typedef enum SweepInFlightState
{
	IN_FLIGHT_FREE,
	IN_FLIGHT_LEASED,			/* of its lease; next: ENDING, RETURNED, BLOCKED, FREE */
	IN_FLIGHT_ENDING,			/* a transaction removes the message; next: FREE (commit), LEASED (rollback), PREPARED */
	IN_FLIGHT_PREPARED,			/* that transaction is prepared; next: FREE, LEASED */
	IN_FLIGHT_RETURNED,			/* to be claimed again, before all others; next: LEASED, FREE */
	IN_FLIGHT_BLOCKED,			/* another one with its key is in flight; next: RETURNED, FREE */
} SweepInFlightState;

/* A message that is claimed, or was and waits to be claimed again. */
typedef struct SweepInFlight
{
	SweepMessageRef message;
	SweepInFlightState state;
	int			slot;
	int			lease;			/* -1 = none */
	int			holder;			/* whose it is, while it is of a lease or blocked; else -1 */
	int			previous;		/* in the list of its lease, of the returned or of the blocked ones */
	int			next;
	int			hash_next;
	int			key_next;		/* of those with a key */
	int			attempts;		/* deliveries, the present one included */
	int			pid;			/* of the process that ends it */
	TransactionId xid;			/* of the prepared transaction that ends it */
	TransactionId purged_by;	/* the transaction that has deleted it, whoever has claimed it */
} SweepInFlight;

typedef struct SweepQueueLease
{
	pg_uuid_t	id;				/* its first four bytes are the index of the lease */
	int			slot;			/* -1 = free */
	int			previous;		/* of the queue */
	int			next;
	SweepMessageList messages;
	int			holder;			/* who has claimed, see holder.h */
	int64		expires_us;
} SweepQueueLease;

/* What a transaction did to a queue, to be applied when it has committed. */
typedef struct SweepQueueChange
{
	Oid			relation;
	int32		queue_id;		/* 0 = to all of the database, in unknown ways */
	uint32		lanes;			/* bit per lane written to */
	int64		low[SWEEP_LANES];
	TimestampTz first_due;
	int64		rows[2];
	int64		dead;
	int64		sent;
	int64		acked;
	bool		reset;			/* look at the queue from its start */
	bool		reset_if_undone;	/* the same, when the transaction is rolled back */
	bool		purged;			/* messages in flight were deleted: see purged_by of SweepInFlight */
	bool		emptied;		/* all messages were */
	bool		dropped;		/* the queue is gone; of all queues: the table */
} SweepQueueChange;

/* As many as have a scheduler, see base/shared.h. */
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
	int			messages;		/* of leases, or blocked by another one with their key */
	int64		expired_us;		/* when leases were last looked at for it */
} SweepQueueHolder;

/*
 * Entries: one for each role in a database, one for the role, one for the database, and that of the others. So
 * 511 roles of one database that hold messages at a time are told apart.
 */
#define SWEEP_HOLDERS 1024

typedef struct SweepQueueShared
{
	uint32		generation;
	int			free_in_flight;
	int			free_lease;
	int			victim;			/* next entry of databases to be given to another one */
	bool		short_of_slots; /* one in use was given to another queue; nobody has said so yet */
	int64		shortage_noted_us;
	pg_atomic_uint32 prepared_count;
	int			held_count;		/* sum of the messages of all holders */
	int			holder_count;	/* the last entry that was ever used */
	SweepQueueHolder holders[SWEEP_HOLDERS];
	SweepQueueDatabase databases[SWEEP_COUNTED_DATABASES];
} SweepQueueShared;

/* Where its parts are, in this process. */
typedef struct SweepQueueMemory
{
	LWLock	   *lock;			/* NULL = there is none */
	SweepQueueShared *shared;
	SweepQueueSlot *slots;		/* pg_sweep.max_queues, as the next */
	ConditionVariable *searched;
	SweepInFlight *in_flight;	/* pg_sweep.max_in_flight, as the next three */
	SweepQueueLease *leases;
	int		   *buckets;		/* heads of the hash chains of messages in flight */
	int		   *key_buckets;	/* the same by key, of those that have one */
	SweepPreparedChange *prepared;
	int			prepared_limit;
	TransactionId *running;		/* running_limit of each database */
	int			running_limit;
} SweepQueueMemory;

extern SweepQueueMemory sweep_queue_memory;

/* Raises an error that says what to set when there is none. */
extern void sweep_queue_require_memory(const char *what);

static inline bool
sweep_queue_memory_exists(void)
{
	return sweep_queue_memory.lock != NULL;
}

static inline void
sweep_queue_lock(LWLockMode mode)
{
	LWLockAcquire(sweep_queue_memory.lock, mode);
}

static inline void
sweep_queue_unlock(void)
{
	LWLockRelease(sweep_queue_memory.lock);
}

/*
 * To be called after each of many messages, with their count so far: releases the exclusive lock now and then, until a
 * process that waits for it has had it, and takes it again. Returns whether it did.
 */
extern bool sweep_queue_lend_lock(int *count);

/* By their numbers, and back. */
static inline SweepQueueSlot *
sweep_queue_slot(int number)
{
	return &sweep_queue_memory.slots[number];
}

static inline int
sweep_queue_slot_number(const SweepQueueSlot *slot)
{
	return (int) (slot - sweep_queue_memory.slots);
}

static inline SweepQueueLease *
sweep_queue_lease(int number)
{
	return &sweep_queue_memory.leases[number];
}

static inline int
sweep_queue_lease_number(const SweepQueueLease *lease)
{
	return (int) (lease - sweep_queue_memory.leases);
}

static inline SweepInFlight *
sweep_in_flight(int number)
{
	return &sweep_queue_memory.in_flight[number];
}

/* On which claims wait while another one searches. It outlives the use of the slot. */
static inline ConditionVariable *
sweep_queue_searched(const SweepQueueSlot *slot)
{
	return &sweep_queue_memory.searched[sweep_queue_slot_number(slot)];
}

#endif							/* SWEEP_QUEUE_MEMORY_H */
