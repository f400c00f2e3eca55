/*
 * pg_cron.c
 *		What sweep.import_pg_cron reads as the role that has called it.
 *
 * Called by the SQL functions of pg_cron.sql, which are the owner's. The table of pg_cron shows everybody their
 * own entries only: that is asked of the caller, behind the door (see door.c), and not decided here once more.
 */
#include "postgres.h"

#include "fmgr.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"

#include "base/door.h"
#include "base/sql.h"

/* Kept, so that an error leaves nothing behind. */
static SweepPlan *read_entries = NULL;

static void entries_work(void *arg);

PG_FUNCTION_INFO_V1(sweep_pg_cron_entries);
PG_FUNCTION_INFO_V1(sweep_pg_cron_statements);

/* SQL: sweep._pg_cron_entries(caller oid) RETURNS jsonb */
Datum
sweep_pg_cron_entries(PG_FUNCTION_ARGS)
{
	MemoryContext context = CurrentMemoryContext;
	Jsonb	   *entries;

	sweep_sql_begin_call();
	sweep_door_visit_user(PG_GETARG_OID(0), entries_work, NULL);
	sweep_sql_row(0);
	entries = sweep_sql_jsonb(1, context);
	sweep_sql_end_call();
	PG_RETURN_JSONB_P(entries);
}

static void
entries_work(void *arg)
{
	if (read_entries == NULL)
		read_entries = sweep_sql_prepare("SELECT coalesce(pg_catalog.jsonb_agg(pg_catalog.to_jsonb(j) ORDER BY j.jobid), '[]') FROM cron.job AS j",
										 0, NULL, false);
	(void) sweep_sql_execute_plan(read_entries, NULL, NULL);
}

/* SQL: sweep._count_statements(sql text) RETURNS int */
Datum
sweep_pg_cron_statements(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(list_length(pg_parse_query(text_to_cstring(PG_GETARG_TEXT_PP(0)))));
}
