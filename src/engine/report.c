/*
 * report.c
 *		Live progress, activity and errors of a run.
 *
 * Called by run.c between the statements of a batch, so these functions are cheap: a spinlock and a formatted line.
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "utils/json.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/detail.h"
#include "base/settings.h"
#include "base/worker.h"
#include "engine/report.h"
#include "pure/loop.h"

/* Limit of each text of an error for a rescue function or a message, and of the whole error in sweep.runs, in bytes. */
#define ERROR_TEXT_LIMIT 8192

static int64 bound_rows(const SweepRun *run, int64 rows);

void
sweep_report_begin(SweepRun *run)
{
	TimestampTz now = GetCurrentTimestamp();
	SweepLiveProgress *live = &run->slot->live;
	int64		end_us = run->timeout_us > 0 && (run->stop_after_us < 0 || run->stop_after_us > run->timeout_us) ? run->timeout_us : run->stop_after_us;

	SpinLockAcquire(&run->slot->mutex);
	live->batch_size = run->sql == NULL ? run->batch_size : 0;
	live->estimated_rows = run->estimate == NULL ? bound_rows(run, live->estimated_rows > 0 ? live->estimated_rows : -1) : -1;
	live->started_at = now;
	live->deadline = end_us < 0 ? 0 : now + end_us;
	SpinLockRelease(&run->slot->mutex);
}

void
sweep_report_estimate(SweepRun *run, int64 rows)
{
	SpinLockAcquire(&run->slot->mutex);
	run->slot->live.estimated_rows = bound_rows(run, rows);
	SpinLockRelease(&run->slot->mutex);
}

void
sweep_report_phase(SweepRun *run, SweepPhase phase)
{
	SpinLockAcquire(&run->slot->mutex);
	run->slot->live.phase = phase;
	SpinLockRelease(&run->slot->mutex);
}

void
sweep_report_batch(SweepRun *run)
{
	SweepLiveProgress *live = &run->slot->live;
	bool		complete = live->batches != run->state.loop.batches;
	int64		elapsed_us = run->times.batch_started_us + run->times.last_batch_us - run->times.work_started_us;
	/* Read without the mutex: only the run writes it. */
	int64		left_us = sweep_pace_left_us(run->state.loop.rows, live->estimated_rows, elapsed_us);
	TimestampTz eta = left_us >= 0 ? GetCurrentTimestamp() + left_us : 0;

	SpinLockAcquire(&run->slot->mutex);
	live->batches = run->state.loop.batches;
	live->rows = run->state.loop.rows;
	live->last_batch_us = run->times.last_batch_us;
	live->rows_per_second = sweep_pace_rate(run->state.loop.rows, elapsed_us - run->state.braked_us);
	live->batch_size = run->sql == NULL ? run->state.loop.size : 0;
	live->eta = eta;
	SpinLockRelease(&run->slot->mutex);
	if (complete && sweep_log_batches != LOG_BATCHES_OFF)
		ereport(LOG,
				(errmsg("job \"%s\" run %lld: batch %lld, %s so far, %.1f ms", run->job, (long long) run->run_id,
						(long long) run->state.loop.batches, sweep_report_rows(run->state.loop.rows), run->times.last_batch_us / 1000.0)));
}

void
sweep_report_halved(SweepRun *run, int32 size, const ErrorData *error)
{
	SpinLockAcquire(&run->slot->mutex);
	run->slot->live.batch_size = run->state.loop.size;
	SpinLockRelease(&run->slot->mutex);
	if (sweep_log_batches != LOG_BATCHES_OFF)
		ereport(LOG,
				(errmsg("job \"%s\" run %lld: batch %lld of %d rows is done again with %d: %s", run->job, (long long) run->run_id,
						(long long) run->state.loop.batches + 1, size, run->state.loop.size, error->message)));
}

void
sweep_report_brake(SweepRun *run, bool begins)
{
	int64		now_us = sweep_monotonic_us();

	SpinLockAcquire(&run->slot->mutex);
	run->slot->live.phase = begins ? PHASE_BRAKED : PHASE_STEP;
	run->slot->live.braked_us = run->state.braked_us;
	run->slot->live.braked_since_us = now_us;
	SpinLockRelease(&run->slot->mutex);
}

void
sweep_report_activity(SweepRun *run)
{
	char		text[256];
	char		limit[32] = "";
	int64		seconds = (sweep_monotonic_us() - run->state.loop.started_us) / 1000000;

	if (run->max_batches > 0)
		snprintf(limit, sizeof(limit), " of %d", run->max_batches);
	snprintf(text, sizeof(text), "%s: batch %lld%s, %lld %s, %lld s", run->job, (long long) run->state.loop.batches + 1,
			 limit, (long long) run->state.loop.rows, run->state.loop.rows == 1 ? "row" : "rows", (long long) seconds);
	sweep_worker_report_activity(text);
}

char *
sweep_report_batches(int64 batches)
{
	return psprintf("%lld %s", (long long) batches, batches == 1 ? "batch" : "batches");
}

char *
sweep_report_rows(int64 rows)
{
	return psprintf("%lld %s", (long long) rows, rows == 1 ? "row" : "rows");
}

char *
sweep_report_error_text(const ErrorData *error)
{
	StringInfoData text;

	initStringInfo(&text);
	appendStringInfoString(&text, error->message ? error->message : "missing error text");
	if (error->detail)
		appendStringInfo(&text, "\nDETAIL: %s", error->detail);
	if (error->hint)
		appendStringInfo(&text, "\nHINT: %s", error->hint);
	else if (error->sqlerrcode == ERRCODE_UNDEFINED_TABLE || error->sqlerrcode == ERRCODE_UNDEFINED_FUNCTION ||
			 error->sqlerrcode == ERRCODE_UNDEFINED_OBJECT)
		appendStringInfoString(&text, "\nHINT: Write names with their schema. Others are looked up in the search_path of the step, of the job's settings, "
							   "or of its role.");
	if (error->context)
		appendStringInfo(&text, "\nCONTEXT: %s", error->context);
	if (text.len > ERROR_TEXT_LIMIT)
		text.data[pg_mbcliplen(text.data, text.len, ERROR_TEXT_LIMIT)] = '\0';
	return text.data;
}

Jsonb *
sweep_report_error_jsonb(const ErrorData *error)
{
	const char *names[] = {"sqlstate", "message", "detail", "hint", "context"};
	const char *values[] = {
		unpack_sql_state(error->sqlerrcode), error->message, error->detail, error->hint, error->context
	};
	StringInfoData json;

	initStringInfo(&json);
	for (size_t i = 0; i < lengthof(names); i++)
	{
		appendStringInfo(&json, "%s\"%s\": ", i == 0 ? "{" : ", ", names[i]);
		if (values[i] != NULL)
			escape_json(&json, pnstrdup(values[i], pg_mbcliplen(values[i], strlen(values[i]), ERROR_TEXT_LIMIT)));
		else
			appendStringInfoString(&json, "null");
	}
	appendStringInfoChar(&json, '}');
	return sweep_detail_read(json.data);
}

ErrorData *
sweep_report_error(SweepRun *run, int sqlstate, const char *message, const char *detail, const char *hint)
{
	MemoryContext old = MemoryContextSwitchTo(run->context);
	ErrorData  *error = palloc0(sizeof(ErrorData));

	error->elevel = ERROR;
	error->sqlerrcode = sqlstate;
	error->message = pstrdup(message);
	error->detail = detail != NULL && detail[0] != '\0' ? pstrdup(detail) : NULL;
	error->hint = hint != NULL && hint[0] != '\0' ? pstrdup(hint) : NULL;
	MemoryContextSwitchTo(old);
	return error;
}

ErrorData *
sweep_report_timeout_error(SweepRun *run)
{
	int64		batches = run->state.loop.batches;
	const char *message = psprintf("timeout of %lld ms has passed", (long long) run->timeout_us / 1000);

	if (run->stage < RUN_BEGUN)
		return sweep_report_error(run, ERRCODE_QUERY_CANCELED, message,
								  "The run had not begun: it was still busy with its buckets, or those of its children.",
								  "Raise timeout, or see what keeps the store of buckets or the buckets_function.");
	if (run->sql != NULL)
		return sweep_report_error(run, ERRCODE_QUERY_CANCELED, message,
								  psprintf("%lld of its statements %s done, the one in flight was cancelled.", (long long) batches,
										   batches == 1 ? "was" : "were"), "Raise timeout, or see what the statement waits for.");
	return sweep_report_error(run, ERRCODE_QUERY_CANCELED, message,
							  psprintf("%s %s committed, the one in flight was rolled back.", sweep_report_batches(batches),
									   batches == 1 ? "was" : "were"),
							  batches == 0 ? "Not one batch fits into it: lower batch_size, or raise timeout." :
							  "Set a stop_after below timeout, so that a run ends between batches.");
}

/* The rows to handle, bounded by the limits of the run; -1 = unknown. */
static int64
bound_rows(const SweepRun *run, int64 rows)
{
	int64		most_by_batches = (int64) run->max_batches * run->batch_size;

	if (run->max_rows > 0 && (rows < 0 || rows > run->max_rows))
		rows = run->max_rows;
	if (most_by_batches > 0 && (rows < 0 || rows > most_by_batches))
		rows = most_by_batches;
	return rows;
}
