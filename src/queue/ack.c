/*
 * ack.c
 *		sweep.ack, release and extend: how a message leaves its queue, or goes back to it.
 *
 * What a lease holds is known from shared memory, so a late call finds nothing to end: its lease is gone
 * with what somebody else has claimed since. Ending a message is part of the caller's transaction. From
 * the first call until that ends nobody else can claim or end it, whatever the clock says; then it is
 * gone, or of its lease again.
 *
 * The rows are deleted without SQL, by their place in the table, which is verified; so an old snapshot
 * of the transaction is no obstacle. Release and extend change nothing but shared memory, at once.
 */
#include "postgres.h"

#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/tuptable.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "base/clock.h"
#include "base/compat_table.h"
#include "base/require.h"
#include "queue/ack.h"
#include "queue/done.h"
#include "queue/in_flight.h"
#include "queue/prepared.h"
#include "queue/queue.h"
#include "queue/table.h"
#include "queue/transaction.h"

static bool is_listed(const SweepEnding *ending, int64 message_id);
static int	compare_int64(const void *left, const void *right);

PG_FUNCTION_INFO_V1(sweep_queue_ack);
PG_FUNCTION_INFO_V1(sweep_queue_release);
PG_FUNCTION_INFO_V1(sweep_queue_extend);

/* SQL: sweep.ack(lease uuid, message_ids bigint[]) RETURNS int */
Datum
sweep_queue_ack(PG_FUNCTION_ARGS)
{
	SweepEnding		ending = {0};
	int			acked = 0;

	if (sweep_ending_open(&ending, fcinfo, 1, "sweep.ack()"))
	{
		int			count = sweep_ending_begin(&ending);
		TupleTableSlot *slot = table_slot_create(ending.messages, NULL);
		Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());

		ending.blocks = RelationGetNumberOfBlocks(ending.messages);
		for (int i = 0; i < count; i++)
		{
			SweepInFlight *entry = &ending.held[i];

			if (!sweep_ending_remove_row(&ending, &entry->message, snapshot, slot))
				continue;
			if (ending.queue.keep_done_us > 0)
				sweep_queue_keep_done(entry, slot);
			ending.change->rows[SWEEP_LANE_IS_DELAYED(entry->message.lane)]--;
			ending.change->acked++;
			acked++;
		}
		UnregisterSnapshot(snapshot);
		ExecDropSingleTupleTableSlot(slot);
		if (ending.queue.keep_done_us > 0)
			sweep_queue_prune_done(ending.messages, &ending.queue);
	}
	sweep_queue_close(ending.messages);
	PG_RETURN_INT32(sweep_ending_report(&ending, acked));
}

/* SQL: sweep.release(lease uuid, message_ids bigint[]) RETURNS int */
Datum
sweep_queue_release(PG_FUNCTION_ARGS)
{
	SweepEnding		ending = {0};
	int			released = 0;

	if (sweep_ending_open(&ending, fcinfo, 1, "sweep.release()"))
	{
		SweepQueueLease *lease;
		int			next;

		sweep_queue_lock(LW_EXCLUSIVE);
		lease = sweep_in_flight_find_lease(ending.lease);
		for (int number = lease != NULL ? lease->messages.first : -1; number >= 0; number = next)
		{
			SweepInFlight *entry = sweep_in_flight(number);

			next = entry->next;
			if (entry->state != IN_FLIGHT_LEASED || !is_listed(&ending, entry->message.message_id))
				continue;
			/* It was not tried. */
			entry->attempts--;
			sweep_in_flight_return(number);
			released++;
		}
		sweep_queue_unlock();
	}
	sweep_queue_close(ending.messages);
	PG_RETURN_INT32(sweep_ending_report(&ending, released));
}

/* SQL: sweep.extend(lease uuid, by interval) RETURNS int */
Datum
sweep_queue_extend(PG_FUNCTION_ARGS)
{
	SweepEnding		ending = {0};
	int			held = 0;

	if (PG_ARGISNULL(1) || sweep_interval_us(PG_GETARG_INTERVAL_P(1)) <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a lease can only be extended by a time greater than zero")));
	if (sweep_ending_open(&ending, fcinfo, -1, "sweep.extend()"))
	{
		SweepQueueLease *lease;

		sweep_queue_lock(LW_EXCLUSIVE);
		lease = sweep_in_flight_find_lease(ending.lease);
		if (lease != NULL)
		{
			lease->expires_us = sweep_monotonic_us() + sweep_interval_us(PG_GETARG_INTERVAL_P(1));
			sweep_queue_note_expiry(sweep_queue_slot(lease->slot), lease->expires_us);
			held = lease->messages.count;
		}
		sweep_queue_unlock();
	}
	sweep_queue_close(ending.messages);
	PG_RETURN_INT32(sweep_ending_report(&ending, held));
}

bool
sweep_ending_open(SweepEnding *ending, FunctionCallInfo fcinfo, int ids_argument, const char *name)
{
	SweepQueueLease *lease = NULL;
	const SweepQueue *queue;
	int32		queue_id = 0;

	sweep_require_usable(name);
	PreventCommandIfReadOnly(name);
	PreventCommandIfParallelMode(name);
	sweep_queue_require_memory(name);
	ending->messages = sweep_queue_open();
	ending->lease = PG_ARGISNULL(0) ? NULL : PG_GETARG_UUID_P(0);
	ending->all = ids_argument < 0 || PG_ARGISNULL(ids_argument);
	if (!ending->all)
	{
		Datum	   *values;
		bool	   *nulls;

		deconstruct_array(PG_GETARG_ARRAYTYPE_P(ids_argument), INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE,
						  &values, &nulls, &ending->id_count);
		ending->ids = palloc((ending->id_count + 1) * sizeof(int64));
		for (int i = 0; i < ending->id_count; i++)
			ending->ids[i] = nulls[i] ? 0 : DatumGetInt64(values[i]);
		qsort(ending->ids, ending->id_count, sizeof(int64), compare_int64);
	}
	if (ending->lease == NULL)
		return false;
	sweep_prepared_settle();
	sweep_queue_lock(LW_SHARED);
	lease = sweep_in_flight_find_lease(ending->lease);
	if (lease != NULL && sweep_queue_slot(lease->slot)->relation == RelationGetRelid(ending->messages))
	{
		queue_id = sweep_queue_slot(lease->slot)->queue_id;
		ending->count = lease->messages.count;
	}
	sweep_queue_unlock();
	queue = queue_id != 0 ? sweep_queue_find_by_id(queue_id, RIGHT_CONSUME) : NULL;
	if (queue != NULL)
		ending->queue = *queue;
	return queue != NULL;
}

int
sweep_ending_begin(SweepEnding *ending)
{
	SweepQueueLease *lease;
	int			count = 0;

	sweep_transaction_reserve(ending->count);
	ending->change = sweep_transaction_change(RelationGetRelid(ending->messages), ending->queue.queue_id);
	ending->held = palloc((ending->count + 1) * sizeof(SweepInFlight));
	sweep_queue_lock(LW_EXCLUSIVE);
	lease = sweep_in_flight_find_lease(ending->lease);
	for (int number = lease != NULL ? lease->messages.first : -1; number >= 0; number = sweep_in_flight(number)->next)
	{
		SweepInFlight *entry = sweep_in_flight(number);

		if (entry->state != IN_FLIGHT_LEASED || !is_listed(ending, entry->message.message_id) || count >= ending->count)
			continue;
		entry->state = IN_FLIGHT_ENDING;
		entry->pid = MyProcPid;
		sweep_transaction_note_ending(number);
		ending->held[count++] = *entry;
	}
	sweep_queue_unlock();
	return count;
}

bool
sweep_queue_begin_ending(const pg_uuid_t *id, int number)
{
	bool		begun = false;
	SweepQueueLease *lease;

	sweep_transaction_reserve(1);
	sweep_queue_lock(LW_EXCLUSIVE);
	lease = sweep_in_flight_find_lease(id);
	if (lease != NULL && sweep_in_flight(number)->lease == sweep_queue_lease_number(lease) &&
		sweep_in_flight(number)->state == IN_FLIGHT_LEASED)
	{
		sweep_in_flight(number)->state = IN_FLIGHT_ENDING;
		sweep_in_flight(number)->pid = MyProcPid;
		sweep_transaction_note_ending(number);
		begun = true;
	}
	sweep_queue_unlock();
	return begun;
}

static bool
is_listed(const SweepEnding *ending, int64 message_id)
{
	return ending->all || bsearch(&message_id, ending->ids, ending->id_count, sizeof(int64), compare_int64) != NULL;
}

static int
compare_int64(const void *left, const void *right)
{
	int64		a = *(const int64 *) left;
	int64		b = *(const int64 *) right;

	return (a > b) - (a < b);
}

bool
sweep_ending_remove_row(const SweepEnding *ending, SweepMessageRef *message, Snapshot snapshot, TupleTableSlot *slot)
{
	TM_Result	result = TM_Updated;
	Snapshot	current = snapshot;
	Snapshot	latest = InvalidSnapshot;

	while (result == TM_Updated)
	{
		TM_FailureData failure;

		result = TM_Deleted;
		if (sweep_queue_fetch(ending->messages, ending->blocks, &ending->queue, current, message, slot))
			result = sweep_table_tuple_delete(ending->messages, &message->tid, GetCurrentCommandId(true), current,
											  true, &failure);
		/* Updated by a statement of somebody else: again, with its new version. */
		if (result == TM_Updated)
		{
			if (latest != InvalidSnapshot)
				UnregisterSnapshot(latest);
			current = latest = RegisterSnapshot(GetLatestSnapshot());
		}
	}
	if (latest != InvalidSnapshot)
		UnregisterSnapshot(latest);
	return result == TM_Ok;
}

void
sweep_queue_release_lease(const pg_uuid_t *id, int64 *untried, int count)
{
	SweepQueueLease *lease;

	qsort(untried, count, sizeof(int64), compare_int64);
	sweep_queue_lock(LW_EXCLUSIVE);
	lease = sweep_in_flight_find_lease(id);
	if (lease != NULL)
	{
		for (int number = lease->messages.first; number >= 0; number = sweep_in_flight(number)->next)
			if (bsearch(&sweep_in_flight(number)->message.message_id, untried, count, sizeof(int64), compare_int64) != NULL)
				sweep_in_flight(number)->attempts--;
		(void) sweep_in_flight_return_lease(sweep_queue_lease_number(lease));
	}
	sweep_queue_unlock();
}

int
sweep_ending_report(const SweepEnding *ending, int done)
{
	int			missed = ending->all ? done == 0 : ending->id_count - done;
	const char *lease = ending->lease ? DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(ending->lease))) : "<NULL>";

	if (missed > 0)
		ereport(NOTICE,
				(ending->all ? errmsg("lease %s does not hold any of the messages", lease)
				 : errmsg("lease %s does not hold %d of the messages", lease, missed),
				 errdetail("They were acknowledged before, or the lease ran out and another claim took them.")));
	return done;
}
