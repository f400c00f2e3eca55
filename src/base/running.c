/*
 * running.c
 *		SQL function that shows the runs in progress of this database.
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "base/role.h"
#include "base/shared.h"

static const char *const phase_names[] = {"starting", "lock", "estimate", "step", "commit", "standby", "braked", "ending"};

StaticAssertDecl(lengthof(phase_names) == PHASE_ENDING + 1, "every phase has a name");

static bool copy_run(SweepSlot *slot, SweepSlot *run);
static void put_run(ReturnSetInfo *result, const SweepSlot *run);

PG_FUNCTION_INFO_V1(sweep_shared_running);

/*
 * SQL: sweep._running() RETURNS SETOF record: one row per run in progress in this database. Source of
 * sweep.running.
 */
Datum
sweep_shared_running(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; sweep_shared_exists() && i < sweep_shared()->slot_count; i++)
	{
		SweepSlot	run;

		if (copy_run(&sweep_shared()->slots[i], &run) && (sweep_role_acts_for(GetUserId(), run.role) || sweep_role_sees_all(GetUserId())))
			put_run(result, &run);
	}
	return (Datum) 0;
}

/*
 * Copies a slot; false unless it has a run of this database that the caller may see. The right is looked up without the
 * lock, because that reads tables, which a session may have locked, and all other processes would have to wait. The
 * definition is not copied, because it is not shown.
 */
static bool
copy_run(SweepSlot *slot, SweepSlot *run)
{
	sweep_shared_lock(LW_SHARED);
	SpinLockAcquire(&slot->mutex);
	memcpy(run, slot, offsetof(SweepSlot, definition_size));
	SpinLockRelease(&slot->mutex);
	sweep_shared_unlock();
	return (run->state == SLOT_STARTING || run->state == SLOT_RUNNING) && run->database == MyDatabaseId;
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
