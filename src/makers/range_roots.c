/*
 * range_roots.c
 *		A batch of rows whose deletion deletes or changes rows of other tables.
 *
 * Called by ranges.c. A batch is done in a subtransaction. The rows that are affected by the deletion are counted; as many rows are deleted as
 * fit. Locking the rows first would write nearly as much WAL as deleting them, so if nothing but their age decides on them, this is done only after
 * another session was in the way of a batch, and for a row that does not fit. Rows that other sessions have locked are then left out. These may also
 * have locked affected rows: a batch that runs into the lock timeout is done again with one row, and a row that still cannot be deleted is left to
 * a later pass.
 */
#include "postgres.h"

#include "storage/proc.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "base/detail.h"
#include "base/txn.h"
#include "makers/range_cursor.h"
#include "makers/range_roots.h"

/* Before a row that does not fit is dismantled, at most this many rows below it are checked for rows that keep them. */
#define MAX_ASKED 1000000

/* A circle of rows is deleted in one batch if it has at most this many times batch_size rows. */
#define MAX_CIRCLE 10

/* How long a batch waits for a lock; and how long, in ms, before rows are locked, and after a batch of the run has not got one. */
#define LOCK_TIMEOUT "1s"
#define SHORT_LOCK_TIMEOUT 100

static ErrorData *try_roots(SweepRangeBatch *batch);
static const SweepCascadeRows *leave_root(SweepRangeBatch *batch, const SweepRangeBatch *tried);
static void try_work(void *batch);
static bool count_roots(SweepRangeBatch *batch);
static void read_roots(SweepRangeBatch *batch);
static void end_with_last(SweepRangeBatch *batch);
static void set_places(SweepRangeBatch *batch, const SweepCascadeRows *rows);
static bool remove_large(SweepRangeBatch *batch);
static void report_held(SweepRangeBatch *batch, const SweepCascadeRows *held);
static void leave_large(SweepRangeBatch *batch, const char *counter);
static void skip(SweepRangeBatch *batch, const SweepCascadeRows *rows);

void
sweep_range_remove_roots(SweepRangeBatch *batch)
{
	const SweepCascadeRows *held = NULL;

	batch->locks = !batch->statements->optimistic || batch->kept->locks || batch->kept->dismantling != NULL;
	sweep_cascade_begin_batch(batch->kept->cascade);
	while (held == NULL)
	{
		SweepRangeBatch tried = *batch;
		ErrorData  *error = try_roots(&tried);
		bool		is_added;

		if (error == NULL)
		{
			*batch = tried;
			held = tried.held_roots;
			continue;
		}
		/* The rollback has restored all rows, also those of a circle. */
		sweep_dismantle_free(&batch->kept->dismantling);
		batch->kept->circles = NULL;
		/* Tables are not locked any more, so plans are checked again. */
		batch->kept->cascade->batch++;
		batch->abandoned |= tried.abandoned;
		is_added = error->sqlerrcode == ERRCODE_FOREIGN_KEY_VIOLATION || error->sqlerrcode == ERRCODE_RESTRICT_VIOLATION;
		/* Not tried.locks: a row that does not fit is locked with the short time to wait of a batch that began without locks. */
		if (batch->locks ? is_added && !batch->kept->cascade->locks : is_added || error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE)
		{
			/* Other sessions, or a trigger, are in the way; from now on rows are locked, and if that is not enough, counted rows, too. */
			batch->kept->cascade->locks = batch->locks;
			batch->locks = batch->kept->locks = true;
			FreeErrorData(error);
			continue;
		}
		if (error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE || (tried.limit == 1 && (tried.roots == NULL || tried.roots->count != 1)))
			ReThrowError(error);
		FreeErrorData(error);
		batch->kept->has_waited = true;
		if (tried.roots != NULL && tried.roots->count == 1)
			held = leave_root(batch, &tried);
		else
		{
			/* Other sessions have locked rows below one of many rows. The batch tries one row at a time to find which. */
			batch->limit = 1;
			batch->is_full = true;
			(void) sweep_range_find_edge(batch);
		}
	}
	report_held(batch, held);
	sweep_range_report(batch);
}

/* Ends a batch whose only row could not be deleted because of the lock of another session. Returns the row. */
static const SweepCascadeRows *
leave_root(SweepRangeBatch *batch, const SweepRangeBatch *tried)
{
	batch->rows = tried->rows;
	batch->upto = tried->upto;
	batch->tied = tried->tied;
	batch->roots = tried->roots;
	if (!batch->tied)
		sweep_range_advance(batch);
	return batch->roots;
}

/* Returns the error for which the batch was rolled back, or NULL. A lock_timeout of the job itself is only made shorter, before rows are locked. */
static ErrorData *
try_roots(SweepRangeBatch *batch)
{
	int			nest_level = NewGUCNestLevel();
	ErrorData  *error;

	if (LockTimeout == 0 || (!batch->locks && LockTimeout > SHORT_LOCK_TIMEOUT))
		(void) set_config_option("lock_timeout", batch->kept->has_waited || !batch->locks ? CppAsString2(SHORT_LOCK_TIMEOUT) : LOCK_TIMEOUT, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	error = sweep_txn_savepoint(try_work, batch, true);
	AtEOXact_GUC(true, nest_level);
	return error;
}

static void
try_work(void *arg)
{
	SweepRangeBatch *batch = arg;
	SweepCascade *cascade = batch->kept->cascade;
	int64		touched = 0;	/* number of rows that were deleted or changed; not needed if all of them were locked */

	while (!count_roots(batch))
		(void) sweep_range_find_edge(batch);
	if (!batch->is_large || remove_large(batch))
	{
		sweep_dismantle_free(&batch->kept->dismantling);
		sweep_range_do_work(batch, RANGE_PICK);
		/* There may be more rows with the same key. */
		if (!batch->tied || (batch->roots->count == 0 && batch->held_roots->count == 0))
			sweep_range_advance(batch);
		else
			sweep_range_pass_over(batch, batch->roots->count - batch->done);
	}
	if (!cascade->locks)
		touched = sweep_cascade_report(cascade, batch->done, NULL);
	/* This error is caught: the batch is done again, with locks. */
	if ((!batch->locks && (batch->done != batch->roots->count || touched > batch->counted)) ||
		touched > (int64) batch->size * (batch->is_in_circle ? MAX_CIRCLE : 1))
		ereport(ERROR,
				(errcode(ERRCODE_RESTRICT_VIOLATION),
				 errmsg("other rows have gone than were counted")));
}

/*
 * Reads the rows of the batch, and counts the affected rows. False when these are more than a batch may touch, and fewer rows are to be
 * tried, or a row that does not fit is to be locked. The next batch begins with the number of rows that have fitted into this one, or more
 * if there was room.
 */
static bool
count_roots(SweepRangeBatch *batch)
{
	SweepRangeKept *kept = batch->kept;
	const SweepCascadeRows *roots;
	int64		touched;

	read_roots(batch);
	roots = batch->roots;
	if (kept->dismantling != NULL && !sweep_dismantle_is_of(kept->dismantling, roots))
	{
		batch->abandoned = !sweep_dismantle_has_row(kept->dismantling, roots, batch->held_roots);
		sweep_dismantle_free(&kept->dismantling);
	}
	batch->is_in_circle = kept->circles != NULL && roots->count == 1 && sweep_cascade_is_in_set(kept->circles, roots->tables[0], &roots->places[0]);
	touched = batch->is_in_circle || kept->dismantling != NULL ? (int64) batch->size + 1 : sweep_cascade_count(kept->cascade, roots, 0, roots->count, batch->size);
	batch->is_large = touched > batch->size && roots->count == 1;
	batch->counted = touched;
	if (touched > batch->size && batch->limit > 1)
	{
		batch->limit = Max(1, batch->limit / 2);
		return false;
	}
	if (batch->is_large && !batch->locks)
	{
		batch->locks = true;
		return false;
	}
	/* A batch that has found no row to delete reads as many rows as it may. */
	if (roots->count == 0 && batch->limit < batch->size && !batch->is_full)
	{
		batch->limit = batch->size;
		batch->is_full = true;
		return false;
	}
	kept->fitting = (int32) Max(1, Min((int64) batch->limit * 2, (int64) batch->size * batch->limit / Max(touched, 1)));
	return true;
}

/* Reads the rows, and locks them if needed, in the memory of the batch: they are needed after the subtransaction. */
static void
read_roots(SweepRangeBatch *batch)
{
	SweepRangeKept *kept = batch->kept;
	MemoryContext old;
	uint64		count;

	set_places(batch, kept->skipped);
	count = sweep_range_execute_by_key(batch, batch->tied ? RANGE_SAME_ROOTS : RANGE_ROOTS);
	if (batch->statements->by_place)
		batch->rows = (int64) count;
	old = MemoryContextSwitchTo(batch->context);
	batch->roots = sweep_cascade_new_rows(kept->cascade->relation, kept->cascade->columns);
	for (uint64 i = 0; i < count; i++)
	{
		sweep_sql_row(i);
		sweep_cascade_add_row(batch->roots, batch->context);
	}
	if (batch->statements->by_place && batch->roots->count == batch->limit)
		end_with_last(batch);
	batch->held_roots = batch->locks ? sweep_cascade_lock_free(kept->cascade, batch->roots) : sweep_cascade_new_rows(kept->cascade->relation, 0);
	MemoryContextSwitchTo(old);
	set_places(batch, batch->roots);
}

/* There may be more rows in the blocks of the batch: the next batch begins after the last row of this one. */
static void
end_with_last(SweepRangeBatch *batch)
{
	ItemPointer last = &batch->roots->places[0];

	for (int i = 1; i < batch->roots->count; i++)
	{
		if (ItemPointerCompare(&batch->roots->places[i], last) > 0)
			last = &batch->roots->places[i];
	}
	batch->upto = sweep_range_merge(batch->upto, sweep_detail_read(psprintf("{\"after\": [\"(%u,%u)\"]}", ItemPointerGetBlockNumber(last), ItemPointerGetOffsetNumber(last))));
}

/* Sets the rows that the next statements leave out or delete; NULL = none. */
static void
set_places(SweepRangeBatch *batch, const SweepCascadeRows *rows)
{
	batch->places = rows != NULL ? sweep_cascade_places(rows, 0, rows->count) : (Datum) 0;
	batch->tables = rows != NULL ? sweep_cascade_tables(rows) : (Datum) 0;
}

/* Whether rows deep below the row cannot be deleted; checked before any row is. */
static bool
keeps_below(SweepRangeBatch *batch)
{
	SweepRangeKept *kept = batch->kept;

	if (!kept->cascade->has_keepers || kept->dismantling != NULL || batch->is_in_circle)
		return false;
	(void) sweep_cascade_count(kept->cascade, batch->roots, 0, 1, MAX_ASKED);
	return kept->cascade->is_kept;
}

/*
 * Works on a row that does not fit into a batch. True when the row is to be deleted now, because the rest of it fits, or because its
 * rows refer to each other in a circle; else the batch has done its work, and the row is left for the next batch, or stays for good.
 */
static bool
remove_large(SweepRangeBatch *batch)
{
	SweepRangeKept *kept = batch->kept;
	SweepDismantled result = DISMANTLE_CIRCLE;
	int64		most = (int64) batch->size * MAX_CIRCLE;
	int64		left = 0;		/* rows that the batch may still touch */

	batch->rows = 1;
	if (!batch->is_in_circle && (kept->cascade->is_kept || keeps_below(batch)))
		leave_large(batch, "referenced");
	else if (strcmp(batch->statements->counter, "moved") == 0)
		leave_large(batch, "too_large");
	else
	{
		if (!batch->is_in_circle)
			result = sweep_dismantle(&kept->dismantling, &kept->circles, kept->context, kept->cascade, batch->roots, batch->size, &left);
		if (result == DISMANTLE_BARE)
			return true;
		if (result == DISMANTLE_ENDED)
			return sweep_cascade_count(kept->cascade, batch->roots, 0, 1, left) <= left;
		if (result == DISMANTLE_CIRCLE && !batch->is_in_circle)
		{
			batch->is_in_circle = true;
			if (sweep_cascade_count(kept->cascade, batch->roots, 0, 1, most) <= most)
				return true;
		}
		if (result != DISMANTLE_GOES_ON)
			leave_large(batch, result == DISMANTLE_CIRCLE ? "circle" : "kept");
	}
	return false;
}

/* Leaves a row that stays; it is counted once, although further passes find it again. */
static void
leave_large(SweepRangeBatch *batch, const char *counter)
{
	SweepRangeKept *kept = batch->kept;
	const SweepCascadeRows *root = batch->roots;

	if (kept->counted == NULL)
		kept->counted = sweep_cascade_new_set(GetMemoryChunkContext(kept->args));
	if (sweep_cascade_add_to_set(kept->counted, root->tables[0], &root->places[0]))
		batch->stays = counter;
	if (strcmp(counter, "circle") == 0 && !kept->has_warned)
		ereport(WARNING,
				(errmsg("rows of \"%s\" stay: more than %lld rows refer to each other in a circle", get_rel_name(root->tables[0]), (long long) batch->size * MAX_CIRCLE),
				 errdetail("Deleting one of them deletes all, in one transaction."),
				 errhint("Break the circle by an UPDATE, or raise batch_size: a circle of up to %d times that many rows goes at once.", MAX_CIRCLE)));
	kept->has_warned |= strcmp(counter, "circle") == 0;
	if (batch->tied)
		skip(batch, root);
	else
		sweep_range_advance(batch);
}

/* Leaves rows that other sessions have locked to another pass, and reports each once. */
static void
report_held(SweepRangeBatch *batch, const SweepCascadeRows *held)
{
	SweepRangeKept *kept = batch->kept;

	if (held->count == 0)
		return;
	if (kept->held == NULL)
		kept->held = sweep_cascade_new_set(GetMemoryChunkContext(kept->args));
	for (int i = 0; i < held->count; i++)
		batch->locked += sweep_cascade_add_to_set(kept->held, held->tables[i], &held->places[i]);
	batch->held = held->count;
	if (batch->tied)
		skip(batch, held);
	batch->cursor = sweep_range_merge(batch->cursor, sweep_detail_read("{\"" SWEEP_RANGE_LEFT "\": true}"));
}

/* Remembers rows to be left out: others have the same key, so the cursor cannot move past them. */
static void
skip(SweepRangeBatch *batch, const SweepCascadeRows *rows)
{
	SweepRangeKept *kept = batch->kept;
	MemoryContext old = MemoryContextSwitchTo(kept->context);

	if (kept->skipped == NULL)
		kept->skipped = sweep_cascade_new_rows(kept->cascade->relation, 0);
	for (int i = 0; i < rows->count; i++)
		sweep_cascade_add_place(kept->skipped, rows->tables[i], &rows->places[i]);
	MemoryContextSwitchTo(old);
}
