/*
 * slot.h
 *		Shared memory of the queues: where to look for messages next, and who holds which.
 *
 * There is none when the library was not loaded at server start: sending works without, claiming not.
 * Everything here is guarded by one lightweight lock, held for moments and never while a table is read.
 */
#ifndef SWEEP_QUEUE_SLOT_H
#define SWEEP_QUEUE_SLOT_H

#include "access/transam.h"
#include "datatype/timestamp.h"
#include "base/compat.h"
#include "storage/condition_variable.h"
#include "storage/itemptr.h"
#include "storage/lwlock.h"
#include "utils/snapshot.h"
#include "utils/uuid.h"

/* A lane is the messages of one priority; the lane of a delayed message is its priority + 100. */
#define SWEEP_PRIORITY_MIN	(-8)
#define SWEEP_PRIORITY_MAX	7
#define SWEEP_LANES			(SWEEP_PRIORITY_MAX - SWEEP_PRIORITY_MIN + 1)
#define SWEEP_LANE_DELAYED	100

/* Messages found ahead of the claims that take them. */
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

/* Counts of the present period and of the one before it, see sweep_queue_rate. */
typedef struct SweepRate
{
	TimestampTz since;			/* begin of the present period */
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
	TimestampTz used_at;
	uint32		pending;		/* bit per lane: there may be messages from its position on */
	int64		position[SWEEP_LANES];
	int64		low[SWEEP_LANES];
	TimestampTz due_from;
	TimestampTz due_low;
	TimestampTz next_due;		/* none is due before */
	TimestampTz due_searched_at;
	int			prefetched_first;
	int			prefetched_count;
	SweepMessageRef prefetched[SWEEP_QUEUE_PREFETCH];
	int			lease_first;	/* list of its leases; -1 = none */
	TimestampTz next_expiry;	/* no lease that holds something ends before, but for what is being ended */
	int			returned_first; /* list of holds without lease; -1 = none */
	int			returned_last;
	int			returned_count;
	int			blocked_first;	/* list of holds that wait for another one with their key */
	int			held[2];		/* holds of leases: not delayed, delayed */
	int64		rows[2];		/* committed messages: not delayed, delayed; valid while counted */
	int64		dead;
	SweepRate	sent;
	SweepRate	acked;
	TimestampTz prune_at;		/* of kept messages, see done.c: not before */
	TimestampTz prune_from;		/* older ones were deleted, but for some that a look from the front finds */
	TimestampTz prune_front_at; /* no look from the front before */
	bool		pending_work;			/* messages have come since the notifier looked */
	TimestampTz looked_at;		/* when one of the waiters went to look for ... */
	TimestampTz looked_for;		/* ... what was due at that time */
	int			waiters;		/* processes that wait for messages, the first in first out */
	ProcNumber	waiting[SWEEP_QUEUE_WAITERS];
} SweepQueueSlot;

typedef enum SweepInFlightState
{
	IN_FLIGHT_FREE,
	IN_FLIGHT_LEASED,					/* by its lease; next: ENDING, RETURNED, FREE */
	IN_FLIGHT_ENDING,				/* a transaction removes the message; next: FREE (commit), HELD (rollback), PREPARED */
	IN_FLIGHT_PREPARED,				/* that transaction is prepared; next: FREE, HELD */
	IN_FLIGHT_RETURNED,				/* to be claimed again, before all others; next: HELD */
	IN_FLIGHT_BLOCKED,				/* another one with its key is held; next: RETURNED */
} SweepInFlightState;

/* A message that is claimed, or was and waits to be claimed again. */
typedef struct SweepInFlight
{
	SweepMessageRef	message;
	SweepInFlightState state;
	int			slot;
	int			lease;			/* -1 = none */
	int			holder;			/* whose it is, while it is held or blocked; else -1 */
	int			previous;		/* of the lease, or of the list of returned ones */
	int			next;
	int			hash_next;
	int			key_next;		/* of those with a key */
	int			attempts;		/* deliveries, the present one included */
	int			pid;			/* of the process that ends it */
	TransactionId xid;			/* of the prepared transaction that ends it */
	TransactionId purged_by;	/* the transaction that has deleted it, whoever holds it */
} SweepInFlight;

typedef struct SweepQueueLease
{
	pg_uuid_t	id;				/* its first four bytes are the index of the lease */
	int			slot;			/* -1 = free */
	int			previous;		/* of the queue */
	int			next;
	int			first;
	int			last;
	int			count;
	int			holder;			/* who has claimed, see holder.h */
	TimestampTz expires_at;
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
	bool		purged;			/* messages were deleted, claimed ones too: see sweep_in_flight_note_purged */
	bool		emptied;		/* all messages were */
	bool		dropped;		/* the queue is gone; of all queues: the table */
} SweepQueueChange;

/* Requests the memory, and finds or makes it; only while the server starts, see pg_sweep.c. */
extern void sweep_queue_request_memory(void);
extern void sweep_queue_initialize_memory(void);
extern bool sweep_queue_memory_exists(void);

/* Raises an error that says what to set when there is none. */
extern void sweep_queue_require_memory(const char *what);

extern void sweep_queue_lock(LWLockMode mode);
extern void sweep_queue_unlock(void);

/* All of the following: hold the lock, exclusively unless said otherwise. */

/* The slot of a queue of this database, or NULL; a shared lock is enough. */
extern SweepQueueSlot *sweep_queue_find_slot(Oid relation, int32 queue_id);

/*
 * The same; takes a free slot, or that of an idle queue, when it has none. NULL when all are busy, or those
 * that the current user or the database may use.
 */
extern SweepQueueSlot *sweep_queue_get_slot(Oid relation, int32 queue_id);

/* The same for whoever only counts: the slot is nobody's until a claim makes it that of its role. False when that has its share. */
extern SweepQueueSlot *sweep_queue_get_slot_of_nobody(Oid relation, int32 queue_id);
extern bool sweep_queue_adopt_slot(SweepQueueSlot *slot);

/* Raises the error that says who uses how many slots; name is that of the queue. Do not hold the lock. */
pg_noreturn extern void sweep_queue_refuse_slot(const char *name);

/* Whether queues in use had to give way to others: once, and once a minute at most. */
extern bool sweep_queue_take_shortage(TimestampTz now);
extern SweepQueueSlot *sweep_queue_slot(int number);
extern int	sweep_queue_slot_number(const SweepQueueSlot *slot);
extern int	sweep_queue_slot_count(void);

/* On which claims wait while another one searches; a shared lock is enough. It outlives the use of the slot. */
extern ConditionVariable *sweep_queue_searched(const SweepQueueSlot *slot);

/* A database that was dropped: forgets its queues and prepared transactions. */
extern void sweep_queue_forget_database(Oid database);

/* Has the next search begin at the start, and those who wait look; what is held stays held. */
extern void sweep_queue_reset_slot(SweepQueueSlot *slot);

/*
 * Whether a search would find what is needed: with so few messages in the list, or because some have fallen
 * due, which come before those of the list; a shared lock is enough.
 */
extern bool sweep_queue_needs_search(const SweepQueueSlot *slot, int few, TimestampTz now);

/*
 * Something is due at that time; a lease ends. Those who wait for messages sleep no longer than that: each of
 * them knows, so that it does not matter who of them goes away.
 */
extern void sweep_queue_note_due(SweepQueueSlot *slot, TimestampTz due_at);
extern void sweep_queue_note_expiry(SweepQueueSlot *slot, TimestampTz expires_at);

/* Applies what the transaction xid of this database did; xid as of now, not yet recycled. */
extern void sweep_queue_apply_change(const SweepQueueChange *change, FullTransactionId xid, TimestampTz now);

/* Wakes up to count processes that wait for messages of the queue: each once, those that wait longest first. */
extern void sweep_queue_wake(SweepQueueSlot *slot, int64 count);

/* How many per second, over the last ten seconds. */
extern double sweep_queue_rate(const SweepRate *rate, TimestampTz now);

/*
 * Counting. Begin publishes a snapshot, which must see nothing of the transaction itself: commits visible
 * in it are counted by whoever counts, all others by sweep_queue_apply_change. The rows of all slots of
 * the database are set to 0.
 */
extern bool sweep_queue_is_counted(Oid relation);
extern void sweep_queue_begin_count(Oid relation, Snapshot snapshot);
extern void sweep_queue_end_count(Oid relation);
extern void sweep_queue_forget_count(Oid relation);

/* Prepared transactions. Notes what one did to a queue, once; false when there is no room. */
extern bool sweep_queue_note_prepared(TransactionId xid, const SweepQueueChange *change);
extern void sweep_queue_forget_prepared(TransactionId xid);

/* Applies those that have ended, and settles the holds they were ending. Do not hold the lock. */
extern void sweep_queue_settle_prepared(void);
extern bool sweep_queue_awaits_prepared(void);	/* no lock */

/* Whether the prepared transactions of a server start have been noted for this database; once true. */
extern bool sweep_queue_knows_prepared(Oid relation);
extern void sweep_queue_set_knows_prepared(Oid relation);

/* The arrays of both; indexes into them are what the lists above consist of. */
extern SweepInFlight *sweep_in_flight_entries(void);
extern SweepQueueLease *sweep_in_flight_leases(void);

#endif							/* SWEEP_QUEUE_SLOT_H */
