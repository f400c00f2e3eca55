/*
 * wait.c
 *		Waiting for messages, for consumers in the database and for CALL sweep.wait_for_message.
 *
 * A waiting process is in the list of its queue and sleeps on its latch. A commit that brings messages takes as many
 * processes out of the list as there are messages, and wakes them: a condition variable would wake all for one message,
 * because a process that leaves it passes its signal on. A process that was woken and cannot look for messages any more
 * wakes the next one. All waiting processes sleep until the next message falls due or the next lease ends, and are
 * woken if that time becomes earlier. Then one of them looks for messages, and its search wakes others if it finds
 * more. Nothing is polled, and no snapshot is held.
 *
 * While a process is in the list it does not process interrupts, so that it always leaves the list first. A session
 * also watches the connection to its client, so that it does not wait for messages when the client is gone.
 */
#include "postgres.h"

#include "access/table.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/compat.h"
#include "base/extension.h"
#include "base/sql.h"
#include "base/timer.h"
#include "base/txn.h"
#include "queue/queue.h"
#include "queue/search.h"
#include "queue/slot_pool.h"
#include "queue/table.h"
#include "queue/transaction.h"

/*
 * The wait events of a session, and the check whether its client is still there. libpq/libpq.h declares them, but
 * includes a header of GSSAPI, which the packages with the server's headers do not require.
 */
#define CLIENT_SOCKET_POS 0		/* FeBeWaitSetSocketPos */
extern PGDLLIMPORT WaitEventSet *FeBeWaitSet;
extern bool pq_check_connection(void);

/* Longest sleep of a session, in ms: the session that was woken for a message may never claim it. */
#define LOOK_AGAIN_MS 10000

/* Time in which a process that left the list claims the messages, in us; then another one leaves the list. */
#define LOOK_US (100 * INT64CONST(1000))

/* Sleep of a process without a slot or a place in the list, in ms. */
#define NO_PLACE_MS 200

typedef struct QueueRequest
{
	text	   *name;
	Oid			relation;
	int32		queue_id;
	bool		found;			/* there is something to claim */
} QueueRequest;

PG_FUNCTION_INFO_V1(sweep_queue_wait_call);

/*
 * Whether the process should leave the list and claim. A process that checks again without having been woken leaves the messages
 * to processes that were woken or left the list before, for LOOK_US. *event is the end of a lease, or a due time, that has
 * passed. *wait_us is shortened to the next time at which a check is useful. The wall clock may be set, so callers do not rely on
 * a due time for longer than their longest sleep.
 */
static bool
is_ready(const SweepQueueSlot *slot, int64 now_us, bool again, int64 *event, int64 *wait_us)
{
	TimestampTz now = GetCurrentTimestamp();
	bool		ready = slot->pending != 0 || slot->prefetched_count > 0 || slot->returned.first >= 0;
	bool		looked = now_us - slot->looked_us < LOOK_US;

	*event = slot->next_expiry_us <= now_us ? slot->next_expiry_us : slot->next_due <= now ? slot->next_due : SWEEP_NOTHING_DUE;
	if (ready ? !again || !looked : *event != SWEEP_NOTHING_DUE && (*event != slot->looked_for || !looked))
		return true;
	if (ready || *event != SWEEP_NOTHING_DUE)
		*wait_us = Min(*wait_us, slot->looked_us + LOOK_US - now_us);
	else
		/* A wall clock before 2000 is below 0: then the time until never does not fit. */
		*wait_us = Min(slot->next_expiry_us - now_us, Min(slot->next_due, now + *wait_us) - now);
	return false;
}

/* -1 when the process was taken out of the list, and woken. */
static int
place_in_list(const SweepQueueSlot *slot)
{
	for (int i = 0; i < slot->waiters; i++)
		if (slot->waiting[i] == MyProcNumber)
			return i;
	return -1;
}

static bool
is_interrupted(pg_atomic_uint32 *stop_requested)
{
	return InterruptPending || (stop_requested != NULL && (ConfigReloadPending || pg_atomic_read_u32(stop_requested) != 0));
}

static void
leave_list(SweepQueueSlot *slot)
{
	int			place = place_in_list(slot);

	if (place < 0)
		return;
	slot->waiters--;
	memmove(slot->waiting + place, slot->waiting + place + 1, sizeof(ProcNumber) * (slot->waiters - place));
}

/* In a session, the loss of the client becomes a pending interrupt. */
static void
sleep_on_latch(long timeout_ms)
{
	WaitEvent	event = {0};

	if (MyProcPort == NULL || !WaitEventSetCanReportClosed())
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, timeout_ms, sweep_wait_event(SWEEP_WAIT_QUEUE));
		ResetLatch(MyLatch);
		return;
	}
	/* Not set back: code that reads the socket sets the events that it waits for. */
	ModifyWaitEvent(FeBeWaitSet, CLIENT_SOCKET_POS, WL_SOCKET_CLOSED, NULL);
	if (WaitEventSetWait(FeBeWaitSet, timeout_ms, &event, 1, sweep_wait_event(SWEEP_WAIT_QUEUE)) == 0)
		return;
	if (event.events & WL_POSTMASTER_DEATH)
		proc_exit(1);
	ResetLatch(MyLatch);
	/* When the latch is set, the socket is not checked. */
	if ((event.events & WL_SOCKET_CLOSED) || !pq_check_connection())
		ClientConnectionLost = InterruptPending = true;
}

void
sweep_queue_wait(Oid relation, int32 queue_id, long timeout_ms, pg_atomic_uint32 *stop_requested)
{
	int64		deadline_us = sweep_monotonic_us();
	SweepQueueSlot *slot;
	bool		listed;
	bool		again = false;

	sweep_timer_begin_rest();
	sweep_queue_settle_prepared();
	/* The process enters the list before it checks for messages, so that none can come unnoticed in between. */
	sweep_queue_lock(LW_EXCLUSIVE);
	slot = sweep_queue_get_slot(relation, queue_id);
	listed = slot != NULL && slot->waiters < SWEEP_QUEUE_WAITERS;
	if (listed)
		slot->waiting[slot->waiters++] = MyProcNumber;
	deadline_us += (listed ? timeout_ms : Min(timeout_ms, NO_PLACE_MS)) * INT64CONST(1000);
	for (;;)
	{
		int64		now_us = sweep_monotonic_us();
		int64		wait_us = deadline_us - now_us;
		int64		event;
		bool		ready = slot != NULL && is_ready(slot, now_us, again, &event, &wait_us);
		bool		woken = listed && (slot == NULL || place_in_list(slot) < 0);

		if (ready || woken || now_us >= deadline_us || is_interrupted(stop_requested))
		{
			if (slot != NULL)
				leave_list(slot);
			if (ready && InterruptPending)
				sweep_queue_wake(slot, 1);
			else if (ready && event != SWEEP_NOTHING_DUE)
			{
				slot->looked_us = now_us;
				slot->looked_for = event;
			}
			else if (ready && again)
				slot->looked_us = now_us;
			break;
		}
		sweep_queue_unlock();
		sleep_on_latch((long) (wait_us / 1000) + 1);
		sweep_queue_lock(LW_EXCLUSIVE);
		/* The slot may have been given to another queue. */
		slot = sweep_queue_find_slot(relation, queue_id);
		again = true;
	}
	sweep_queue_unlock();
	sweep_timer_end_rest();
}

void
sweep_queue_pass_on(Oid relation, int32 queue_id)
{
	SweepQueueSlot *slot;
	int64		event;
	int64		wait_us = 0;

	sweep_queue_lock(LW_EXCLUSIVE);
	slot = sweep_queue_find_slot(relation, queue_id);
	if (slot != NULL && is_ready(slot, sweep_monotonic_us(), false, &event, &wait_us))
		sweep_queue_wake(slot, 1);
	sweep_queue_unlock();
}

static bool
find_message(Relation messages, const SweepQueue *queue)
{
	Oid			relation = RelationGetRelid(messages);
	bool		found = false;

	do
	{
		SweepRefusal refusal;
		SweepQueueSlot *slot;

		CHECK_FOR_INTERRUPTS();
		sweep_queue_lock(LW_EXCLUSIVE);
		slot = sweep_queue_find_settled(relation, queue->queue_id);
		if (slot == NULL)
			slot = sweep_queue_allot_slot(relation, queue->queue_id, GetUserId(), &refusal);
		if (slot != NULL)
			found = slot->prefetched_count > 0 || slot->returned.first >= 0;
		sweep_queue_unlock();
		if (slot == NULL)
		{
			/* Nothing can be found without a slot; the next attempt may get one. */
			sweep_queue_make_room(HELD_SLOTS, refusal);
			return false;
		}
	} while (!found && sweep_queue_search(messages, queue, 1, false));
	return found;
}

/*
 * Finds the queue, which may have been dropped meanwhile, and searches it as a claim would: a queue without a slot, or the
 * end of a lease, does not mean that there is a message.
 */
static void
find_work(void *arg)
{
	QueueRequest *request = arg;
	Relation	messages = sweep_queue_open();
	SweepQueue	queue = *sweep_queue_find(request->name, RIGHT_CONSUME);

	request->queue_id = queue.queue_id;
	request->relation = RelationGetRelid(messages);
	request->found = find_message(messages, &queue);
	table_close(messages, NoLock);
}

/* SQL: sweep.wait_for_message(queue text, timeout interval) */
Datum
sweep_queue_wait_call(PG_FUNCTION_ARGS)
{
	QueueRequest request = {0};
	ErrorData  *error = NULL;
	int64		timeout_us;
	int64		deadline_us;
	MemoryContext old;

	sweep_require_no_block(fcinfo, "sweep.wait_for_message");
	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("queue and timeout of sweep.wait_for_message must not be null")));
	sweep_require_usable("sweep.wait_for_message()");
	sweep_queue_require_memory("sweep.wait_for_message");
	/* The portal's context outlives the end of the transaction. */
	old = MemoryContextSwitchTo(PortalContext);
	request.name = DatumGetTextPCopy(PG_GETARG_DATUM(0));
	MemoryContextSwitchTo(old);
	timeout_us = sweep_interval_us(PG_GETARG_INTERVAL_P(1));
	if (sweep_max_wait >= 0)
		timeout_us = Min(timeout_us, sweep_max_wait * INT64CONST(1000));
	deadline_us = sweep_monotonic_us() + timeout_us;

	sweep_sql_enter_call();
	sweep_sql_end_transaction();
	for (;;)
	{
		int64		left_us = deadline_us - sweep_monotonic_us();

		if (!sweep_txn_execute_in_call(find_work, &request, PortalContext, &error))
		{
			if (request.queue_id != 0)
				sweep_queue_pass_on(request.relation, request.queue_id);
			ReThrowError(error);
		}
		if (request.found || left_us <= 0)
			break;
		sweep_queue_wait(request.relation, request.queue_id, (long) Min(left_us / 1000 + 1, LOOK_AGAIN_MS), NULL);
		CHECK_FOR_INTERRUPTS();
	}
	sweep_sql_end_call();
	PG_RETURN_VOID();
}
