/*
 * memory.h
 *		The shared memory of the queues: its parts, and the lock that guards them.
 *
 * Only the files of this room include it; other rooms include queue.h. The memory exists if the library was loaded at
 * server start; without it a session can send, but not claim. One lightweight lock guards all of it. The lock is held
 * for microseconds, and never while a table is read. There are no pointers in it: messages in flight, leases, slots
 * and holders are known by their numbers.
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

/* A lane is the messages of one priority; the lane of a delayed message is its priority + 100. */
#define SWEEP_PRIORITY_MIN	(-8)
#define SWEEP_PRIORITY_MAX	7
#define SWEEP_LANES			(SWEEP_PRIORITY_MAX - SWEEP_PRIORITY_MIN + 1)
#define SWEEP_LANE_DELAYED	100

/* Messages that a queue can have prefetched. */
#define SWEEP_QUEUE_PREFETCH	1024

/* Number of prefetched messages below which a claim searches for more: what four such claims take. */
#define SWEEP_QUEUE_LOW(wanted)	((wanted) < SWEEP_QUEUE_PREFETCH / 8 ? Max(128, 4 * (wanted)) : SWEEP_QUEUE_PREFETCH / 2)

/* Processes in the list of a queue; a process that finds the list full looks now and then. */
#define SWEEP_QUEUE_WAITERS 256

/* A time, of either clock, that never comes. */
#define SWEEP_NOTHING_DUE	PG_INT64_MAX

/* Properties of a lane, and its index in the arrays below, in which the highest priority comes first. */
#define SWEEP_LANE_IS_DELAYED(lane) ((lane) > SWEEP_LANE_DELAYED / 2)
#define SWEEP_LANE_PRIORITY(lane) (SWEEP_LANE_IS_DELAYED(lane) ? (lane) - SWEEP_LANE_DELAYED : (lane))
#define SWEEP_LANE_INDEX(lane) (SWEEP_PRIORITY_MAX - SWEEP_LANE_PRIORITY(lane))

/* A message that can be claimed, or is. The room for a message that pg_sweep.max_in_flight promises is checked in memory.c. */
typedef struct SweepMessageRef
{
	int64		message_id;
	TimestampTz due_at;			/* of a delayed message */
	ItemPointerData tid;		/* where its row was; verified when it is read */
	int16		lane;
	int16		attempts;		/* of the row: the attempts when the message last failed; 0 after a redrive */
	uint32		key_hash;		/* of a key that is free while the message is claimed; 0 = none */
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
 * One queue. Every message of a lane with an id below "position" is claimed, gone, or belongs to a transaction that
 * lowers the position when it commits. "low" is the lowest position that commits have set since the search in progress
 * began: that search must not step over it. The due_ fields are the same for delayed messages, by their due times.
 */
typedef struct SweepQueueSlot
{
	uint32		generation;		/* changes with each use of the slot; 0 = free */
	int			next;			/* slot in the same hash chain, or in the list of free slots */
	Oid			database;
	Oid			relation;		/* sweep.queue_message: another one after DROP EXTENSION */
	int32		queue_id;
	int			holder;			/* role that the slot counts for, see lease.h; -1 until a role uses the queue */
	int			database_holder;
	int64		used_us;
	uint32		pending;		/* bit per lane: there may be messages from its position on */
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
	int64		next_expiry_us; /* no lease that has LEASED messages ends before */
	SweepMessageList returned;	/* in flight without a lease, to be claimed again */
	SweepMessageList blocked;	/* wait for another message with their key */
	int			held[2];		/* messages of its leases: not delayed, delayed */
	uint32		count_number;	/* of the count that the next two belong to; see SweepQueueDatabase */
	int64		rows[2];		/* committed messages: not delayed, delayed */
	int64		dead;
	SweepRate	sent;
	SweepRate	acked;
	int64		prune_us;		/* no pruning of kept messages before this time, see ack.c */
	TimestampTz prune_from;		/* where the next pruning begins: older rows are deleted, but for some that are found from the front */
	int64		prune_front_us; /* no pruning from the front before this time */
	SweepNews	news;
	int64		announced_us;	/* the last notification; 0 = none */
	int64		looked_us;		/* when a waiting process last went to look for an event */
	int64		looked_for;		/* the event: a due time, or the end of a lease, that had come */
	int			waiters;		/* number of processes that wait for messages; the one that came first is woken first */
	ProcNumber	waiting[SWEEP_QUEUE_WAITERS];
} SweepQueueSlot;

typedef enum SweepInFlightState
{
	IN_FLIGHT_FREE,
	IN_FLIGHT_LEASED,			/* claimed; next: ENDING, RETURNED, BLOCKED, FREE */
	/* a transaction removes the message; next: FREE (commit), PREPARED; after a rollback LEASED, of a cancellation RETURNED or FREE */
	IN_FLIGHT_ENDING,
	IN_FLIGHT_PREPARED,			/* that transaction is prepared; next: FREE, LEASED, RETURNED */
	IN_FLIGHT_RETURNED,			/* to be claimed again, before all others; next: LEASED, ENDING (cancelled), FREE */
	IN_FLIGHT_BLOCKED,			/* another message with its key is in flight; next: RETURNED, ENDING (cancelled), FREE */
} SweepInFlightState;

/* A message that is claimed, or was and waits to be claimed again. */
typedef struct SweepInFlight
{
	SweepMessageRef message;
	uint8		state;			/* SweepInFlightState */
	uint8		undone_state;	/* of ENDING and PREPARED: the next one after a rollback; FREE = the message is searched for again */
	uint16		attempts;		/* deliveries, the present one included; a release takes its delivery off again */
	int16		slot;
	int16		holder;			/* role that it counts for, unless it is RETURNED */
	int			lease;			/* of LEASED, ENDING and PREPARED */
	int			previous;		/* in the list of a lease, of the returned or of the blocked messages */
	int			next;			/* also of what a transaction that is prepared is ending */
	int			hash_next;
	int			key_previous;	/* in the chain of messages with its key and a similar state, see in_flight.c */
	int			key_next;
	int			pid;			/* of ENDING: the process that ends it */
	TransactionId purged_by;	/* the transaction that has purged its row, whether or not the message is claimed */
} SweepInFlight;

typedef struct SweepQueueLease
{
	int64		expires_us;
	pg_uuid_t	id;				/* its first four bytes are the number of the lease */
	int16		slot;			/* -1 = free */
	int16		holder;			/* role that has claimed */
	int16		rank;			/* of the heap of its queue, see lease.c, as are the next three */
	int			parent;
	int			left;			/* also of the free leases */
	int			right;
	SweepMessageList messages;	/* LEASED */
	int			ending;			/* messages that are ENDING or PREPARED */
} SweepQueueLease;

/* The changes of a transaction to a queue, to be applied when it has committed. */
typedef struct SweepQueueChange
{
	Oid			relation;
	int32		queue_id;		/* 0 = all queues of the database, in unknown ways */
	uint32		lanes;			/* bit per lane written to */
	int64		low[SWEEP_LANES];
	TimestampTz first_due;
	int64		rows[2];
	int64		dead;
	int64		sent;
	int64		acked;
	bool		reset;			/* search the queue from its start */
	bool		reset_if_undone;	/* the same, when the transaction is rolled back */
	bool		purged;			/* messages in flight were deleted: see purged_by of SweepInFlight */
	bool		emptied;		/* TRUNCATE has deleted all messages of all queues */
	bool		dropped;		/* the queue was dropped; with queue_id 0 the table was */
} SweepQueueChange;

/* Databases whose messages can be counted at a time; in others sweep.queues counts the rows each time. */
#define SWEEP_COUNTED_DATABASES 128

/* A database, and the counters of its queues. */
typedef struct SweepQueueDatabase
{
	Oid			database;		/* InvalidOid = free */
	Oid			relation;
	bool		knows_prepared;
	bool		counting;		/* the snapshot is valid */
	bool		counted;
	uint32		count_number;	/* of the present count; counters of an earlier one are 0 */
	FullTransactionId xmin;
	FullTransactionId xmax;
	uint32		running_count;	/* transactions in progress in the snapshot; their ids are in "running" */
} SweepQueueDatabase;

typedef struct SweepPreparedChange
{
	TransactionId xid;			/* InvalidTransactionId = free */
	Oid			database;
	int			ending;			/* first of the messages in flight that the transaction removes; -1 = none */
	SweepQueueChange change;
} SweepPreparedChange;

/* The shared resources that are counted for each role and each database, see lease.h. */
typedef enum SweepHeld
{
	HELD_LEASES,
	HELD_MESSAGES,				/* of leases, or blocked by another one with their key */
	HELD_SLOTS,					/* of queues */
} SweepHeld;

#define SWEEP_HELD_KINDS (HELD_SLOTS + 1)

/* The numbers of a role in all databases, or of a database; the other one is InvalidOid. */
typedef struct SweepQueueHolder
{
	Oid			database;
	Oid			role;
	int			held[SWEEP_HELD_KINDS];
} SweepQueueHolder;

/* The first two entries are those of roles and databases that have none of their own. */
#define SWEEP_OTHER_ROLES 0
#define SWEEP_OTHER_DATABASES 1
#define SWEEP_HOLDERS 1024

typedef struct SweepQueueShared
{
	uint32		generation;
	uint32		count_number;
	int			free_slot;		/* -1 = none */
	int			victim_slot;	/* the next to be given to another queue, if it is idle */
	int			free_in_flight; /* -1 = none but those that were never used */
	int			used_in_flight; /* entries that were ever used: those below this number */
	int			free_lease;
	int			used_leases;
	int			victim_database;	/* the next entry of databases to be given to another one */
	bool		short_of_slots; /* a queue in use has given its slot to another one, and no process has logged it yet */
	int64		shortage_logged_us;
	pg_atomic_uint32 prepared_count;
	int			holder_count;	/* entries that were ever used */
	int			held[SWEEP_HELD_KINDS]; /* in all */
	SweepQueueHolder holders[SWEEP_HOLDERS];
	SweepQueueDatabase databases[SWEEP_COUNTED_DATABASES];
} SweepQueueShared;

/* Addresses of the parts, in this process. */
typedef struct SweepQueueMemory
{
	LWLock	   *lock;			/* NULL = there is none */
	SweepQueueShared *shared;
	SweepQueueSlot *slots;		/* pg_sweep.max_queues, as the next two */
	int		   *slot_chains;	/* heads of the hash chains of slots */
	ConditionVariable *searched;
	SweepInFlight *in_flight;	/* pg_sweep.max_in_flight, as the next three */
	SweepQueueLease *leases;
	int		   *message_chains; /* heads of the hash chains of messages in flight, by id */
	int		   *key_chains;		/* heads of their hash chains by key and state */
	SweepPreparedChange *prepared;
	int			prepared_limit;
	TransactionId *running;		/* running_limit of each database */
	int			running_limit;
} SweepQueueMemory;

extern SweepQueueMemory sweep_queue_memory;

static inline bool
sweep_queue_memory_exists(void)
{
	return sweep_queue_memory.lock != NULL;
}

/* Raises an error that says what to set when there is none. */
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

/* Messages, or slots, after which a process that works under the lock lends it. */
#define SWEEP_QUEUE_PIECE 1000
#define SWEEP_QUEUE_SLOTS_PIECE 256

/*
 * Releases the exclusive lock, so that a process that waits for it gets it, and takes it again. Afterwards the caller has to read
 * again whatever it has read under the lock.
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

/* Slots, leases and entries are known by their numbers. These functions find them, and their numbers. */
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

/* Claims sleep on it while another process searches the queue. It belongs to the place of the slot, and stays valid when the slot is reused. */
static inline ConditionVariable *
sweep_queue_searched(const SweepQueueSlot *slot)
{
	return &sweep_queue_memory.searched[sweep_queue_slot_number(slot)];
}

#endif							/* SWEEP_QUEUE_MEMORY_H */
