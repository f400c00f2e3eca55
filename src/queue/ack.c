/*
 * ack.c
 *		sweep.ack, fail, release and extend: how a message leaves its queue, or goes back to it.
 *
 * What a lease holds is known from shared memory, so a late call finds nothing to end: its lease is gone
 * with what somebody else has claimed since. Ending a message is part of the caller's transaction. From
 * the first call until that ends nobody else can claim or end it, whatever the clock says; then it is
 * gone, or held again.
 *
 * The rows are deleted without SQL, by their place in the table, which is verified; so an old snapshot
 * of the transaction is no obstacle. Release and extend change nothing but shared memory, at once.
 */
#include "postgres.h"

#include "access/tableam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "common/pg_prng.h"
#include "executor/tuptable.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "base/compat.h"
#include "base/primary.h"
#include "base/sql.h"
#include "queue/transaction.h"
#include "queue/done.h"
#include "queue/ack.h"
#include "queue/in_flight.h"
#include "queue/key.h"
#include "queue/search.h"

/* A call: the lease and which of its messages are meant. */
typedef struct Ending
{
	pg_uuid_t  *lease;
	bool		all;
	int			id_count;
	int64	   *ids;			/* sorted */
	Relation	messages;
	SweepQueue	queue;
	SweepQueueChange *change;
	BlockNumber blocks;			/* of the table */
	int			count;			/* of what is held */
	SweepInFlight  *held;			/* copies */
} Ending;

static bool open_ending(Ending *ending, FunctionCallInfo fcinfo, int ids_argument, const char *name);
static int	begin_ending(Ending *ending);
static bool is_listed(const Ending *ending, int64 message_id);
static bool remove_row(const Ending *ending, SweepMessageRef *message, Snapshot snapshot, TupleTableSlot *slot);
static Datum fail(FunctionCallInfo fcinfo, Jsonb *error);
static bool retry_message(const Ending *ending, const SweepInFlight *entry, Jsonb *error);
static bool put_back(const Ending *ending, const SweepInFlight *entry, int16 lane, TimestampTz due_at, Jsonb *error);
static int64 backoff_us(const SweepQueue *queue, int attempts);
static int	report(const Ending *ending, int done);
static int	compare_int64(const void *left, const void *right);

PG_FUNCTION_INFO_V1(sweep_queue_ack);
PG_FUNCTION_INFO_V1(sweep_queue_fail);
PG_FUNCTION_INFO_V1(sweep_queue_release);
PG_FUNCTION_INFO_V1(sweep_queue_extend);

/* SQL: sweep.ack(lease uuid, message_ids bigint[]) RETURNS int */
Datum
sweep_queue_ack(PG_FUNCTION_ARGS)
{
	Ending		ending = {0};
	int			acked = 0;

	if (open_ending(&ending, fcinfo, 1, "sweep.ack()"))
	{
		int			count = begin_ending(&ending);
		TupleTableSlot *slot = table_slot_create(ending.messages, NULL);
		Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());

		ending.blocks = RelationGetNumberOfBlocks(ending.messages);
		for (int i = 0; i < count; i++)
		{
			SweepInFlight  *entry = &ending.held[i];

			if (!remove_row(&ending, &entry->message, snapshot, slot))
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
	PG_RETURN_INT32(report(&ending, acked));
}

/* SQL: sweep.fail(lease uuid, error text, message_ids bigint[]) RETURNS int */
Datum
sweep_queue_fail(PG_FUNCTION_ARGS)
{
	return fail(fcinfo, PG_ARGISNULL(1) ? NULL : sweep_queue_error(text_to_cstring(PG_GETARG_TEXT_PP(1))));
}

int
sweep_queue_fail_with(const pg_uuid_t *lease, Jsonb *error, Datum message_ids)
{
	LOCAL_FCINFO(fcinfo, 3);

	InitFunctionCallInfoData(*fcinfo, NULL, 3, InvalidOid, NULL, NULL);
	fcinfo->args[0] = (NullableDatum) {.value = UUIDPGetDatum(lease)};
	fcinfo->args[1] = (NullableDatum) {.isnull = true};
	fcinfo->args[2] = (NullableDatum) {.value = message_ids};
	return DatumGetInt32(fail(fcinfo, error));
}

/* The arguments are those of sweep.fail, but for the error. */
static Datum
fail(FunctionCallInfo fcinfo, Jsonb *error)
{
	Ending		ending = {0};
	int			failed = 0;

	if (open_ending(&ending, fcinfo, 2, "sweep.fail()"))
	{
		int			count = begin_ending(&ending);

		ending.blocks = RelationGetNumberOfBlocks(ending.messages);
		for (int i = 0; i < count; i++)
		{
			const SweepInFlight *entry = &ending.held[i];

			if (entry->attempts >= ending.queue.max_attempts
				? sweep_queue_move_to_dead(ending.messages, &ending.queue, &entry->message, entry->attempts, error)
				: retry_message(&ending, entry, error))
				failed++;
		}
	}
	sweep_queue_close(ending.messages);
	PG_RETURN_INT32(report(&ending, failed));
}

Jsonb *
sweep_queue_error(char *message)
{
	JsonbParseState *state = NULL;
	JsonbValue	key = {.type = jbvString, .val.string = {.val = "message", .len = strlen("message")}};
	JsonbValue	value = {.type = jbvString, .val.string = {.val = message, .len = strlen(message)}};

	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	pushJsonbValue(&state, WJB_KEY, &key);
	pushJsonbValue(&state, WJB_VALUE, &value);
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
}

/* SQL: sweep.release(lease uuid, message_ids bigint[]) RETURNS int */
Datum
sweep_queue_release(PG_FUNCTION_ARGS)
{
	Ending		ending = {0};
	int			released = 0;

	if (open_ending(&ending, fcinfo, 1, "sweep.release()"))
	{
		SweepQueueLease *lease;
		int			next;

		sweep_queue_lock(LW_EXCLUSIVE);
		lease = sweep_in_flight_find_lease(ending.lease);
		for (int number = lease != NULL ? lease->first : -1; number >= 0; number = next)
		{
			SweepInFlight  *entry = &sweep_in_flight_entries()[number];

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
	PG_RETURN_INT32(report(&ending, released));
}

/* SQL: sweep.extend(lease uuid, by interval) RETURNS int */
Datum
sweep_queue_extend(PG_FUNCTION_ARGS)
{
	Ending		ending = {0};
	int			held = 0;

	if (PG_ARGISNULL(1) || sweep_interval_us(PG_GETARG_INTERVAL_P(1)) <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a lease can only be extended by a time greater than zero")));
	if (open_ending(&ending, fcinfo, -1, "sweep.extend()"))
	{
		SweepQueueLease *lease;

		sweep_queue_lock(LW_EXCLUSIVE);
		lease = sweep_in_flight_find_lease(ending.lease);
		if (lease != NULL)
		{
			lease->expires_at = GetCurrentTimestamp() + sweep_interval_us(PG_GETARG_INTERVAL_P(1));
			sweep_queue_note_expiry(sweep_queue_slot(lease->slot), lease->expires_at);
			held = lease->count;
		}
		sweep_queue_unlock();
	}
	sweep_queue_close(ending.messages);
	PG_RETURN_INT32(report(&ending, held));
}

/* False when the lease does not exist (any more). */
static bool
open_ending(Ending *ending, FunctionCallInfo fcinfo, int ids_argument, const char *name)
{
	SweepQueueLease *lease = NULL;
	const SweepQueue *queue;
	int32		queue_id = 0;

	sweep_primary_require(name);
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
	if (sweep_queue_awaits_prepared())
		sweep_queue_settle_prepared();
	sweep_queue_lock(LW_SHARED);
	lease = sweep_in_flight_find_lease(ending->lease);
	if (lease != NULL && sweep_queue_slot(lease->slot)->relation == RelationGetRelid(ending->messages))
	{
		queue_id = sweep_queue_slot(lease->slot)->queue_id;
		ending->count = lease->count;
	}
	sweep_queue_unlock();
	queue = queue_id != 0 ? sweep_queue_find_by_id(queue_id, RIGHT_CONSUME) : NULL;
	if (queue != NULL)
		ending->queue = *queue;
	return queue != NULL;
}

/* Marks what is held and meant as being ended by us, and copies it. Returns how many. */
static int
begin_ending(Ending *ending)
{
	SweepQueueLease *lease;
	int			count = 0;

	sweep_transaction_reserve(ending->count);
	ending->change = sweep_transaction_change(RelationGetRelid(ending->messages), ending->queue.queue_id);
	ending->held = palloc((ending->count + 1) * sizeof(SweepInFlight));
	sweep_queue_lock(LW_EXCLUSIVE);
	lease = sweep_in_flight_find_lease(ending->lease);
	for (int number = lease != NULL ? lease->first : -1; number >= 0; number = sweep_in_flight_entries()[number].next)
	{
		SweepInFlight  *entry = &sweep_in_flight_entries()[number];

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
	if (lease != NULL && sweep_in_flight_entries()[number].lease == (int) (lease - sweep_in_flight_leases()) &&
		sweep_in_flight_entries()[number].state == IN_FLIGHT_LEASED)
	{
		sweep_in_flight_entries()[number].state = IN_FLIGHT_ENDING;
		sweep_in_flight_entries()[number].pid = MyProcPid;
		sweep_transaction_note_ending(number);
		begun = true;
	}
	sweep_queue_unlock();
	return begun;
}

static bool
is_listed(const Ending *ending, int64 message_id)
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

/* Deletes the row of a message and leaves it in the slot; false when it is gone. */
static bool
remove_row(const Ending *ending, SweepMessageRef *message, Snapshot snapshot, TupleTableSlot *slot)
{
	TM_Result	result = TM_Updated;
	Snapshot	current = snapshot;
	Snapshot	latest = InvalidSnapshot;

	while (result == TM_Updated)
	{
		TM_FailureData failure;

		result = TM_Deleted;
		if (sweep_queue_fetch(ending->messages, ending->blocks, &ending->queue, current, message, slot))
			result = table_tuple_delete(ending->messages, &message->tid, GetCurrentCommandId(true), current,
										InvalidSnapshot, true, &failure, false);
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

/* Puts the message off; false when its row is gone. */
static bool
retry_message(const Ending *ending, const SweepInFlight *entry, Jsonb *error)
{
	int16		lane = (int16) (SWEEP_LANE_PRIORITY(entry->message.lane) + SWEEP_LANE_DELAYED);
	TimestampTz due_at = GetCurrentTimestamp() + backoff_us(&ending->queue, entry->attempts);
	Datum		values[] = {
		Int32GetDatum(ending->queue.queue_id), Int16GetDatum(entry->message.lane), Int64GetDatum(entry->message.message_id),
		Int16GetDatum(lane), TimestampTzGetDatum(due_at), Int16GetDatum((int16) Min(entry->attempts, PG_INT16_MAX)),
		PointerGetDatum(error)
	};
	bool		updated;

	if (entry->message.key_hash != 0)
		updated = put_back(ending, entry, lane, due_at, error);
	else
	{
		sweep_sql_begin_call();
		sweep_transaction_begin_statement();
		updated = sweep_sql_execute(SWEEP_SQL_RETRY_MESSAGE, values, error != NULL ? "       " : "      n") > 0;
		sweep_transaction_end_statement();
		sweep_sql_end_call();
	}
	if (updated)
	{
		ending->change->rows[SWEEP_LANE_IS_DELAYED(entry->message.lane)]--;
		ending->change->rows[1]++;
		ending->change->first_due = Min(ending->change->first_due, due_at);
	}
	return updated;
}

/* The same for a message whose claim gave its key free: it takes the key back. */
static bool
put_back(const Ending *ending, const SweepInFlight *entry, int16 lane, TimestampTz due_at, Jsonb *error)
{
	SweepSendRequest request = {
		.messages = ending->messages,.queue_id = ending->queue.queue_id,.lane = lane,.due_at = due_at,.count = 1
	};
	SweepMessageRef	message = entry->message;
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TupleTableSlot *slot = table_slot_create(ending->messages, NULL);
	bool		removed = remove_row(ending, &message, snapshot, slot);

	if (removed)
		sweep_key_put_back(&request, slot, entry->attempts, error);
	ExecDropSingleTupleTableSlot(slot);
	UnregisterSnapshot(snapshot);
	return removed;
}

/* Sidekiq's: the fourth power of the retries before this one, 15 s, and some seconds at random. */
static int64
backoff_us(const SweepQueue *queue, int attempts)
{
	double		retries = attempts - 1;
	double		seconds = retries * retries * retries * retries + 15 + pg_prng_double(&pg_global_prng_state) * 10 * (retries + 1);

	if (queue->backoff_us != SWEEP_BACKOFF_SIDEKIQ)
		return queue->backoff_us;
	return (int64) (Min(seconds, SWEEP_LONGEST_DAYS * SECS_PER_DAY) * USECS_PER_SEC);
}

bool
sweep_queue_move_to_dead(Relation messages, const SweepQueue *queue, const SweepMessageRef *message, int attempts, Jsonb *error)
{
	SweepQueueChange *change = sweep_transaction_change(RelationGetRelid(messages), queue->queue_id);
	Datum		values[] = {
		Int32GetDatum(queue->queue_id), Int16GetDatum(message->lane), Int64GetDatum(message->message_id),
		Int16GetDatum((int16) SWEEP_LANE_PRIORITY(message->lane)), Int16GetDatum((int16) Min(attempts, PG_INT16_MAX)),
		PointerGetDatum(error)
	};
	uint64		moved;

	sweep_sql_begin_call();
	sweep_transaction_begin_statement();
	moved = sweep_sql_execute(SWEEP_SQL_BURY_MESSAGE, values, error != NULL ? "      " : "     n");
	sweep_transaction_end_statement();
	sweep_sql_end_call();
	if (moved > 0)
	{
		change->rows[SWEEP_LANE_IS_DELAYED(message->lane)]--;
		change->dead++;
	}
	return moved > 0;
}

int
sweep_queue_release_lease(const pg_uuid_t *id)
{
	SweepQueueLease *lease;
	int			released = 0;

	sweep_queue_lock(LW_EXCLUSIVE);
	lease = sweep_in_flight_find_lease(id);
	if (lease != NULL)
		released = sweep_in_flight_return_lease((int) (lease - sweep_in_flight_leases()));
	sweep_queue_unlock();
	return released;
}

/* Says so when the lease does not hold what was meant. */
static int
report(const Ending *ending, int done)
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
