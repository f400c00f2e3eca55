/*
 * memory.h
 *		Layout of the shared memory of the queues, and its lock.
 *
 * Only the files of this room include it; other rooms include queue.h. The memory exists if the library was loaded at server start; without it a
 * session can send, but not claim. One lightweight lock guards all of it, and is held for microseconds, never while a table is read. The memory
 * has no pointers: messages in flight, leases, slots and holders are referred to by number.
 */
#ifndef SWEEP_QUEUE_MEMORY_H
#define SWEEP_QUEUE_MEMORY_H

#include "access/transam.h"
#include "base/compat.h"
#include "base/settings.h"
#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "queue/queue.h"
#include "storage/condition_variable.h"
#include "storage/itemptr.h"
#include "storage/lwlock.h"
#include "utils/uuid.h"

/* A lane is the messages of one priority. The lane number is the priority, that of delayed messages the priority + 100. */
#define SWEEP_PRIORITY_MIN	(-8)
#define SWEEP_PRIORITY_MAX	7
#define SWEEP_LANES			(SWEEP_PRIORITY_MAX - SWEEP_PRIORITY_MIN + 1)
#define SWEEP_LANE_DELAYED	100

/* Messages that a queue can have prefetched. */
#define SWEEP_QUEUE_PREFETCH	1024

/* Number of prefetched messages below which a claim of "wanted" messages searches ahead: enough for four such claims. */
#define SWEEP_QUEUE_LOW(wanted)	((wanted) < SWEEP_QUEUE_PREFETCH / 8 ? Max(128, 4 * (wanted)) : SWEEP_QUEUE_PREFETCH / 2)

/* Processes in the list of a queue; a process that finds the list full looks for messages in short intervals. */
#define SWEEP_QUEUE_WAITERS 256

/* A time that never comes, for both clocks. */
#define SWEEP_NOTHING_DUE	PG_INT64_MAX

/* Properties of a lane, and its index in arrays: the highest priority comes first. */
#define SWEEP_LANE_IS_DELAYED(lane) ((lane) > SWEEP_LANE_DELAYED / 2)
#define SWEEP_LANE_PRIORITY(lane) (SWEEP_LANE_IS_DELAYED(lane) ? (lane) - SWEEP_LANE_DELAYED : (lane))
#define SWEEP_LANE_INDEX(lane) (SWEEP_PRIORITY_MAX - SWEEP_LANE_PRIORITY(lane))

/* A message that can be claimed or is claimed. memory.c checks its size against what is documented of pg_sweep.max_in_flight. */
typedef struct SweepMessageRef
{
	int64		message_id;
	TimestampTz due_at;			/* of a delayed message */
	ItemPointerData tid;		/* where its row was; verified when it is read */
	int16		lane;
	int16		attempts;		/* column of the row: the attempts when the message last failed; 0 after a redrive */
	uint32		key_hash;		/* hash of a key that is free while the message is claimed; 0 = none */
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
	int64		since_us;		/* start of the present period */
	int64		count;
	int64		count_before;
} SweepRate;

/*
 * The state of a queue. Every message of a lane with an id below "position" is prefetched, in flight, gone, or written
 * by a transaction that lowers the position when it commits. "low" is the lowest position that commits have set since
 * the search in progress began: the search must not leave the position after it. The due_ fields are the same for
 * delayed messages, with due times instead of ids.
 */
typedef struct SweepQueueSlot
{
	uint32		generation;		/* changes with each use of the slot; 0 = free */
	int			next;			/* slot in the same hash chain, or in the list of free slots */
	Oid			database;
	Oid			relation;		/* OID of sweep.queue_message, which changes when the extension is created again */
	int32		queue_id;
	int			holder;			/* role that the slot counts for, see lease.h; -1 until a role uses the queue */
	int			database_holder;
	int64		used_us;
	uint32		pending;		/* bit per lane: there may be messages at or after its position */
	int64		position[SWEEP_LANES];
	int64		low[SWEEP_LANES];
	TimestampTz due_from;
	TimestampTz due_low;
	TimestampTz next_due;		/* no message is due before */
	int64		due_searched_us;
	int			prefetched_first;
	int			prefetched_count;
	SweepMessageRef prefetched[SWEEP_QUEUE_PREFETCH];
	int			lease_count;
	int			lease_root;		/* the lease that ends first, see lease.c; -1 = none */
	int64		next_expiry_us; /* no lease that has LEASED messages ends before this */
	SweepMessageList returned;	/* in flight without a lease, to be claimed again */
	SweepMessageList blocked;	/* wait for another message with their key */
	int			held[2];		/* messages of its leases: not delayed, delayed */
	uint32		count_number;	/* number of the count that rows and dead belong to; see SweepQueueDatabase */
	int64		rows[2];		/* committed messages: not delayed, delayed */
	int64		dead;
	SweepRate	sent;
	SweepRate	acked;
	int64		prune_us;		/* no pruning of kept messages before this time, see ack.c */
	TimestampTz prune_from;		/* where the next pruning begins; the few older rows that are left are found from the front */
	int64		prune_front_us; /* no pruning from the front before this time */
	SweepNews	news;
	int64		announced_us;	/* the last notification; 0 = none */
	int64		looked_us;		/* when a waiting process last left the list for an event */
	int64		looked_for;		/* that event: a due time, or the end of a lease, in the past */
	int			waiters;		/* length of "waiting": the processes that wait for messages, woken in this order */
	ProcNumber	waiting[SWEEP_QUEUE_WAITERS];
} SweepQueueSlot;

typedef enum SweepInFlightState
{
	IN_FLIGHT_FREE,
	IN_FLIGHT_LEASED,			/* claimed; next: ENDING, RETURNED, BLOCKED, FREE */
	/* a transaction removes the message; next: FREE (commit), PREPARED, LEASED (rollback), RETURNED or FREE (rollback of a cancellation) */
	IN_FLIGHT_ENDING,
	IN_FLIGHT_PREPARED,			/* that transaction is prepared; next: FREE, LEASED, RETURNED */
	IN_FLIGHT_RETURNED,			/* to be claimed again, before all others; next: LEASED, ENDING (cancelled), FREE */
	IN_FLIGHT_BLOCKED,			/* another message with its key is in flight; next: RETURNED, ENDING (cancelled), FREE */
} SweepInFlightState;

/* A message that is claimed, or that was claimed and waits to be claimed again. */
typedef struct SweepInFlight
{
	SweepMessageRef message;
	uint8		state;			/* SweepInFlightState */
	uint8		undone_state;	/* of ENDING and PREPARED: the state after a rollback; FREE = the message is searched for again */
	uint16		attempts;		/* deliveries, including the present one, without those that were released */
	int16		slot;
	int16		holder;			/* role that it counts for, unless it is RETURNED */
	int			lease;			/* in the states LEASED, ENDING and PREPARED */
	int			previous;		/* in the list of a lease, of the returned or of the blocked messages */
	int			next;			/* also in the list of a prepared transaction */
	int			hash_next;
	int			key_previous;	/* in the chain of messages with its key and a similar state, see in_flight.c */
	int			key_next;
	int			pid;			/* in the state ENDING: the process that ends it */
	TransactionId purged_by;	/* the transaction that has purged its row, in any state */
} SweepInFlight;

typedef struct SweepQueueLease
{
	int64		expires_us;
	pg_uuid_t	id;				/* begins with the number of the lease, in four bytes */
	int16		slot;			/* -1 = free */
	int16		holder;			/* role that has claimed */
	int16		rank;			/* this and the next three: in the heap of its queue, see lease.c */
	int			parent;
	int			left;			/* also the next free lease */
	int			right;
	SweepMessageList messages;	/* those that are LEASED */
	int			ending;			/* number of messages that are ENDING or PREPARED */
} SweepQueueLease;

/* The changes of a transaction to a queue, to be applied when it has committed. */
typedef struct SweepQueueChange
{
	Oid			relation;
	int32		queue_id;		/* 0 = unknown changes to all queues of the database */
	uint32		lanes;			/* bit per lane written to */
	int64		low[SWEEP_LANES];
	TimestampTz first_due;
	int64		rows[2];
	int64		dead;
	int64		sent;
	int64		acked;
	bool		reset;			/* search the queue from its start */
	bool		reset_if_undone;	/* the same if the transaction is rolled back */
	bool		purged;			/* messages in flight were deleted: see SweepInFlight.purged_by */
	bool		emptied;		/* TRUNCATE has deleted all messages of all queues */
	bool		dropped;		/* the queue was dropped; with queue_id 0: the table */
	int			own_statements; /* statements of the extension in progress, see sweep_transaction_in_own_statement() */
} SweepQueueChange;

/* Number of databases with counters; in others sweep.queues counts the rows each time. */
#define SWEEP_COUNTED_DATABASES 128

/* A database, and the counters of its queues. */
typedef struct SweepQueueDatabase
{
	Oid			database;		/* InvalidOid = free */
	Oid			relation;
	bool		knows_prepared;
	bool		counting;		/* a count is in progress; its snapshot is xmin to running_count */
	bool		counted;
	uint32		count_number;	/* of the present count; counters of slots with an earlier number are taken for 0 */
	FullTransactionId xmin;
	FullTransactionId xmax;
	uint32		running_count;	/* transactions in progress in the snapshot; their ids are in sweep_queue_memory.running */
} SweepQueueDatabase;

typedef struct SweepPreparedChange
{
	TransactionId xid;			/* InvalidTransactionId = free */
	Oid			database;
	int			ending;			/* the first of the messages in flight that the transaction removes; -1 = none */
	SweepQueueChange change;
} SweepPreparedChange;

/* The shared resources that are counted for each role and each database, see lease.h. */
typedef enum SweepHeld
{
	HELD_LEASES,
	HELD_MESSAGES,				/* LEASED, ENDING, PREPARED or BLOCKED */
	HELD_SLOTS,					/* of queues */
} SweepHeld;

#define SWEEP_HELD_KINDS (HELD_SLOTS + 1)

/* The counts of a role (in all databases) or of a database; the other OID is InvalidOid. */
typedef struct SweepQueueHolder
{
	Oid			database;
	Oid			role;
	int			held[SWEEP_HELD_KINDS];
} SweepQueueHolder;

/* The first two entries are those of all roles and all databases that have no entry of their own. */
#define SWEEP_OTHER_ROLES 0
#define SWEEP_OTHER_DATABASES 1
#define SWEEP_HOLDERS 1024

typedef struct SweepQueueShared
{
	uint32		generation;
	uint32		count_number;
	int			free_slot;		/* -1 = none */
	int			victim_slot;	/* the next candidate to be given to another queue */
	int			free_in_flight; /* -1 = only entries that were never used */
	int			used_in_flight; /* entries below this number have been used */
	int			free_lease;
	int			used_leases;
	int			victim_database;	/* the next entry of "databases" to be given to another database */
	bool		short_of_slots; /* a queue in use has lost its slot to another one, and no process has logged it yet */
	int64		shortage_logged_us;
	pg_atomic_uint32 prepared_count;
	int			holder_count;	/* entries that were ever used */
	int			held[SWEEP_HELD_KINDS]; /* in all */
	SweepQueueHolder holders[SWEEP_HOLDERS];
	SweepQueueDatabase databases[SWEEP_COUNTED_DATABASES];
} SweepQueueShared;

/* Addresses of the parts. */
typedef struct SweepQueueMemory
{
	LWLock	   *lock;			/* NULL = there is none */
	SweepQueueShared *shared;
	SweepQueueSlot *slots;		/* this and the next two: one for each of pg_sweep.max_queues */
	int		   *slot_chains;	/* heads of the hash chains of slots */
	ConditionVariable *searched;
	SweepInFlight *in_flight;	/* this and the next three: one for each of pg_sweep.max_in_flight */
	SweepQueueLease *leases;
	int		   *message_chains; /* heads of the hash chains of messages in flight, by id */
	int		   *key_chains;		/* heads of hash chains of messages in flight, by key and state */
	SweepPreparedChange *prepared;
	int			prepared_limit;
	TransactionId *running;		/* running_limit ids for each entry of "databases" */
	int			running_limit;
} SweepQueueMemory;

extern SweepQueueMemory sweep_queue_memory;

static inline bool
sweep_queue_memory_exists(void)
{
	return sweep_queue_memory.lock != NULL;
}

/* Raises the error for missing shared memory; its hint says what to set. */
pg_noreturn extern void sweep_queue_refuse_without_memory(const char *what);

static inline void
sweep_queue_require_memory(const char *what)
{
	if (!sweep_queue_memory_exists())
		sweep_queue_refuse_without_memory(what);
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

/* Number of messages, or slots, after which a process that works under the lock lends it. */
#define SWEEP_QUEUE_PIECE 1000
#define SWEEP_QUEUE_SLOTS_PIECE 256

/*
 * Lends the lock: releases the exclusive lock so that waiting processes get it, and takes it again. Afterwards the caller must
 * read again whatever it has read under the lock.
 */
extern void sweep_queue_lend_lock(void);

/* To be called after each of many steps, with a counter that begins at 0. Lends the lock after each piece; returns whether it has. */
static inline bool
sweep_queue_lend_lock_after(int piece, int *count)
{
	if (++*count % piece != 0)
		return false;
	sweep_queue_lend_lock();
	return true;
}

/* Conversion between slots, leases, entries and their numbers. */
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

/* Claims sleep on it while another process searches the queue. It belongs to the slot's number, and stays valid when the slot is reused. */
static inline ConditionVariable *
sweep_queue_searched(const SweepQueueSlot *slot)
{
	return &sweep_queue_memory.searched[sweep_queue_slot_number(slot)];
}

#endif							/* SWEEP_QUEUE_MEMORY_H */
