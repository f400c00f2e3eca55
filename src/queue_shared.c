/*
 * queue_shared.c
 *		Shared memory of the queues: slots of queues, counters, prepared transactions.
 *
 * Messages are rows of sweep.queue_message; nothing here is needed to keep them. What is kept here is
 * where the next claim begins to look, so that no claim walks over what others have claimed or removed,
 * and which messages are claimed (queue_hold.c), so that a claim writes nothing. It is lost when the
 * server restarts: then every queue is looked at from its start, once, and what was held comes again.
 *
 * The rule that loses no message: a transaction that has sent lowers the position of its lane to the
 * lowest id that it wrote, after it has become visible (queue_books.c). Whoever searched with an older
 * snapshot, and could not see it, takes over the lowest position that was set while it searched.
 *
 * One lock guards it all. What is done under it takes a microsecond or two, less than the rest of any
 * claim; a lock per queue would need a second one for the leases, which belong to all of them.
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/twophase.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "storage/ipc.h"
#include "storage/procarray.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#include "consumer_shared.h"
#include "queue_hold.h"
#include "queue_shared.h"
#include "settings.h"

#define TRANCHE "pg_sweep_queue"
#define COUNTED_DATABASES 32
#define RATE_PERIOD_US (10 * USECS_PER_SEC)

/* What is known of a database. */
typedef struct QueueDatabase
{
	Oid			database;		/* InvalidOid = free */
	Oid			relation;
	bool		knows_prepared;
	bool		counting;		/* the snapshot is valid */
	bool		counted;
	FullTransactionId xmin;
	FullTransactionId xmax;
	uint32		running_count;	/* in progress in the snapshot; the array of the database in "running" */
} QueueDatabase;

typedef struct PreparedChange
{
	TransactionId xid;			/* InvalidTransactionId = free */
	Oid			database;
	SweepQueueChange change;
} PreparedChange;

typedef struct QueueShared
{
	uint32		generation;
	int			free_hold;
	int			free_lease;
	pg_atomic_uint32 prepared_count;
	QueueDatabase databases[COUNTED_DATABASES];
} QueueShared;

static QueueShared *shared = NULL;
static LWLock *lock = NULL;
static SweepQueueSlot *slots;
static SweepHold *holds;
static SweepQueueLease *leases;
static int *buckets;
static PreparedChange *prepared;
static TransactionId *running;
static int	prepared_limit;
static shmem_request_hook_type previous_request_hook = NULL;
static shmem_startup_hook_type previous_startup_hook = NULL;

static void request_memory(void);
static void initialize_memory(void);
static Size lay_out(char *base);
static int	snapshot_room(void);
static void initialize_slot(SweepQueueSlot *slot, Oid relation, int32 queue_id);
static QueueDatabase *find_database(Oid relation, bool create);
static bool counts(const QueueDatabase *entry, FullTransactionId xid);
static void add_to_rate(SweepRate *rate, int64 count, TimestampTz now);

void
sweep_queue_request_memory(void)
{
	previous_request_hook = shmem_request_hook;
	shmem_request_hook = request_memory;
	previous_startup_hook = shmem_startup_hook;
	shmem_startup_hook = initialize_memory;
}

static void
request_memory(void)
{
	if (previous_request_hook)
		previous_request_hook();
	RequestAddinShmemSpace(lay_out(NULL));
	RequestNamedLWLockTranche(TRANCHE, 1);
}

/* Transactions that can be in progress at a time. */
static int
snapshot_room(void)
{
	return MaxBackends + max_prepared_xacts;
}

/* Sets the pointers into the memory, and returns its size. */
static Size
lay_out(char *base)
{
	Size		size = MAXALIGN(sizeof(QueueShared));

	shared = (QueueShared *) base;
	slots = (SweepQueueSlot *) (base + size);
	size = add_size(size, MAXALIGN(mul_size(sizeof(SweepQueueSlot), sweep_max_queues)));
	holds = (SweepHold *) (base + size);
	size = add_size(size, MAXALIGN(mul_size(sizeof(SweepHold), sweep_max_leases)));
	leases = (SweepQueueLease *) (base + size);
	size = add_size(size, MAXALIGN(mul_size(sizeof(SweepQueueLease), sweep_max_leases)));
	buckets = (int *) (base + size);
	size = add_size(size, MAXALIGN(mul_size(sizeof(int), sweep_max_leases)));
	prepared_limit = 4 * max_prepared_xacts;
	prepared = (PreparedChange *) (base + size);
	size = add_size(size, MAXALIGN(mul_size(sizeof(PreparedChange), prepared_limit)));
	running = (TransactionId *) (base + size);
	size = add_size(size, MAXALIGN(mul_size(sizeof(TransactionId) * COUNTED_DATABASES, snapshot_room())));
	return size;
}

static void
initialize_memory(void)
{
	bool		found;
	Size		size = lay_out(NULL);

	if (previous_startup_hook)
		previous_startup_hook();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	lay_out(ShmemInitStruct("pg_sweep queues", size, &found));
	lock = &GetNamedLWLockTranche(TRANCHE)->lock;
	if (!found)
	{
		memset(shared, 0, size);
		pg_atomic_init_u32(&shared->prepared_count, 0);
		sweep_hold_initialize();
	}
	LWLockRelease(AddinShmemInitLock);
}

bool
sweep_queue_memory_exists(void)
{
	return lock != NULL;
}

void
sweep_queue_require_memory(const char *what)
{
	if (lock == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("%s needs pg_sweep to be loaded at server start", what),
				 errhint("Add pg_sweep to shared_preload_libraries and restart the server. Sending works without.")));
}

void
sweep_queue_lock(LWLockMode mode)
{
	LWLockAcquire(lock, mode);
}

void
sweep_queue_unlock(void)
{
	LWLockRelease(lock);
}

SweepQueueSlot *
sweep_queue_find_slot(Oid relation, int32 queue_id)
{
	/* Where a queue was the last time: the slots are too large to walk over them in every commit. */
	static int	hints[64];
	int		   *hint = &hints[(uint32) queue_id % lengthof(hints)];

	for (int i = -1; i < sweep_max_queues; i++)
	{
		int			number = i < 0 ? *hint : i;
		SweepQueueSlot *slot = &slots[number];

		if (slot->queue_id == queue_id && slot->relation == relation && slot->database == MyDatabaseId && slot->generation != 0)
		{
			*hint = number;
			return slot;
		}
	}
	return NULL;
}

SweepQueueSlot *
sweep_queue_get_slot(Oid relation, int32 queue_id)
{
	SweepQueueSlot *slot = sweep_queue_find_slot(relation, queue_id);

	if (slot != NULL)
		return slot;
	for (int i = 0; i < sweep_max_queues; i++)
	{
		SweepQueueSlot *candidate = &slots[i];

		/* What an extension that was dropped has left is of no use to anybody. */
		if (candidate->generation != 0 && candidate->database == MyDatabaseId && candidate->relation != relation &&
			candidate->waiters == 0)
		{
			sweep_hold_drop_all(candidate);
			candidate->generation = 0;
		}
		if (candidate->generation == 0)
		{
			slot = candidate;
			break;
		}
		if (candidate->lease_first < 0 && candidate->returned_first < 0 && candidate->blocked_first < 0 &&
			candidate->waiters == 0 && (slot == NULL || candidate->used_at < slot->used_at))
			slot = candidate;
	}
	if (slot != NULL)
	{
		if (slot->generation != 0)
			for (int i = 0; i < COUNTED_DATABASES; i++)
				if (shared->databases[i].database == slot->database)
					shared->databases[i].counted = shared->databases[i].counting = false;
		initialize_slot(slot, relation, queue_id);
	}
	return slot;
}

static void
initialize_slot(SweepQueueSlot *slot, Oid relation, int32 queue_id)
{
	memset(slot, 0, sizeof(*slot));
	slot->generation = ++shared->generation;
	slot->database = MyDatabaseId;
	slot->relation = relation;
	slot->queue_id = queue_id;
	slot->used_at = GetCurrentTimestamp();
	slot->lease_first = slot->returned_first = slot->returned_last = slot->blocked_first = -1;
	slot->next_expiry = SWEEP_NOTHING_DUE;
	slot->sent.since = slot->acked.since = slot->used_at;
	ConditionVariableInit(&slot->arrived);
	sweep_queue_reset_slot(slot);
}

SweepQueueSlot *
sweep_queue_slot(int number)
{
	return &slots[number];
}

int
sweep_queue_slot_number(const SweepQueueSlot *slot)
{
	return (int) (slot - slots);
}

int
sweep_queue_slot_count(void)
{
	return sweep_max_queues;
}

void
sweep_queue_reset_slot(SweepQueueSlot *slot)
{
	slot->pending = (1 << SWEEP_LANES) - 1;
	for (int i = 0; i < SWEEP_LANES; i++)
		slot->position[i] = slot->low[i] = PG_INT64_MIN;
	slot->due_from = slot->due_low = slot->next_due = PG_INT64_MIN;
	slot->found_count = 0;
}

void
sweep_queue_flush_found(SweepQueueSlot *slot)
{
	for (int i = 0; i < slot->found_count; i++)
	{
		const SweepFound *message = &slot->found[slot->found_first + i];
		int			lane = SWEEP_LANE_INDEX(message->lane);

		if (SWEEP_LANE_IS_DELAYED(message->lane))
		{
			slot->due_from = Min(slot->due_from, message->due_at);
			slot->next_due = Min(slot->next_due, message->due_at);
		}
		else
		{
			slot->position[lane] = Min(slot->position[lane], message->message_id);
			slot->pending |= 1 << lane;
		}
	}
	slot->found_count = 0;
}

void
sweep_queue_apply_change(const SweepQueueChange *change, FullTransactionId xid, TimestampTz now)
{
	QueueDatabase *entry = find_database(change->relation, false);
	SweepQueueSlot *slot;
	int			last_lane;

	if (change->queue_id == 0)
	{
		for (int i = 0; i < sweep_max_queues; i++)
			if (slots[i].generation != 0 && slots[i].database == MyDatabaseId)
				sweep_queue_reset_slot(&slots[i]);
		if (entry != NULL)
			entry->counted = entry->counting = false;
		return;
	}
	slot = change->dropped ? sweep_queue_find_slot(change->relation, change->queue_id)
		: sweep_queue_get_slot(change->relation, change->queue_id);
	if (slot == NULL)
	{
		/* What nobody counts is counted anew when somebody asks. */
		if (entry != NULL && !change->dropped)
			entry->counted = entry->counting = false;
		return;
	}
	if (change->dropped)
	{
		sweep_hold_drop_all(slot);
		sweep_queue_wake(slot, slot->waiters);
		if (slot->waiters == 0)
			slot->generation = 0;
		return;
	}
	if (change->emptied)
		sweep_hold_drop_all(slot);
	if (change->reset)
		sweep_queue_reset_slot(slot);
	/* What was found is in the order of priorities; what is more urgent than any of it comes before. */
	last_lane = slot->found_count > 0 ? SWEEP_LANE_INDEX(slot->found[slot->found_first + slot->found_count - 1].lane) : 0;
	if (change->lanes & ((1 << last_lane) - 1))
		sweep_queue_flush_found(slot);
	for (uint32 lanes = change->lanes; lanes != 0; lanes &= lanes - 1)
	{
		int			lane = pg_rightmost_one_pos32(lanes);

		slot->position[lane] = Min(slot->position[lane], change->low[lane]);
		slot->low[lane] = Min(slot->low[lane], change->low[lane]);
	}
	slot->pending |= change->lanes;
	slot->due_from = Min(slot->due_from, change->first_due);
	slot->due_low = Min(slot->due_low, change->first_due);
	slot->next_due = Min(slot->next_due, change->first_due);
	if (entry != NULL && counts(entry, xid))
	{
		slot->rows[0] += change->rows[0];
		slot->rows[1] += change->rows[1];
		slot->dead += change->dead;
	}
	slot->used_at = now;
	add_to_rate(&slot->sent, change->sent, slot->used_at);
	add_to_rate(&slot->acked, change->acked, slot->used_at);
	if (change->sent > 0 && !slot->news)
	{
		slot->news = true;
		sweep_consumer_shared_wake_notifier(slot->database);
	}
	sweep_queue_wake(slot, change->sent);
}

void
sweep_queue_wake(SweepQueueSlot *slot, int64 count)
{
	for (int64 i = Min(count, slot->waiters); i > 0; i--)
		ConditionVariableSignal(&slot->arrived);
}

static void
add_to_rate(SweepRate *rate, int64 count, TimestampTz now)
{
	rate->total += count;
	if (now - rate->since >= RATE_PERIOD_US)
	{
		rate->per_second = sweep_queue_rate(rate, now);
		rate->since = now;
		rate->total_since = rate->total;
	}
}

double
sweep_queue_rate(const SweepRate *rate, TimestampTz now)
{
	double		seconds = (double) (now - rate->since) / USECS_PER_SEC;

	/* A period that has just begun says little: then the one before it. */
	if (seconds < 2 && rate->per_second > 0)
		return rate->per_second;
	return (double) (rate->total - rate->total_since) / Max(seconds, 0.1);
}

/* The entry of this database; made anew for another table, in the place of any other if need be. */
static QueueDatabase *
find_database(Oid relation, bool create)
{
	static int	victim = 0;
	QueueDatabase *entry = NULL;

	for (int i = 0; i < COUNTED_DATABASES; i++)
	{
		QueueDatabase *candidate = &shared->databases[i];

		if (candidate->database == MyDatabaseId && candidate->relation == relation)
			return candidate;
		if (candidate->database == MyDatabaseId || (candidate->database == InvalidOid && entry == NULL))
			entry = candidate;
	}
	if (!create)
		return NULL;
	if (entry == NULL)
		entry = &shared->databases[victim++ % COUNTED_DATABASES];
	memset(entry, 0, sizeof(*entry));
	entry->database = MyDatabaseId;
	entry->relation = relation;
	return entry;
}

/* Whether a commit is to be added to the counters, because whoever counted has not seen it. */
static bool
counts(const QueueDatabase *entry, FullTransactionId xid)
{
	const TransactionId *ids = running + (entry - shared->databases) * snapshot_room();

	if (!entry->counting)
		return false;
	if (FullTransactionIdFollowsOrEquals(xid, entry->xmax))
		return true;
	if (FullTransactionIdPrecedes(xid, entry->xmin))
		return false;
	for (uint32 i = 0; i < entry->running_count; i++)
		if (ids[i] == XidFromFullTransactionId(xid))
			return true;
	return false;
}

bool
sweep_queue_is_counted(Oid relation)
{
	QueueDatabase *entry = find_database(relation, false);

	return entry != NULL && entry->counted;
}

void
sweep_queue_begin_count(Oid relation, Snapshot snapshot)
{
	QueueDatabase *entry = find_database(relation, true);
	TransactionId *ids = running + (entry - shared->databases) * snapshot_room();
	FullTransactionId next = ReadNextFullTransactionId();
	uint64		distance = XidFromFullTransactionId(next) - snapshot->xmax;

	/* Both are 32 bits of the same counter, a moment apart. */
	entry->xmax = FullTransactionIdFromU64(U64FromFullTransactionId(next) - (uint32) distance);
	entry->xmin = FullTransactionIdFromU64(U64FromFullTransactionId(entry->xmax) - (uint32) (snapshot->xmax - snapshot->xmin));
	entry->running_count = snapshot->xcnt;
	memcpy(ids, snapshot->xip, snapshot->xcnt * sizeof(TransactionId));
	entry->counting = true;
	entry->counted = false;
	for (int i = 0; i < sweep_max_queues; i++)
		if (slots[i].generation != 0 && slots[i].database == MyDatabaseId && slots[i].relation == relation)
			slots[i].rows[0] = slots[i].rows[1] = slots[i].dead = 0;
}

void
sweep_queue_end_count(Oid relation)
{
	QueueDatabase *entry = find_database(relation, false);

	/* Not when a slot was lost or the table was written to by others in the meantime. */
	if (entry != NULL && entry->counting)
		entry->counted = true;
}

void
sweep_queue_forget_count(Oid relation)
{
	QueueDatabase *entry = find_database(relation, false);

	if (entry != NULL)
		entry->counted = entry->counting = false;
}

bool
sweep_queue_knows_prepared(Oid relation)
{
	QueueDatabase *entry = find_database(relation, false);

	return entry != NULL && entry->knows_prepared;
}

void
sweep_queue_set_knows_prepared(Oid relation)
{
	find_database(relation, true)->knows_prepared = true;
}

bool
sweep_queue_note_prepared(TransactionId xid, const SweepQueueChange *change)
{
	for (int i = 0; i < prepared_limit; i++)
	{
		if (TransactionIdIsValid(prepared[i].xid))
			continue;
		prepared[i].xid = xid;
		prepared[i].database = MyDatabaseId;
		prepared[i].change = *change;
		pg_atomic_fetch_add_u32(&shared->prepared_count, 1);
		return true;
	}
	return false;
}

void
sweep_queue_forget_prepared(TransactionId xid)
{
	for (int i = 0; i < prepared_limit; i++)
	{
		if (prepared[i].xid != xid)
			continue;
		prepared[i].xid = InvalidTransactionId;
		pg_atomic_fetch_sub_u32(&shared->prepared_count, 1);
	}
}

bool
sweep_queue_awaits_prepared(void)
{
	return pg_atomic_read_u32(&shared->prepared_count) > 0;
}

/* Nobody calls us when a prepared transaction ends, so whoever looks for messages asks. */
void
sweep_queue_settle_prepared(void)
{
	for (int i = 0; i < prepared_limit && sweep_queue_awaits_prepared(); i++)
	{
		TransactionId xid = prepared[i].xid;
		bool		committed;
		FullTransactionId next;

		if (!TransactionIdIsValid(xid) || prepared[i].database != MyDatabaseId || TransactionIdIsInProgress(xid))
			continue;
		committed = TransactionIdDidCommit(xid);
		sweep_queue_lock(LW_EXCLUSIVE);
		if (prepared[i].xid == xid && prepared[i].database == MyDatabaseId)
		{
			next = ReadNextFullTransactionId();
			if (!committed && prepared[i].change.reset_if_undone)
				prepared[i].change = (SweepQueueChange)
			{
				.relation = prepared[i].change.relation,.queue_id = prepared[i].change.queue_id,
					.first_due = SWEEP_NOTHING_DUE,.reset = true
			};
			if (committed || prepared[i].change.reset)
				sweep_queue_apply_change(&prepared[i].change,
										 FullTransactionIdFromU64(U64FromFullTransactionId(next) -
																  (uint32) (XidFromFullTransactionId(next) - xid)),
										 GetCurrentTimestamp());
			sweep_hold_settle_prepared(xid, committed);
			prepared[i].xid = InvalidTransactionId;
			pg_atomic_fetch_sub_u32(&shared->prepared_count, 1);
		}
		sweep_queue_unlock();
	}
}

SweepHold *
sweep_queue_holds(void)
{
	return holds;
}

SweepQueueLease *
sweep_queue_leases(void)
{
	return leases;
}

int *
sweep_queue_hold_buckets(void)
{
	return buckets;
}

int *
sweep_queue_free_hold(void)
{
	return &shared->free_hold;
}

int *
sweep_queue_free_lease(void)
{
	return &shared->free_lease;
}
