/*
 * cascade_report.c
 *		Rows that a batch has deleted and changed, by table.
 *
 * Called by ranges.c at the start and the end of a batch, and by delete_count.c. PostgreSQL counts the rows that a transaction deletes and
 * changes for its statistics, including those of its cascades. The report is the difference of these counts between the start and the end of the
 * batch.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/partition.h"
#include "commands/trigger.h"
#include "pgstat.h"
#include "utils/builtins.h"
#include "utils/json.h"
#include "utils/lsyscache.h"
#include "utils/pgstat_internal.h"

#include "base/compat_statistics.h"
#include "base/known.h"
#include "makers/cascade.h"

typedef struct SweepCascadeChange
{
	Oid			table;
	int64		deleted;
	int64		updated;
} SweepCascadeChange;

StaticAssertDecl(offsetof(SweepCascadeChange, table) == 0, "it is found by its first field");

static int64 report_table(const SweepCascade *cascade, const SweepCascadeChange *table, StringInfo members);
static void append_member(StringInfo members, const SweepCascadeChange *table);
static void collect_changes(List **changes);
static SweepCascadeChange *find_change(List **changes, Oid table);
static Oid	root_of(Oid table);

void
sweep_cascade_begin_batch(SweepCascade *cascade)
{
	if (cascade->count > 0 && !pgstat_track_counts)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("rows that go with others cannot be counted: track_counts is off"),
				 errhint("Switch it on, or have the job delete at once: sweep.create_retention(..., cascade => 'at_once').")));
	if (cascade->count > 0 && SessionReplicationRole == SESSION_REPLICATION_ROLE_REPLICA)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("rows that go with others would be left behind: session_replication_role is replica"),
				 errdetail("PostgreSQL then does not execute the actions of foreign keys."),
				 errhint("Set it to origin in the settings of the job, or for its role.")));
	cascade->batch++;
	cascade->before = NIL;
	collect_changes(&cascade->before);
}

int64
sweep_cascade_report(SweepCascade *cascade, int64 deleted, StringInfo json)
{
	List	   *after = NIL;
	List	   *tables = NIL;
	ListCell   *cell;
	int64		touched = deleted;
	StringInfoData members;

	initStringInfo(&members);
	collect_changes(&after);
	foreach(cell, cascade->before)
	{
		const SweepCascadeChange *before = lfirst(cell);
		SweepCascadeChange *change = find_change(&after, before->table);

		change->deleted -= before->deleted;
		change->updated -= before->updated;
	}
	foreach(cell, after)
	{
		const SweepCascadeChange *change = lfirst(cell);
		SweepCascadeChange *total = find_change(&tables, root_of(change->table));

		total->deleted += change->deleted;
		total->updated += change->updated;
	}
	find_change(&tables, root_of(cascade->relation))->deleted -= deleted;
	foreach(cell, tables)
		touched += report_table(cascade, lfirst(cell), &members);
	if (json != NULL)
		appendStringInfo(json, ", \"touched\": " INT64_FORMAT, touched);
	if (json != NULL && members.len > 0)
		appendStringInfo(json, ", \"tables\": {%s}", members.data);
	return touched;
}

/* Tables that only triggers have changed are left out. Returns the number of rows. */
static int64
report_table(const SweepCascade *cascade, const SweepCascadeChange *table, StringInfo members)
{
	bool		belongs = table->table == root_of(cascade->relation);

	for (int key = 0; key < cascade->count; key++)
		belongs |= cascade->keys[key].root == table->table;
	/* A trigger may have dropped the table. */
	if (!belongs || get_rel_name(table->table) == NULL)
		return 0;
	append_member(members, table);
	return Max(table->deleted, 0) + Max(table->updated, 0);
}

/* The name of a table and the numbers of its rows; zeros are left out. */
static void
append_member(StringInfo members, const SweepCascadeChange *table)
{
	if (table->deleted <= 0 && table->updated <= 0)
		return;
	appendStringInfoString(members, members->len > 0 ? ", " : "");
	escape_json(members, quote_qualified_identifier(get_namespace_name(get_rel_namespace(table->table)), get_rel_name(table->table)));
	appendStringInfoString(members, ": {");
	if (table->deleted > 0)
		appendStringInfo(members, "\"deleted\": " INT64_FORMAT, table->deleted);
	if (table->updated > 0)
		appendStringInfo(members, "%s\"nulled\": " INT64_FORMAT, table->deleted > 0 ? ", " : "", table->updated);
	appendStringInfoChar(members, '}');
}

char *
sweep_cascade_report_counts(const SweepCascade *cascade, Oid relation, int64 found)
{
	List	   *tables = NIL;
	ListCell   *cell;
	StringInfoData members;

	initStringInfo(&members);
	find_change(&tables, relation)->deleted = found;
	for (int i = 0; cascade != NULL && i < cascade->count; i++)
	{
		SweepCascadeChange *change = find_change(&tables, cascade->keys[i].root);

		*(cascade->keys[i].deletes ? &change->deleted : &change->updated) += cascade->keys[i].counted;
	}
	foreach(cell, tables)
		append_member(&members, lfirst(cell));
	return members.data;
}

static void
collect_changes(List **changes)
{
	for (PgStat_SubXactStatus *level = pgstat_get_xact_stack_level(GetCurrentTransactionNestLevel()); level != NULL; level = level->prev)
	{
		for (PgStat_TableXactStatus *table = level->first; table != NULL; table = table->next)
		{
			SweepCascadeChange *change = find_change(changes, sweep_table_of(table->parent));

			change->deleted += table->tuples_deleted;
			change->updated += table->tuples_updated;
		}
	}
}

/* Finds the entry of the table, or adds one. */
static SweepCascadeChange *
find_change(List **changes, Oid table)
{
	return sweep_known_find(changes, table, sizeof(SweepCascadeChange), CurrentMemoryContext);
}

static Oid
root_of(Oid table)
{
	List	   *ancestors = get_rel_relispartition(table) ? get_partition_ancestors(table) : NIL;

	return ancestors != NIL ? llast_oid(ancestors) : table;
}
