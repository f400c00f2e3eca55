/*
 * compat_statistics.h
 *		Differences between server versions, see compat.h: statistics of tables.
 */
#ifndef SWEEP_COMPAT_STATISTICS_H
#define SWEEP_COMPAT_STATISTICS_H

#include "pgstat.h"

/* 16: the OID of a table in its statistics. */
#if PG_VERSION_NUM >= 160000
#define sweep_table_of(status) ((status)->id)
#else
#define sweep_table_of(status) ((status)->t_id)
#endif

/*
 * Statistics of a table, including the counts that this process has not reported yet and those of the current
 * transaction. 16: other names, and the pending counts include the transaction.
 */
typedef struct SweepTableCounts
{
	int64		inserted;
	int64		updated;
	int64		live;
} SweepTableCounts;

static inline SweepTableCounts
sweep_count_table(Oid table)
{
	const PgStat_StatTabEntry *told = pgstat_fetch_stat_tabentry(table);
	const PgStat_TableStatus *untold = find_tabstat_entry(table);
	SweepTableCounts counts = {0};

	if (told != NULL)
	{
		counts.inserted = told->tuples_inserted;
		counts.updated = told->tuples_updated;
#if PG_VERSION_NUM >= 160000
		counts.live = told->live_tuples;
#else
		counts.live = told->n_live_tuples;
#endif
	}
	if (untold == NULL)
		return counts;
#if PG_VERSION_NUM >= 160000
	counts.inserted += untold->counts.tuples_inserted;
	counts.updated += untold->counts.tuples_updated;
	counts.live += untold->counts.delta_live_tuples;
#else
	counts.inserted += untold->t_counts.t_tuples_inserted;
	counts.updated += untold->t_counts.t_tuples_updated;
	counts.live += untold->t_counts.t_delta_live_tuples;
	for (const PgStat_TableXactStatus *open = untold->trans; open != NULL; open = open->upper)
	{
		counts.inserted += open->tuples_inserted;
		counts.updated += open->tuples_updated;
	}
#endif
	return counts;
}

#endif							/* SWEEP_COMPAT_STATISTICS_H */
