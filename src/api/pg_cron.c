/*
 * pg_cron.c
 *		Reads of sweep.import_pg_cron that need the rights of its caller.
 *
 * Called by the SQL functions of pg_cron.sql, which run as the owner of the extension. The table of pg_cron shows a role only its
 * own entries. To apply that rule, this file reads the table as the caller (door.c).
 */
#include "postgres.h"

#include "fmgr.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"

#include "base/door.h"
#include "base/sql.h"

/* Kept for the life of the process, so that an error leaks no plan. */
static SweepPlan *read_entries = NULL;

PG_FUNCTION_INFO_V1(sweep_pg_cron_entries);
PG_FUNCTION_INFO_V1(sweep_pg_cron_statements);

/* SQL: sweep._pg_cron_entries(caller oid) RETURNS jsonb */
Datum
sweep_pg_cron_entries(PG_FUNCTION_ARGS)
{
	MemoryContext context = CurrentMemoryContext;
	SweepDoor	door;
	Jsonb	   *entries;

	sweep_sql_begin_call();
	sweep_door_enter_user(&door, PG_GETARG_OID(0));
	if (read_entries == NULL)
		read_entries = sweep_sql_prepare("SELECT coalesce(pg_catalog.jsonb_agg(pg_catalog.to_jsonb(j) ORDER BY j.jobid), '[]') FROM cron.job AS j",
										 0, NULL, PLANNED_AS_CHOSEN);
	(void) sweep_sql_execute_plan(read_entries, NULL, NULL);
	sweep_door_leave(&door);
	entries = sweep_sql_jsonb(1, context);
	sweep_sql_end_call();
	PG_RETURN_JSONB_P(entries);
}

/* SQL: sweep._count_statements(sql text) RETURNS int */
Datum
sweep_pg_cron_statements(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(list_length(pg_parse_query(text_to_cstring(PG_GETARG_TEXT_PP(0)))));
}
