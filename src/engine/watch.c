/*
 * watch.c
 *		Ends a run whose batches go on reporting rows without an end.
 *
 * Called by batch.c and run.c, for jobs that do not pick their items; those are watched by items.c. The rule:
 *
 *	A run gets on when its cursor moves to where it has not been, or a batch leaves fewer rows in a table than it
 *	found. If it has done neither for pg_sweep.no_progress_after and ten batches, and has handled more than twice as many
 *	rows as there were to handle, it ends with stop_reason no_progress.
 *
 * What there was to handle are the rows of all tables that the batches read or wrote when this was first looked at,
 * and what others have inserted into them or updated in them since. Rows of its own do not count, or an INSERT would never
 * end. A batch handles no more rows than it reports, and if it has changed some, no more than those.
 *
 * An UPDATE that leaves its predicate true, an INSERT ... ON CONFLICT DO UPDATE and a step that always returns 1
 * are found so. One that does change what it looks for does so once per row, however many come in meanwhile. What
 * a step does elsewhere cannot be seen: where a foreign table is read, or another server takes part in the
 * transaction, the run is left alone. A step that returns a new cursor each time is believed.
 *
 * Per batch this costs a look at what PostgreSQL counts of the transaction for its statistics anyhow: without
 * track_counts nothing is watched. The tables are looked for only when a run has been stuck for a tenth of the time,
 * and that often.
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
#include "utils/memutils.h"
#include "utils/pgstat_internal.h"
#include "utils/rel.h"

#include "base/clock.h"
#include "base/compat.h"
#include "base/elsewhere.h"
#include "base/secret.h"
#include "base/settings.h"
#include "engine/batch.h"
#include "engine/report.h"
#include "engine/watch.h"

/* A table that the run works on. */
typedef struct WatchedTable
{
	Oid			id;
	double		rows;			/* at the end of the batch that was the first to have it */
	SweepTableCounts then;		/* by anybody until that */
	int64		inserted;		/* by this run since */
	int64		updated;
} WatchedTable;

/* More are not followed: then there is no telling how much there is to do. */
#define MOST_TABLES 1000

struct SweepWatch
{
	int64		marks;			/* of the run's mark, at which the tables were collected anew */
	int64		next_look_us;
	bool		unbounded;		/* what there is to do cannot be known */
	int			count;
	WatchedTable tables[MOST_TABLES];
};

/* What a transaction has done to tables. */
typedef struct Changes
{
	bool		removed;		/* there are fewer rows in one of them */
	int64		changed;
} Changes;

static uint64 hash_of(const SweepRun *run, const Jsonb *cursor);
static Changes count_changes(void);
static bool is_toast(const PgStat_TableStatus *table);
static SweepWatch *open_watch(SweepRun *run);
static void note_written(SweepWatch *watch);
static void note_locked(SweepWatch *watch);
static WatchedTable *find_table(SweepWatch *watch, Oid id);
static void measure(WatchedTable *table, Relation relation);
static double rows_to_handle(const SweepWatch *watch);

void
sweep_watch_begin(SweepRun *run)
{
	sweep_runaway_begin(&run->state.runaway, hash_of(run, run->state.cursor), sweep_monotonic_us());
}

void
sweep_watch_batch(SweepRun *run)
{
	SweepRunaway *runaway = &run->next.runaway;
	int64		after_us = (int64) sweep_no_progress_after * 1000;
	int64		rows = run->next.loop.rows - run->state.loop.rows;
	Changes		changes;
	SweepWatch *watch;
	double		to_handle;

	if (after_us < 0 || !pgstat_track_counts)
		return;
	changes = count_changes();
	sweep_runaway_note(runaway, hash_of(run, run->next.cursor), changes.removed, changes.changed > 0 ? Min(rows, changes.changed) : rows,
					   sweep_monotonic_us());
	if (!sweep_runaway_is_stuck(runaway, after_us))
		return;
	watch = open_watch(run);
	note_written(watch);
	if (runaway->now.at_us < watch->next_look_us)
		return;
	watch->next_look_us = runaway->now.at_us + after_us / 10;
	watch->unbounded |= sweep_elsewhere_prepare_commit();
	note_locked(watch);
	to_handle = rows_to_handle(watch);
	run->no_progress = !watch->unbounded && sweep_runaway_is_endless(runaway, after_us, to_handle);
	run->rows_to_handle = to_handle;
}

void
sweep_watch_end(SweepRun *run)
{
	const SweepRunaway *runaway = &run->state.runaway;
	const char *circle = "";

	if (!run->no_progress || run->reason != SWEEP_STOP_NONE)
		return;
	if (runaway->length > 1 || run->state.cursor != NULL)
		circle = psprintf(", and its cursor comes back every %s", sweep_report_batches(runaway->length));
	sweep_batch_fail(run, sweep_report_error(run, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
											 psprintf("job \"%s\" makes no progress: its batches go on reporting rows", run->job),
											 psprintf("Its last %s have handled %s, more than twice the %.0f that there were%s.",
													  sweep_report_batches(runaway->now.batches - runaway->mark.batches),
													  sweep_report_rows(runaway->now.work - runaway->mark.work), run->rows_to_handle, circle),
											 run->batch_sql != NULL ?
											 "Each batch must make its rows disappear from its predicate: see \"Nothing runs away\" in the documentation of jobs." :
											 "Change or remove the rows so that they are not found again, return a cursor that moves on, or 0 rows when nothing is left."));
}

/* Different for different cursors but for a chance of one in 2^64. */
static uint64
hash_of(const SweepRun *run, const Jsonb *cursor)
{
	uint64		hash;

	if (cursor == NULL)
		return 0;
	hash = sweep_secret_hash((uint64) run->run_id, VARDATA(cursor), VARSIZE(cursor) - VARHDRSZ);
	return hash != 0 ? hash : 1;
}

/*
 * Rows of TOAST tables are none: an UPDATE to something shorter would leave fewer of them. Rows of the catalogue are, for
 * somebody may drop one table after the other.
 */
static Changes
count_changes(void)
{
	Changes		changes = {0};

	for (PgStat_SubXactStatus *level = pgstat_get_xact_stack_level(GetCurrentTransactionNestLevel()); level != NULL; level = level->prev)
	{
		for (PgStat_TableXactStatus *table = level->first; table != NULL; table = table->next)
		{
			changes.changed += table->tuples_inserted + table->tuples_updated + table->tuples_deleted;
			if (table->tuples_deleted > table->tuples_inserted && !is_toast(table->parent))
				changes.removed = true;
		}
	}
	return changes;
}

static bool
is_toast(const PgStat_TableStatus *table)
{
	return (table->relation != NULL ? table->relation->rd_rel->relkind : get_rel_relkind(sweep_table_of(table))) == RELKIND_TOASTVALUE;
}

/* What it works on is collected from the mark on. */
static SweepWatch *
open_watch(SweepRun *run)
{
	if (run->watch == NULL)
		run->watch = MemoryContextAllocZero(run->context, sizeof(SweepWatch));
	if (run->watch->marks != run->next.runaway.marks)
	{
		run->watch->marks = run->next.runaway.marks;
		run->watch->count = 0;
		run->watch->next_look_us = 0;
		run->watch->unbounded = false;
	}
	return run->watch;
}

/* The tables that this transaction has written to, and what it has done to them. */
static void
note_written(SweepWatch *watch)
{
	for (PgStat_SubXactStatus *level = pgstat_get_xact_stack_level(GetCurrentTransactionNestLevel()); level != NULL; level = level->prev)
	{
		for (PgStat_TableXactStatus *written = level->first; written != NULL; written = written->next)
		{
			int			known = watch->count;
			WatchedTable *table = find_table(watch, sweep_table_of(written->parent));

			if (table == NULL)
				return;
			if (table >= &watch->tables[known])
				continue;
			table->inserted += written->tuples_inserted;
			table->updated += written->tuples_updated;
		}
	}
}

/* Those that it has read as well: whoever reads a table has it locked until the end of the transaction. */
static void
note_locked(SweepWatch *watch)
{
	LockData   *locks = GetLockStatusData();

	for (int i = 0; i < locks->nelements; i++)
	{
		const LockInstanceData *lock = &locks->locks[i];

		if (lock->pid == MyProcPid && lock->locktag.locktag_type == LOCKTAG_RELATION && lock->holdMask != 0)
			(void) find_table(watch, lock->locktag.locktag_field2);
	}
	pfree(locks->locks);
	pfree(locks);
}

/* Its entry, made and measured if need be; NULL when there are too many. The table is locked, or was just written to. */
static WatchedTable *
find_table(SweepWatch *watch, Oid id)
{
	WatchedTable *table;
	Relation	relation;

	for (int i = 0; i < watch->count; i++)
	{
		if (watch->tables[i].id == id)
			return &watch->tables[i];
	}
	watch->unbounded |= watch->count == MOST_TABLES;
	if (watch->unbounded)
		return NULL;
	table = &watch->tables[watch->count++];
	*table = (WatchedTable) {.id = id};
	relation = try_relation_open(id, AccessShareLock);
	if (relation == NULL)
		return table;
	if (relation->rd_rel->relkind == RELKIND_FOREIGN_TABLE)
		watch->unbounded = true;
	else if (relation->rd_rel->relkind == RELKIND_RELATION || relation->rd_rel->relkind == RELKIND_MATVIEW)
		measure(table, relation);
	relation_close(relation, NoLock);
	return table;
}

/*
 * The largest of three estimates. That of the planner, and if the table has become larger since its last VACUUM or
 * ANALYZE also by the width of its rows: with what it knows of a page then it may be far too low. And that of the
 * statistics, which may have been lost, with what this process has not given to them yet.
 */
static void
measure(WatchedTable *table, Relation relation)
{
	BlockNumber pages;
	double		all_visible;

	estimate_rel_size(relation, NULL, &pages, &table->rows, &all_visible);
	if (pages / 2 > (BlockNumber) Max(relation->rd_rel->relpages, 0))
	{
		int32		width = MAXALIGN(get_rel_data_width(relation, NULL)) + MAXALIGN(SizeofHeapTupleHeader) + sizeof(ItemIdData);

		table->rows = Max(table->rows, pages * ((double) (BLCKSZ - SizeOfPageHeaderData) / width));
	}
	table->then = sweep_count_table(table->id);
	table->rows = Max(table->rows, (double) table->then.live);
}

/* The statistics of others may come late, by some seconds; they begin anew when they are reset. */
static double
rows_to_handle(const SweepWatch *watch)
{
	double		rows = 0;

	for (int i = 0; i < watch->count; i++)
	{
		const WatchedTable *table = &watch->tables[i];
		SweepTableCounts now = sweep_count_table(table->id);

		rows += table->rows;
		rows += Max(now.inserted - table->then.inserted - table->inserted, 0);
		rows += Max(now.updated - table->then.updated - table->updated, 0);
	}
	return rows;
}
