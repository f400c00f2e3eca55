/*
 * watch.c
 *		Ends a run whose batches report rows without an end.
 *
 * Called by run.c for jobs without a pick function; items.c watches jobs that have one. The rule:
 *
 *	A run makes progress when its cursor moves to a new place, or a batch leaves fewer rows in a table than it
 *	found. If the run has done neither for pg_sweep.no_progress_after and ten batches, and has handled more than twice as
 *	many rows as there were to handle, it ends with stop_reason no_progress.
 *
 * The rows to handle are all rows of the tables that the batches read or write, and those that other sessions insert or
 * update there meanwhile. Rows that the run itself writes do not count, or an INSERT would never end. The rows that a
 * batch handles are those that it reports, but if it changes rows, at most as many as it changes.
 *
 * This ends an UPDATE that leaves its predicate true, an INSERT ... ON CONFLICT DO UPDATE and a step that always returns
 * 1. A run whose changes make its predicate false handles each row once, even if many rows arrive meanwhile. The amount of
 * work is unknown where a foreign table is read or another server takes part in the transaction: such a run is not ended. A
 * run whose step returns a new cursor each time is not ended either.
 *
 * Each batch only reads the counters of the transaction for the statistics of PostgreSQL; without track_counts no run is watched. The
 * tables are looked up only when the run has made no progress for a tenth of pg_sweep.no_progress_after, and again at that interval.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "optimizer/plancat.h"
#include "pgstat.h"
#include "storage/lock.h"
#include "utils/lsyscache.h"
#include "utils/pgstat_internal.h"
#include "utils/rel.h"

#include "base/clock.h"
#include "base/compat_statistics.h"
#include "base/remote.h"
#include "base/lock.h"
#include "base/settings.h"
#include "engine/report.h"
#include "engine/watch.h"

/* A table that the run works on. */
typedef struct WatchedTable
{
	Oid			id;
	double		rows;			/* estimate when the table was first seen */
	int64		written;		/* rows inserted or updated in it until then, and by this run since */
} WatchedTable;

/* Number of tables beyond which the amount of work is unknown. */
#define MAX_TABLES 1000

struct SweepWatch
{
	int64		marks;			/* the tables were seen since this mark of the run */
	int64		next_look_us;
	bool		unbounded;		/* the amount of work is unknown */
	int			count;
	WatchedTable tables[MAX_TABLES];
};

static uint64 hash_of(const SweepRun *run, const Jsonb *cursor);
static int64 note_changes(SweepWatch *watch, bool *removed);
static double count_rows_to_handle(SweepWatch *watch);
static void note_table(SweepWatch *watch, Oid id, int64 written);
static double estimate_rows(Relation relation, int64 live);
static ErrorData *endless_error(SweepRun *run, double rows);

void
sweep_watch_batch(SweepRun *run)
{
	SweepRunaway *runaway = &run->next.runaway;
	SweepWatch *watch = run->watch;
	int64		after_us = (int64) sweep_no_progress_after * 1000;
	int64		rows = run->next.loop.rows - run->state.loop.rows;
	bool		removed = false;
	int64		changed;
	double		rows_to_handle;

	if (after_us < 0 || !pgstat_track_counts)
		return;
	if (run->state.loop.batches == 0)
		sweep_runaway_begin(runaway, hash_of(run, run->state.cursor), run->times.batch_started_us);
	changed = note_changes(watch != NULL && watch->marks == runaway->marks ? watch : NULL, &removed);
	sweep_runaway_note(runaway, hash_of(run, run->next.cursor), removed, changed > 0 ? Min(rows, changed) : rows, sweep_monotonic_us());
	if (!sweep_runaway_is_stuck(runaway, after_us))
		return;
	if (watch == NULL)
		watch = run->watch = MemoryContextAllocZero(run->context, sizeof(SweepWatch));
	if (watch->marks != runaway->marks)
	{
		memset(watch, 0, offsetof(SweepWatch, tables));
		watch->marks = runaway->marks;
	}
	if (runaway->now.at_us < watch->next_look_us)
		return;
	watch->next_look_us = runaway->now.at_us + after_us / 10;
	rows_to_handle = count_rows_to_handle(watch);
	run->no_progress = !watch->unbounded && sweep_runaway_is_endless(runaway, after_us, rows_to_handle);
	if (run->no_progress)
		run->endless = endless_error(run, rows_to_handle);
}

/* Two cursors have the same hash with a probability of 2^-64. */
static uint64
hash_of(const SweepRun *run, const Jsonb *cursor)
{
	uint64		hash;

	if (cursor == NULL)
		return 0;
	hash = sweep_lock_hash((uint64) run->run_id, VARDATA(cursor), VARSIZE(cursor) - VARHDRSZ);
	return hash != 0 ? hash : 1;
}

/*
 * Returns how many rows the transaction has changed, and whether a table has fewer now. TOAST tables do not count, because an UPDATE to a
 * shorter value leaves fewer rows there. Tables of the catalogue count, because a step may drop one table after the other.
 */
static int64
note_changes(SweepWatch *watch, bool *removed)
{
	int64		changed = 0;

	for (PgStat_SubXactStatus *level = pgstat_get_xact_stack_level(GetCurrentTransactionNestLevel()); level != NULL; level = level->prev)
	{
		for (PgStat_TableXactStatus *table = level->first; table != NULL; table = table->next)
		{
			int64		written = table->tuples_inserted + table->tuples_updated;

			changed += written + table->tuples_deleted;
			*removed |= table->tuples_deleted > table->tuples_inserted && get_rel_relkind(sweep_table_of(table->parent)) != RELKIND_TOASTVALUE;
			if (watch != NULL)
				note_table(watch, sweep_table_of(table->parent), written);
		}
	}
	return changed;
}

/*
 * The tables are found by the locks of the transaction, which keeps them until its end. The statistics of other sessions
 * may be some seconds late, and start again from zero when they are reset.
 */
static double
count_rows_to_handle(SweepWatch *watch)
{
	LockData   *locks = GetLockStatusData();
	double		rows = 0;

	for (int i = 0; i < locks->nelements; i++)
	{
		const LockInstanceData *lock = &locks->locks[i];

		if (lock->pid == MyProcPid && lock->locktag.locktag_type == LOCKTAG_RELATION && lock->holdMask != 0)
			note_table(watch, lock->locktag.locktag_field2, 0);
	}
	watch->unbounded |= sweep_remote_prepare_commit();
	for (int i = 0; i < watch->count; i++)
	{
		const WatchedTable *table = &watch->tables[i];
		SweepTableCounts now = sweep_count_table(table->id);

		rows += table->rows + Max(now.inserted + now.updated - table->written, 0);
	}
	return rows;
}

/* Adds a table that the transaction has locked and to which it has written so many rows. */
static void
note_table(SweepWatch *watch, Oid id, int64 written)
{
	WatchedTable *table = watch->tables;
	WatchedTable *end = table + watch->count;
	SweepTableCounts counts;
	Relation	relation;

	while (table < end && table->id != id)
		table++;
	if (table < end)
		table->written += written;
	watch->unbounded |= table == &watch->tables[MAX_TABLES];
	if (table < end || watch->unbounded)
		return;
	counts = sweep_count_table(id);
	*table = (WatchedTable) {.id = id, .written = counts.inserted + counts.updated};
	watch->count++;
	relation = try_relation_open(id, AccessShareLock);
	if (relation == NULL)
		return;
	if (relation->rd_rel->relkind == RELKIND_FOREIGN_TABLE)
		watch->unbounded = true;
	else if (relation->rd_rel->relkind == RELKIND_RELATION || relation->rd_rel->relkind == RELKIND_MATVIEW)
		table->rows = estimate_rows(relation, counts.live);
	relation_close(relation, NoLock);
}

/*
 * The largest of three estimates: from the statistics, which may have been lost; from the planner; and, if the table has more than doubled
 * since its last VACUUM or ANALYZE, from the width of its rows, because the planner's rows per page may be outdated.
 */
static double
estimate_rows(Relation relation, int64 live)
{
	BlockNumber pages;
	double		rows;
	double		all_visible;
	int32		width;

	estimate_rel_size(relation, NULL, &pages, &rows, &all_visible);
	rows = Max(rows, (double) live);
	if (pages / 2 <= (BlockNumber) Max(relation->rd_rel->relpages, 0))
		return rows;
	width = MAXALIGN(get_rel_data_width(relation, NULL)) + MAXALIGN(SizeofHeapTupleHeader) + sizeof(ItemIdData);
	return Max(rows, pages * ((double) (BLCKSZ - SizeOfPageHeaderData) / width));
}

static ErrorData *
endless_error(SweepRun *run, double rows)
{
	const SweepRunaway *runaway = &run->next.runaway;
	const char *circle = runaway->length == 1 && run->next.cursor == NULL ? "" :
		psprintf(", and its cursor comes back every %s", sweep_report_batches(runaway->length));

	return sweep_report_error(run, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
							  psprintf("job \"%s\" makes no progress: its batches go on reporting rows", run->job),
							  psprintf("Its last %s have handled %s, more than twice the %.0f that there were%s.",
									   sweep_report_batches(runaway->now.batches - runaway->mark.batches),
									   sweep_report_rows(runaway->now.work - runaway->mark.work), rows, circle),
							  run->batch_sql != NULL ?
							  "Each batch must make its rows disappear from its predicate: see \"Nothing runs away\" in the documentation of jobs." :
							  "Change or remove the rows so that they are not found again, return a cursor that moves on, or 0 rows when nothing is left.");
}
