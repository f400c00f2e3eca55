/*
 * running.c
 *		The runs in progress and the processes of consumers in this database: SQL functions that list and cancel them; consumers that are to leave.
 */
#include "postgres.h"

#include <signal.h>

#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "base/role.h"
#include "base/shared.h"

static const char *const phase_names[] = {"starting", "lock", "estimate", "step", "commit", "standby", "braked", "ending"};

StaticAssertDecl(lengthof(phase_names) == PHASE_ENDING + 1, "every phase has a name");

static Datum put_slots(FunctionCallInfo fcinfo, bool consumers);
static void put_run(ReturnSetInfo *result, const SweepSlot *run);
static void put_process(ReturnSetInfo *result, const SweepSlot *slot);

PG_FUNCTION_INFO_V1(sweep_shared_running);
PG_FUNCTION_INFO_V1(sweep_consumer_shared_list);
PG_FUNCTION_INFO_V1(sweep_shared_signal_cancel);

/*
 * SQL: sweep._running() RETURNS SETOF record: one row per run in progress in this database. Source of
 * sweep.running.
 */
Datum
sweep_shared_running(PG_FUNCTION_ARGS)
{
	return put_slots(fcinfo, false);
}

/*
 * SQL: sweep._consumer_processes() RETURNS SETOF record: source of sweep.consumers. Every role may call it, so it
 * shows a role only the rows that the view would show: an error may contain parts of a message.
 */
Datum
sweep_consumer_shared_list(PG_FUNCTION_ARGS)
{
	return put_slots(fcinfo, true);
}

/*
 * The right is looked up without the lock, because that reads tables, which a session may have locked, and all other processes would
 * have to wait.
 */
static Datum
put_slots(FunctionCallInfo fcinfo, bool consumers)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	SweepSlot  *slot = palloc(sizeof(SweepSlot));

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; sweep_shared_exists() && i < sweep_shared()->slot_count; i++)
	{
		if (!sweep_shared_look(i, slot) || (slot->consumer_id != 0) != consumers ||
			(slot->state != SLOT_RUNNING && (slot->state != SLOT_STARTING || consumers)) ||
			!(sweep_role_acts_for(GetUserId(), slot->role) || sweep_role_sees_all(GetUserId())))
			continue;
		if (consumers)
			put_process(result, slot);
		else
			put_run(result, slot);
	}
	return (Datum) 0;
}

static void
put_run(ReturnSetInfo *result, const SweepSlot *run)
{
	const SweepLiveProgress *live = &run->live;
	int64		braked_us = live->braked_us + (live->phase == PHASE_BRAKED ? sweep_monotonic_us() - live->braked_since_us : 0);
	Datum		values[] = {
		Int64GetDatum(run->run_id), CStringGetTextDatum(run->job), Int32GetDatum(run->pid), CStringGetTextDatum(phase_names[live->phase]),
		Int64GetDatum(live->batches), Int64GetDatum(live->rows), Float8GetDatum(live->last_batch_us / 1000.0), Int32GetDatum(live->batch_size),
		Int64GetDatum(live->estimated_rows), TimestampTzGetDatum(live->started_at), TimestampTzGetDatum(live->deadline),
		Float8GetDatum(live->rows_per_second), TimestampTzGetDatum(live->eta), Int64GetDatum(braked_us / 1000)
	};
	bool		nulls[lengthof(values)] = {
		[2] = run->pid == 0, [6] = live->batches == 0, [8] = live->estimated_rows < 0 || live->started_at == 0, [9] = live->started_at == 0,
		[10] = live->deadline == 0, [11] = live->started_at == 0, [12] = live->eta == 0
	};

	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

static void
put_process(ReturnSetInfo *result, const SweepSlot *slot)
{
	Datum		values[] = {
		Int32GetDatum(slot->consumer_id), Int32GetDatum(slot->pid), Int64GetDatum(slot->handled), Int64GetDatum(slot->failed),
		TimestampTzGetDatum(slot->live.started_at), CStringGetTextDatum(slot->last_error)
	};
	bool		nulls[lengthof(values)] = {[5] = slot->last_error[0] == '\0'};

	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/* SQL: sweep._signal_cancel(run_id bigint) RETURNS boolean: false when no process runs it */
Datum
sweep_shared_signal_cancel(PG_FUNCTION_ARGS)
{
	int64		run_id = PG_GETARG_INT64(0);
	bool		found = false;

	if (!sweep_shared_exists())
		PG_RETURN_BOOL(false);

	/*
	 * The signal is sent under the lock, which the process must take to give the slot back, so the signal cannot
	 * interrupt anything that the process does later.
	 */
	sweep_shared_lock(LW_EXCLUSIVE);
	for (int i = 0; i < sweep_shared()->slot_count && !found; i++)
	{
		SweepSlot  *slot = &sweep_shared()->slots[i];

		found = sweep_shared_has_run(slot) && slot->run_id == run_id && (slot->state == SLOT_RUNNING || slot->state == SLOT_STARTING);
		if (!found)
			continue;
		pg_atomic_fetch_or_u32(&slot->stop_request, SWEEP_STOP_REQUEST_CANCEL);
		if (slot->pid != 0)
			kill(slot->pid, SIGINT);
	}
	sweep_shared_unlock();
	PG_RETURN_BOOL(found);
}

bool
sweep_shared_any_consumer(Oid database, bool starting)
{
	bool		any = false;

	sweep_shared_lock(LW_SHARED);
	for (int i = 0; i < sweep_shared()->slot_count; i++)
	{
		const SweepSlot *slot = &sweep_shared()->slots[i];

		any |= slot->consumer_id != 0 && slot->database == database && (starting ? slot->state == SLOT_STARTING : slot->state != SLOT_FREE);
	}
	sweep_shared_unlock();
	return any;
}

void
sweep_shared_dismiss(Oid database, int32 consumer_id, int surplus)
{
	for (int i = 0; i < sweep_shared()->slot_count && surplus > 0; i++)
	{
		SweepSlot  *slot = &sweep_shared()->slots[i];

		if (!sweep_shared_has_consumer(slot) || slot->database != database || (consumer_id >= 0 && slot->consumer_id != consumer_id))
			continue;
		pg_atomic_write_u32(&slot->stop_request, SWEEP_STOP_REQUEST_CANCEL);
		sweep_shared_wake(slot->procno);
		surplus--;
	}
}
