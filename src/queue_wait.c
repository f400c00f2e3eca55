/*
 * queue_wait.c
 *		Waiting for messages: of a consumer in the database, and CALL sweep.wait_for_message.
 *
 * A waiter puts itself into the list of the queue and sleeps on its latch. Whoever brings messages takes as
 * many waiters out of the list as there are messages, and wakes them: a crowd is not woken for one message,
 * as a condition variable would do, because a process that leaves one passes its signal on. Somebody who
 * was woken and cannot look any more wakes the next. What falls due wakes all who know of it, but one of
 * them looks, and his search wakes others when there is more. Nothing is polled, and no snapshot is held
 * meanwhile, so a waiter holds back no vacuum.
 *
 * While a process is in the list it does not check for interrupts, so one that is cancelled or terminated
 * leaves nothing behind.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "storage/latch.h"
#include "utils/builtins.h"
#include "utils/portal.h"
#include "utils/timestamp.h"

#include "call.h"
#include "queue_table.h"
#include "queue_wait.h"
#include "shared.h"
#include "sql.h"

/* Who was woken may not claim, being a session of somebody: the others look again after this. */
#define LOOK_AGAIN_MS 10000

/* Who went to look for what is due has claimed it by then; else the next one looks. */
#define LOOK_US (100 * INT64CONST(1000))

/* When the table of queues is full, or the list of those who wait, it is looked at this often. */
#define NO_PLACE_MS 200

/* While transactions are prepared that have sent something. */
#define PREPARED_MS 1000

typedef struct QueueRequest
{
	text	   *name;
	Oid			relation;
	int32		queue_id;
} QueueRequest;

static void leave_list(SweepQueueSlot *slot);
static bool is_ready(const SweepQueueSlot *slot, TimestampTz now, TimestampTz *due);
static void find_work(void *arg);

PG_FUNCTION_INFO_V1(sweep_queue_wait_call);

bool
sweep_queue_wait(Oid relation, int32 queue_id, long timeout_ms)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz deadline;
	TimestampTz due = SWEEP_NOTHING_DUE;
	SweepQueueSlot *slot;
	bool		ready;
	bool		woken = false;

	/* Nobody tells when a prepared transaction ends. */
	if (sweep_queue_awaits_prepared())
	{
		sweep_queue_settle_prepared();
		timeout_ms = Min(timeout_ms, PREPARED_MS);
	}
	/* The look comes after, so that no message can slip in between. */
	sweep_queue_lock(LW_EXCLUSIVE);
	slot = sweep_queue_get_slot(relation, queue_id);
	if (slot != NULL && slot->waiters < SWEEP_QUEUE_WAITERS)
		slot->waiting[slot->waiters++] = MyProcNumber;
	else
		timeout_ms = Min(timeout_ms, NO_PLACE_MS);
	ready = slot != NULL && is_ready(slot, now, &due);
	sweep_queue_unlock();
	deadline = TimestampTzPlusMilliseconds(now, timeout_ms);
	while (!ready && !woken && now < deadline)
	{
		woken = (WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						   TimestampDifferenceMilliseconds(now, Min(due, deadline)) + 1, sweep_wait_event()) & WL_LATCH_SET) != 0;
		ResetLatch(MyLatch);
		now = GetCurrentTimestamp();
		sweep_queue_lock(LW_SHARED);
		ready = slot == NULL || is_ready(slot, now, &due);
		sweep_queue_unlock();
	}
	sweep_queue_lock(LW_EXCLUSIVE);
	if (slot != NULL)
		leave_list(slot);
	slot = sweep_queue_find_slot(relation, queue_id);
	now = GetCurrentTimestamp();
	ready = slot != NULL && is_ready(slot, now, &due);
	if (ready && !InterruptPending && due <= now)
	{
		slot->looked_at = now;
		slot->looked_for = due;
	}
	if (ready && InterruptPending)
		sweep_queue_wake(slot, 1);
	sweep_queue_unlock();
	return ready;
}

/* Unless whoever has woken us has taken us out. */
static void
leave_list(SweepQueueSlot *slot)
{
	for (int i = 0; i < slot->waiters; i++)
	{
		if (slot->waiting[i] != MyProcNumber)
			continue;
		slot->waiters--;
		memmove(slot->waiting + i, slot->waiting + i + 1, sizeof(ProcNumber) * (slot->waiters - i));
		return;
	}
}

void
sweep_queue_pass_on(Oid relation, int32 queue_id)
{
	SweepQueueSlot *slot;
	TimestampTz due;

	sweep_queue_lock(LW_EXCLUSIVE);
	slot = sweep_queue_find_slot(relation, queue_id);
	if (slot != NULL && is_ready(slot, GetCurrentTimestamp(), &due))
		sweep_queue_wake(slot, 1);
	sweep_queue_unlock();
}

/* A claim would find something, or has to look; else when it has to. */
static bool
is_ready(const SweepQueueSlot *slot, TimestampTz now, TimestampTz *due)
{
	*due = Min(slot->next_due, slot->next_expiry);
	if (slot->pending != 0 || slot->found_count > 0 || slot->returned_first >= 0)
		return true;
	if (*due <= now && *due == slot->looked_for && now - slot->looked_at < LOOK_US)
		*due = slot->looked_at + LOOK_US;
	return *due <= now;
}

/* SQL: sweep.wait_for_message(queue text, timeout interval) */
Datum
sweep_queue_wait_call(PG_FUNCTION_ARGS)
{
	QueueRequest request = {0};
	ErrorData  *error = NULL;
	int64		deadline_us;
	MemoryContext old;

	sweep_call_require_no_block(fcinfo, "sweep.wait_for_message");
	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("queue and timeout of sweep.wait_for_message must not be null")));
	PreventCommandDuringRecovery("sweep.wait_for_message()");
	sweep_queue_require_memory("sweep.wait_for_message");
	/* What outlives the end of the transaction must live in the portal's context. */
	old = MemoryContextSwitchTo(PortalContext);
	request.name = DatumGetTextPCopy(PG_GETARG_DATUM(0));
	MemoryContextSwitchTo(old);
	deadline_us = sweep_monotonic_us() + sweep_interval_us(PG_GETARG_INTERVAL_P(1));

	sweep_sql_enter_call();
	sweep_sql_end_transaction();
	for (;;)
	{
		int64		left_us = deadline_us - sweep_monotonic_us();

		if (!sweep_sql_transaction(find_work, &request, PortalContext, &error))
			ReThrowError(error);
		if (sweep_queue_wait(request.relation, request.queue_id, (long) Min(Max(left_us, 0) / 1000 + 1, LOOK_AGAIN_MS)) ||
			sweep_monotonic_us() >= deadline_us)
			break;
		CHECK_FOR_INTERRUPTS();
	}
	sweep_sql_leave_call();
	PG_RETURN_VOID();
}

/* The queue, if the caller may take from it; it may have been dropped while we waited. */
static void
find_work(void *arg)
{
	QueueRequest *request = arg;
	Relation	messages = sweep_queue_open();

	request->queue_id = sweep_queue_find(request->name, RIGHT_CONSUME)->queue_id;
	request->relation = RelationGetRelid(messages);
	sweep_queue_close(messages);
}
