/*
 * pg_cron.c
 *		What sweep.import_pg_cron does as the role that has called it.
 *
 * Called by the SQL functions of pg_cron.sql, which are the owner's. The table of pg_cron shows everybody their
 * own entries only, and a job may be created by those only who could be its role: both are asked of the caller,
 * behind the door (see door.c), and not decided here once more.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"

#include "base/door.h"
#include "base/sql.h"

#define MOST_PARAMETERS 5

/* A statement of the caller's; its plan is kept, so that an error leaves nothing behind. */
typedef struct Statement
{
	const char *text;
	int			count;			/* of its parameters */
	Oid			types[MOST_PARAMETERS];
	SweepPlan  *plan;
} Statement;

typedef struct Visit
{
	Statement  *statement;
	Datum	   *values;
} Visit;

static Statement read_entries = {
	"SELECT coalesce(pg_catalog.jsonb_agg(pg_catalog.to_jsonb(j) ORDER BY j.jobid), '[]') FROM cron.job AS j", 0, {InvalidOid}, NULL
};
static Statement create_job = {
	"SELECT sweep.create_job($1, $2, $3, timezone => $4, run_as => $5::pg_catalog.regrole, paused => true)",
	5, {TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID}, NULL
};

static void execute_as(Oid role, Visit *visit);
static void visit_work(void *arg);

PG_FUNCTION_INFO_V1(sweep_pg_cron_entries);
PG_FUNCTION_INFO_V1(sweep_pg_cron_create_job);
PG_FUNCTION_INFO_V1(sweep_pg_cron_statements);

/* SQL: sweep._pg_cron_entries(caller oid) RETURNS jsonb */
Datum
sweep_pg_cron_entries(PG_FUNCTION_ARGS)
{
	MemoryContext context = CurrentMemoryContext;
	Visit		visit = {&read_entries, NULL};
	Jsonb	   *entries;

	sweep_sql_begin_call();
	execute_as(PG_GETARG_OID(0), &visit);
	sweep_sql_row(0);
	entries = sweep_sql_jsonb(1, context);
	sweep_sql_end_call();
	PG_RETURN_JSONB_P(entries);
}

/* SQL: sweep._create_pg_cron_job(caller oid, name text, schedule text, sql text, timezone text, run_as text) RETURNS void */
Datum
sweep_pg_cron_create_job(PG_FUNCTION_ARGS)
{
	Datum		values[MOST_PARAMETERS];
	Visit		visit = {&create_job, values};

	for (int i = 0; i < MOST_PARAMETERS; i++)
		values[i] = PG_GETARG_DATUM(i + 1);
	sweep_sql_begin_call();
	execute_as(PG_GETARG_OID(0), &visit);
	sweep_sql_end_call();
	PG_RETURN_VOID();
}

/* SQL: sweep._count_statements(sql text) RETURNS int */
Datum
sweep_pg_cron_statements(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(list_length(pg_parse_query(text_to_cstring(PG_GETARG_TEXT_PP(0)))));
}

static void
execute_as(Oid role, Visit *visit)
{
	sweep_door_visit_user(role, visit_work, visit);
}

static void
visit_work(void *arg)
{
	const Visit *visit = arg;
	Statement  *statement = visit->statement;

	if (statement->plan == NULL)
		statement->plan = sweep_sql_prepare(statement->text, statement->count, statement->types, false);
	(void) sweep_sql_execute_plan(statement->plan, visit->values, NULL);
}
