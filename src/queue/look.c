/*
 * look.c
 *		The claimed messages of a queue in shared memory, for sweep.messages.
 *
 * Called by look.sql. All entries are read, a piece at a time, because messages that a transaction is ending are in no list
 * of their queue. Without shared memory, or on a standby, no message is claimed.
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "base/clock.h"
#include "queue/lease.h"
#include "queue/table.h"
#include "queue/transaction.h"

typedef struct SeenInFlight
{
	int16		lane;
	int64		message_id;
	int64		expires_us;
} SeenInFlight;

PG_FUNCTION_INFO_V1(sweep_queue_list_in_flight);

/* Copies the claimed messages of the queue from one piece of the entries, which begins at "first". */
static int
copy_piece(Oid relation, int32 queue_id, int first, SeenInFlight *seen)
{
	const SweepQueueSlot *slot;
	int64		now_us = sweep_monotonic_us();
	int			count = 0;
	int			end;

	sweep_queue_lock(LW_SHARED);
	slot = sweep_queue_find_slot(relation, queue_id);
	end = slot == NULL ? first : Min(first + SWEEP_QUEUE_PIECE, sweep_queue_memory.shared->used_in_flight);
	for (int i = first; i < end; i++)
	{
		const SweepInFlight *entry = sweep_in_flight(i);

		if (entry->slot == sweep_queue_slot_number(slot) &&
			(entry->state == IN_FLIGHT_ENDING || entry->state == IN_FLIGHT_PREPARED ||
			 (entry->state == IN_FLIGHT_LEASED && sweep_queue_lease(entry->lease)->expires_us > now_us)))
			seen[count++] = (SeenInFlight)
			{
				.lane = entry->message.lane, .message_id = entry->message.message_id,
					.expires_us = sweep_queue_lease(entry->lease)->expires_us
			};
	}
	sweep_queue_unlock();
	return count;
}

static void
put_seen(ReturnSetInfo *result, const SeenInFlight *seen)
{
	Datum		values[3] = {Int16GetDatum(seen->lane), Int64GetDatum(seen->message_id)};
	bool		nulls[3] = {false, false, seen->expires_us >= SWEEP_LEASE_RAN_OUT};

	if (!nulls[2])
		values[2] = TimestampTzGetDatum(GetCurrentTimestamp() + seen->expires_us - sweep_monotonic_us());
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/* SQL: sweep._in_flight_messages(queue_id int) RETURNS SETOF record */
Datum
sweep_queue_list_in_flight(PG_FUNCTION_ARGS)
{
	SeenInFlight *seen = palloc(SWEEP_QUEUE_PIECE * sizeof(SeenInFlight));
	int			used = sweep_queue_memory_exists() ? sweep_queue_memory.shared->used_in_flight : 0;

	InitMaterializedSRF(fcinfo, 0);
	if (used > 0)
		sweep_queue_settle_prepared();
	for (int first = 0; first < used; first += SWEEP_QUEUE_PIECE)
	{
		int			count = copy_piece(sweep_queue_relation(), PG_GETARG_INT32(0), first, seen);

		CHECK_FOR_INTERRUPTS();
		for (int i = 0; i < count; i++)
			put_seen((ReturnSetInfo *) fcinfo->resultinfo, &seen[i]);
	}
	return (Datum) 0;
}
