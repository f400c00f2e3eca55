/*
 * items.c
 *		Jobs that pick their items first: a bad item never stops a run.
 *
 * Called by run.c for each batch. With transaction 'batch' a batch is normally one transaction: pick, step with all
 * items, row of the run. Only if that fails, the items are tried in pieces, each in a transaction of its own: a piece
 * that fails is halved, until the failing item is alone. There are no subtransactions, so a batch normally costs one
 * transaction id. With transaction 'row' every item is a piece from the start, and the row of the run is written once
 * a second and with the last item: if each item wrote it, its dead versions would double the time of the run while
 * another session holds a snapshot.
 *
 * A piece that fails with a temporary error is tried again at once, row_retries times. A single item that still fails
 * goes to the job's rescue function, and if that fails as well to sweep.quarantine. The run goes on with the next
 * item. Items in quarantine are left alone until their next try.
 *
 * Pieces are tried in the order of the items, and the cursor moves with them, so if the run ends in the middle of a
 * batch, the next run continues after the handled items. If an item is picked twice in the same run, pick does not
 * move on; the run ends instead of looping for ever.
 */
#include "postgres.h"

#include "utils/builtins.h"

#include "base/clock.h"
#include "base/lock.h"
#include "base/settings.h"
#include "engine/batch.h"
#include "engine/bucket_run.h"
#include "engine/items.h"
#include "engine/report.h"
#include "engine/timers.h"
#include "pure/bisect.h"

static SweepStatement find_quarantined_sql = {
	.text = "SELECT u.n::int, q.next_try > pg_catalog.clock_timestamp() FROM pg_catalog.unnest($2) WITH ORDINALITY AS u (item, n) "
		"JOIN sweep.quarantined_item q ON q.job = $1 AND q.item_hash = pg_catalog.md5(u.item::pg_catalog.text)",
	.types = {TEXTOID, JSONBARRAYOID}};
static SweepStatement quarantine_sql = {
	.text = "SELECT sweep._quarantine($1, $2, $3, $4, $5)",
	.types = {TEXTOID, OIDOID, JSONBOID, TEXTOID, TEXTOID}};
static SweepStatement unquarantine_sql = {
	.text = "DELETE FROM sweep.quarantined_item WHERE job = $1 AND item_hash IN (SELECT pg_catalog.md5(u.item::pg_catalog.text) FROM pg_catalog.unnest($2) AS u (item)) "
		"AND EXISTS (SELECT FROM sweep.job_definition j WHERE j.name = $1 AND sweep._role_oid(j.run_as) = $3)",
	.types = {TEXTOID, JSONBARRAYOID, OIDOID}};

typedef struct ItemBatch
{
	SweepRun   *run;
	Jsonb	  **items;			/* to be handled: the picked items without those in quarantine */
	int			count;
	Jsonb	   *last;			/* last picked item: the cursor after this batch */
	bool		picked;			/* the items are picked */
	bool		leaves_quarantine;	/* some items are in quarantine and due for their next try */
	SweepPiece	piece;			/* the items of the current transaction */
	ErrorData  *error;			/* of the single item that failed */
	bool		rescued;		/* the rescue function has handled rows of it */
	int64		saved_us;		/* last write of the row of the run, or begin of the batch */
} ItemBatch;

/* Longest time, in us, for which committed items are not yet in the row of the run: they are repeated if the process is killed. */
#define SAVE_EVERY_US 1000000

/* Number of picked items that a run remembers, to bound its memory; then it forgets all of them. */
#define MAX_SEEN_ITEMS 1000000

static void note_repetition(ItemBatch *batch, Jsonb **items, int count);
static void whole_work(void *arg);
static void handle_pieces(ItemBatch *batch, ErrorData *error);
static bool handle_piece(ItemBatch *batch, int tries, ErrorData **error);
static void piece_work(void *arg);
static void handle_bad_item(ItemBatch *batch);
static void rescue_work(void *arg);
static void quarantine_work(void *arg);
static void handle_items(ItemBatch *batch, SweepProgress *progress);
static void release_handled(ItemBatch *batch, Jsonb **items, int count);
static void finish_piece(ItemBatch *batch, SweepProgress *progress);
static void accept_piece(ItemBatch *batch, SweepTxnEnd end, const char *outcome);
static bool is_interruption(SweepRun *run, const ErrorData *error);

void
sweep_items_execute(SweepRun *run)
{
	ItemBatch  *batch = MemoryContextAllocZero(run->batch_context, sizeof(ItemBatch));
	ErrorData  *error = NULL;
	SweepTxnEnd end;

	batch->run = run;
	batch->saved_us = sweep_monotonic_us();
	end = sweep_batch_transact(run, whole_work, batch, &error);
	if (end == TXN_FAILED)
	{
		if (!batch->picked && sweep_batch_halve(run, error))
			return;
		/* After a lock timeout a smaller size does not help: the pieces find the locked item, and the others are handled. */
		if (batch->picked && sweep_batch_is_timed_out(run, error))
			(void) sweep_loop_halve(&run->state.loop);
		if (run->item_per_transaction || !batch->picked || is_interruption(run, error))
		{
			sweep_batch_fail(run, error);
			return;
		}
	}
	else if (end != TXN_COMMITTED || !run->item_per_transaction || batch->count == 0)
	{
		accept_piece(batch, end, "handled");
		return;
	}

	/* The rolled back transaction may have set a reason to stop. */
	run->reason = SWEEP_STOP_NONE;
	handle_pieces(batch, error);
}

/* Picks items, and removes those that are not to be handled now; in a transaction. */
static void
pick_items(ItemBatch *batch)
{
	SweepRun   *run = batch->run;
	SweepBatch	request = sweep_batch_request(run);
	int			picked;

	sweep_batch_require_role(run);
	/* run->pick is set last, so it says that all are prepared: after an error in between, for example a lock timeout, the batch may be repeated. */
	if (run->pick == NULL)
	{
		if (run->rescue_name != NULL)
			run->rescue = sweep_step_prepare_function(run->context, run->rescue_name, 2);
		run->step = sweep_step_prepare(run->context, run->step_name, NULL);
		run->pick = sweep_step_prepare_call(run->context, run->pick_name);
	}
	sweep_batch_enter_code(run);
	picked = sweep_step_pick(run->pick, &request, &batch->items, run->batch_context);
	sweep_batch_leave_code(run);
	batch->last = picked > 0 ? batch->items[picked - 1] : run->state.cursor;
	note_repetition(batch, batch->items, picked);
	batch->count = sweep_items_leave_out_quarantined(run, batch->items, picked, &batch->leaves_quarantine);
	batch->picked = true;
	if (picked == 0)
	{
		run->next.cursor = run->keep_cursor_always ? run->state.cursor : NULL;
		sweep_batch_end(run, true);
		sweep_batch_save(run);
	}
}

static void
note_repetition(ItemBatch *batch, Jsonb **items, int count)
{
	SweepRun   *run = batch->run;

	if (run->seen != NULL && hash_get_num_entries(run->seen) >= MAX_SEEN_ITEMS)
	{
		hash_destroy(run->seen);
		run->seen = NULL;
	}
	if (run->seen == NULL)
	{
		HASHCTL		control = {.keysize = sizeof(uint64), .entrysize = sizeof(uint64), .hcxt = run->context};

		run->seen = hash_create("pg_sweep items", 1024, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	for (int i = 0; i < count; i++)
	{
		uint64		hash = sweep_lock_hash((uint64) run->run_id, VARDATA(items[i]), VARSIZE(items[i]) - VARHDRSZ);
		bool		found;

		(void) hash_search(run->seen, &hash, HASH_ENTER, &found);
		if (!found)
			continue;
		run->no_progress = true;
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("job \"%s\" makes no progress: item %s was picked twice in one run", run->job,
						JsonbToCString(NULL, &items[i]->root, VARSIZE(items[i]))),
				 errhint("Let the pick function return only items behind the cursor of the batch, in order.")));
	}
}

int
sweep_items_leave_out_quarantined(const SweepRun *run, Jsonb **items, int count, bool *due)
{
	Datum		values[2];
	uint64		found;
	int			left = 0;

	if (count == 0 || !run->has_quarantine)
		return count;
	values[0] = CStringGetTextDatum(run->job);
	values[1] = sweep_step_items(items, count);
	found = sweep_sql_execute(&find_quarantined_sql, values, NULL);
	for (uint64 i = 0; i < found; i++)
	{
		sweep_sql_row(i);
		if (sweep_sql_bool(2))
			items[sweep_sql_int32(1) - 1] = NULL;
		else
			*due = true;
	}
	for (int i = 0; i < count; i++)
	{
		if (items[i] != NULL)
			items[left++] = items[i];
	}
	return left;
}

/* Normally the whole batch in one transaction; only the pick with transaction 'row'. */
static void
whole_work(void *arg)
{
	ItemBatch  *batch = arg;

	if (batch->run->buckets != NULL && !sweep_bucket_run_begin_batch(batch->run))
		return;
	pick_items(batch);
	if (batch->run->reason != SWEEP_STOP_NONE || (batch->run->item_per_transaction && batch->count > 0))
		return;
	batch->piece = (SweepPiece) {0, batch->count};
	piece_work(batch);
}

/* "error" is the error of the transaction with all items, which was the first try; NULL without such a try. */
static void
handle_pieces(ItemBatch *batch, ErrorData *error)
{
	SweepRun   *run = batch->run;
	SweepBisect bisect;
	int			tries = error != NULL ? 1 : 0;

	sweep_bisect_begin(&bisect, batch->count, run->item_per_transaction);
	while (run->reason == SWEEP_STOP_NONE && sweep_bisect_next(&bisect, &batch->piece))
	{
		if (pg_atomic_read_u32(&run->slot->stop_request) != 0)
			sweep_batch_fail(run, NULL);
		else if (handle_piece(batch, tries, &error))
			error = NULL;
		else if (is_interruption(run, error))
			sweep_batch_fail(run, error);
		else if (!sweep_bisect_split(&bisect, batch->piece))
		{
			batch->error = error;
			handle_bad_item(batch);
		}
		tries = 0;
	}
}

/*
 * Handles a piece in one transaction, and again at once while it fails with a temporary error. "tries" have been made
 * already, the last one with *error.
 */
static bool
handle_piece(ItemBatch *batch, int tries, ErrorData **error)
{
	SweepRun   *run = batch->run;

	for (;; tries++)
	{
		SweepTxnEnd end;

		/* A conflict or a held lock may be gone at the next try. */
		if (tries > 0 && (tries > run->row_retries ||
						  !(sweep_batch_is_conflict(*error) || (*error)->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE)))
			return false;
		end = sweep_batch_transact(run, piece_work, batch, error);
		if (end != TXN_FAILED)
		{
			accept_piece(batch, end, "handled");
			return true;
		}
		run->reason = SWEEP_STOP_NONE;
	}
}

static void
piece_work(void *arg)
{
	ItemBatch  *batch = arg;
	SweepProgress progress = {0};

	if (batch->piece.end > batch->piece.first)
		handle_items(batch, &progress);
	finish_piece(batch, &progress);
}

/* Handles a single item that fails: by the rescue function, and if that fails, too, by the quarantine. */
static void
handle_bad_item(ItemBatch *batch)
{
	SweepRun   *run = batch->run;
	ErrorData  *error = NULL;
	SweepTxnEnd end;

	if (run->rescue != NULL)
	{
		end = sweep_batch_transact(run, rescue_work, batch, &error);
		if (end != TXN_FAILED)
		{
			accept_piece(batch, end, batch->rescued ? "rescued" : "left as it is");
			return;
		}
		run->reason = SWEEP_STOP_NONE;
		if (is_interruption(run, error))
		{
			sweep_batch_fail(run, error);
			return;
		}
		batch->error = error;
	}
	end = sweep_batch_transact(run, quarantine_work, batch, &error);
	if (end == TXN_FAILED)
		sweep_batch_fail(run, error);
	else
	{
		run->has_quarantine = true;
		accept_piece(batch, end, "put into quarantine");
	}
}

static void
rescue_work(void *arg)
{
	ItemBatch  *batch = arg;
	SweepRun   *run = batch->run;
	SweepBatch	request;
	SweepProgress progress;

	request = sweep_batch_request(run);
	request.size = request.item_count = 1;
	request.items = &batch->items[batch->piece.first];
	sweep_batch_call(run, run->rescue, &request, sweep_report_error_jsonb(batch->error), &progress);
	release_handled(batch, request.items, 1);
	/* Without rows the item no longer needed a rescue. */
	batch->rescued = progress.rows > 0;
	if (batch->rescued)
		run->next.rescued++;
	finish_piece(batch, &progress);
}

static void
quarantine_work(void *arg)
{
	ItemBatch  *batch = arg;
	SweepRun   *run = batch->run;
	Datum		values[] = {
		CStringGetTextDatum(run->job), ObjectIdGetDatum(run->run_as), JsonbPGetDatum(batch->items[batch->piece.first]),
		CStringGetTextDatum(unpack_sql_state(batch->error->sqlerrcode)), CStringGetTextDatum(sweep_report_error_text(batch->error))
	};

	(void) sweep_sql_execute(&quarantine_sql, values, NULL);
	/* Otherwise the cursor would pass an item that is neither handled nor in quarantine. */
	if (sweep_sql_is_null(1))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("an item of job \"%s\" cannot be put into quarantine", run->job),
				 errdetail("The job was dropped, given to another role, or its role renamed, while it was running.")));
	sweep_batch_hold_bucket(run);
	run->next.quarantined++;
	finish_piece(batch, &(SweepProgress) {0});
}

/* The step, with the items of the piece. */
static void
handle_items(ItemBatch *batch, SweepProgress *progress)
{
	SweepRun   *run = batch->run;
	SweepBatch	request = sweep_batch_request(run);

	request.item_count = batch->piece.end - batch->piece.first;
	request.size = request.item_count;
	request.items = &batch->items[batch->piece.first];
	sweep_batch_call(run, run->step, &request, NULL, progress);
	release_handled(batch, request.items, request.item_count);
}

/* Items that were in quarantine and have been handled now leave it. */
static void
release_handled(ItemBatch *batch, Jsonb **items, int count)
{
	Datum		values[3];

	if (!batch->leaves_quarantine)
		return;
	values[0] = CStringGetTextDatum(batch->run->job);
	values[1] = sweep_step_items(items, count);
	values[2] = ObjectIdGetDatum(batch->run->run_as);
	(void) sweep_sql_execute(&unquarantine_sql, values, NULL);
}

/* Adds the result of the piece; after the last piece the batch is complete. */
static void
finish_piece(ItemBatch *batch, SweepProgress *progress)
{
	SweepRun   *run = batch->run;
	bool		complete = batch->piece.end == batch->count;

	progress->cursor = complete ? batch->last : batch->items[batch->piece.end - 1];
	sweep_batch_add(run, progress);
	if (complete)
		sweep_batch_end(run, false);
	if (complete || !run->item_per_transaction || sweep_monotonic_us() - batch->saved_us >= SAVE_EVERY_US)
	{
		sweep_batch_save(run);
		batch->saved_us = sweep_monotonic_us();
	}
}

/* A piece is not done if the run was to stop, or the extension is absent. */
static void
accept_piece(ItemBatch *batch, SweepTxnEnd end, const char *outcome)
{
	MemoryContext old;

	if (end != TXN_COMMITTED)
		return;
	sweep_batch_accept(batch->run);
	if (sweep_log_batches != LOG_BATCHES_ITEMS)
		return;
	old = MemoryContextSwitchTo(batch->run->batch_context);
	for (int i = batch->piece.first; i < batch->piece.end; i++)
		ereport(LOG,
				(errmsg("job \"%s\" run %lld: item %s %s", batch->run->job, (long long) batch->run->run_id,
						JsonbToCString(NULL, &batch->items[i]->root, VARSIZE(batch->items[i])), outcome)));
	MemoryContextSwitchTo(old);
}

/*
 * Whether the error was not caused by an item: the run was stopped, the server is short of a resource, or the job
 * itself is broken. Otherwise a dropped table would put a whole backlog into quarantine.
 */
static bool
is_interruption(SweepRun *run, const ErrorData *error)
{
	if (run->no_progress || (run->buckets != NULL && run->buckets->fence.lost) ||
		ERRCODE_TO_CATEGORY(error->sqlerrcode) == ERRCODE_INSUFFICIENT_RESOURCES)
		return true;
	switch (error->sqlerrcode)
	{
		case ERRCODE_QUERY_CANCELED:
			/* In a worker the statement timeout is that of one call: a slow item is a bad item. */
			return sweep_batch_is_cancelled(run, error) && !sweep_batch_is_timed_out(run, error);
		case ERRCODE_UNDEFINED_TABLE:
		case ERRCODE_UNDEFINED_COLUMN:
		case ERRCODE_UNDEFINED_FUNCTION:
		case ERRCODE_UNDEFINED_OBJECT:
		case ERRCODE_UNDEFINED_PARAMETER:
		case ERRCODE_AMBIGUOUS_COLUMN:
		case ERRCODE_DATATYPE_MISMATCH:
		case ERRCODE_INVALID_SCHEMA_NAME:
		case ERRCODE_SYNTAX_ERROR:
		case ERRCODE_INSUFFICIENT_PRIVILEGE:
		case ERRCODE_READ_ONLY_SQL_TRANSACTION:
			return true;
		default:
			return false;
	}
}
