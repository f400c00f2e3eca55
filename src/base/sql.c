/*
 * sql.c
 *		Statements: the only file that uses SPI.
 *
 * Called by all rooms above, within a transaction of txn.c or of a session. The statements of the engine are constants with
 * parameters. The engine executes them as the owner of the extension, in the transaction of the job's work. That work may
 * have changed the session, so user, security context, search_path and the settings that change the meaning of a
 * statement are set around each statement (door.c).
 */
#include "postgres.h"

#include "access/detoast.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/guc.h"
#include "utils/plancache.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/door.h"
#include "base/extension.h"
#include "base/sql.h"

static bool in_call = false;
static uint64 current_row = 0;

static void leave_call(void *arg);
static void plan_statement(SweepStatement *statement);
static uint64 check_result(int code);

void
sweep_sql_enter_call(void)
{
	MemoryContextCallback *callback;

	(void) SPI_connect_ext(SPI_OPT_NONATOMIC);
	/* Allocated in the context of the procedure, which is deleted by SPI_finish(), or after an error with the portal. */
	callback = palloc0(sizeof(MemoryContextCallback));
	callback->func = leave_call;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, callback);
	in_call = true;
}

static void
leave_call(void *arg)
{
	in_call = false;
}

bool
sweep_sql_in_call(void)
{
	return in_call;
}

void
sweep_sql_end_transaction(void)
{
	SPI_commit();
}

void
sweep_sql_begin_call(void)
{
	sweep_extension_require(sweep_extension_find());
	sweep_sql_connect();
}

void
sweep_sql_connect(void)
{
	(void) SPI_connect();
}

void
sweep_sql_end_call(void)
{
	SPI_finish();
}

uint64
sweep_sql_execute(SweepStatement *statement, Datum *values, const char *nulls)
{
	SweepDoor	door;
	bool		read_only = XactReadOnly;
	uint32		held = QueryCancelHoldoffCount;	/* reset when a function catches an error */
	Snapshot	latest = statement->reads_latest && IsolationUsesXactSnapshot() ? GetLatestSnapshot() : InvalidSnapshot;
	uint64		count;

	sweep_door_enter_statement(&door, sweep_extension()->owner);
	/* The run must also be recorded if its role, or the SQL of the job, made the transaction read-only. */
	if (MyBackendType == B_BG_WORKER)
		XactReadOnly = false;
	plan_statement(statement);
	count = check_result(SPI_execute_snapshot(statement->plan, values, nulls, latest, InvalidSnapshot, false, true, 0));
	XactReadOnly = read_only;
	QueryCancelHoldoffCount = held;
	sweep_door_leave_statement(&door);
	return count;
}

void
sweep_sql_execute_work(void *arg)
{
	const SweepExecution *work = arg;

	(void) sweep_sql_execute(work->statement, work->values, work->nulls);
}

int64
sweep_sql_next_value(Oid sequence)
{
	bool		read_only = XactReadOnly;
	int64		value;

	if (MyBackendType == B_BG_WORKER)
		XactReadOnly = false;
	value = nextval_internal(sequence, false);
	XactReadOnly = read_only;
	return value;
}

/*
 * Constant statements have generic plans, because their plans do not depend on the values. The plans use indexes even if a table
 * is small: a queue that was vacuumed when it was empty may have millions of messages a minute later, long before the next
 * ANALYZE.
 */
static void
plan_statement(SweepStatement *statement)
{
	int			count = 0;
	int			nest_level;

	if (statement->plan != NULL && SPI_plan_is_valid(statement->plan))
		return;
	while (count < SWEEP_STATEMENT_MAX_PARAMETERS && OidIsValid(statement->types[count]))
		count++;
	if (statement->plan == NULL)
		statement->plan = sweep_sql_prepare(statement->text, count, (Oid *) statement->types, PLANNED_ONCE);
	nest_level = NewGUCNestLevel();
	(void) set_config_option("enable_seqscan", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	/* With sequential scans disabled, a plan without an index has a cost for which PostgreSQL would compile it. */
	(void) set_config_option("jit", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	sweep_sql_make_plan(statement->plan);
	AtEOXact_GUC(true, nest_level);
}

SweepPlan *
sweep_sql_prepare(const char *text, int count, Oid *types, SweepPlanned planned)
{
	int			nest_level = sweep_door_enter_literals();
	SweepPlan  *plan = SPI_prepare_cursor(text, count, types,
										  planned == PLANNED_ONCE ? CURSOR_OPT_GENERIC_PLAN : planned == PLANNED_EACH_TIME ? CURSOR_OPT_CUSTOM_PLAN : 0);

	sweep_door_leave_literals(nest_level);
	if (plan == NULL || SPI_keepplan(plan) != 0)
		elog(ERROR, "could not prepare \"%s\": %s", text, SPI_result_code_string(SPI_result));
	return plan;
}

void
sweep_sql_make_plan(SweepPlan *plan)
{
	ReleaseCachedPlan(SPI_plan_get_cached_plan(plan), CurrentResourceOwner);
}

void
sweep_sql_free_plan(SweepPlan *plan)
{
	if (plan != NULL)
		(void) SPI_freeplan(plan);
}

bool
sweep_sql_is_valid(SweepPlan *plan)
{
	return SPI_plan_is_valid(plan);
}

List *
sweep_sql_queries(SweepPlan *plan)
{
	return ((const CachedPlanSource *) linitial(SPI_plan_get_plan_sources(plan)))->query_list;
}

uint64
sweep_sql_execute_plan(SweepPlan *plan, Datum *values, const char *nulls)
{
	return check_result(SPI_execute_plan(plan, values, nulls, false, 0));
}

uint64
sweep_sql_execute_latest(SweepPlan *plan, Datum *values, const char *nulls)
{
	return check_result(SPI_execute_snapshot(plan, values, nulls, GetLatestSnapshot(), InvalidSnapshot, true, false, 0));
}

uint64
sweep_sql_read(SweepPlan *plan, Datum *values, long most)
{
	return check_result(SPI_execute_plan(plan, values, NULL, true, most));
}

SweepCursor *
sweep_sql_open(SweepPlan *plan, Datum *values)
{
	return SPI_cursor_open(NULL, plan, values, NULL, true);
}

uint64
sweep_sql_fetch(SweepCursor *cursor, long count)
{
	SPI_freetuptable(SPI_tuptable);
	SPI_cursor_fetch(cursor, true, count);
	return SPI_processed;
}

void
sweep_sql_close(SweepCursor *cursor)
{
	SPI_cursor_close(cursor);
}

/* Statements of users were checked when the job was created, so an unexpected result is an internal error. */
static uint64
check_result(int code)
{
	if (code < 0)
		elog(ERROR, "statement could not be executed in a batch: %s", SPI_result_code_string(code));
	current_row = 0;
	return SPI_processed;
}

void
sweep_sql_row(uint64 row)
{
	current_row = row;
}

Datum
sweep_sql_datum(int column)
{
	bool		is_null;

	return SPI_getbinval(SPI_tuptable->vals[current_row], SPI_tuptable->tupdesc, column, &is_null);
}

Oid
sweep_sql_type(int column)
{
	return SPI_gettypeid(SPI_tuptable->tupdesc, column);
}

Datum
sweep_sql_value(int column, Oid type)
{
	if (sweep_sql_type(column) != type)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column %d of the result of a statement is of type %s instead of %s", column,
						OidIsValid(sweep_sql_type(column)) ? format_type_be(sweep_sql_type(column)) : "none", format_type_be(type)),
				 errdetail("A table that it reads was replaced or altered."),
				 errhint("Do it again when the table is as it was.")));
	return sweep_sql_datum(column);
}

ItemPointer
sweep_sql_place(int column)
{
	ItemPointer place = (ItemPointer) DatumGetPointer(sweep_sql_value(column, TIDOID));

	if (place == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("a statement has returned no place of a row"),
				 errhint("A table that it reads was replaced by a view, or a rule was added to it. Do it again when the table is as it was.")));
	return place;
}

bool
sweep_sql_is_null(int column)
{
	bool		is_null;

	(void) SPI_getbinval(SPI_tuptable->vals[current_row], SPI_tuptable->tupdesc, column, &is_null);
	return is_null;
}

int64
sweep_sql_interval_us(int column, int64 if_null)
{
	return sweep_sql_is_null(column) ? if_null : sweep_interval_us(DatumGetIntervalP(sweep_sql_value(column, INTERVALOID)));
}

Oid *
sweep_sql_oids(int column, MemoryContext context, int *count)
{
	Datum	   *elements = NULL;
	Oid		   *oids;

	*count = 0;
	if (!sweep_sql_is_null(column))
		deconstruct_array(DatumGetArrayTypeP(sweep_sql_value(column, OIDARRAYOID)), OIDOID, sizeof(Oid), true, TYPALIGN_INT, &elements, NULL, count);
	oids = MemoryContextAlloc(context, (*count + 1) * sizeof(Oid));
	for (int i = 0; i < *count; i++)
		oids[i] = DatumGetObjectId(elements[i]);
	return oids;
}

Datum
sweep_sql_copy(int column, MemoryContext context)
{
	Form_pg_attribute attribute = TupleDescAttr(SPI_tuptable->tupdesc, column - 1);
	MemoryContext old = MemoryContextSwitchTo(context);
	Datum		value = sweep_sql_datum(column);

	if (!sweep_sql_is_null(column))
		value = datumCopy(value, attribute->attbyval, attribute->attlen);
	MemoryContextSwitchTo(old);
	return value;
}

char *
sweep_sql_text(int column, MemoryContext context)
{
	return sweep_sql_is_null(column) ? NULL : MemoryContextStrdup(context, TextDatumGetCString(sweep_sql_value(column, TEXTOID)));
}

Jsonb *
sweep_sql_jsonb(int column, MemoryContext context)
{
	MemoryContext old = MemoryContextSwitchTo(context);
	Jsonb	   *json = sweep_sql_is_null(column) ? NULL : DatumGetJsonbPCopy(sweep_sql_value(column, JSONBOID));

	MemoryContextSwitchTo(old);
	return json;
}

Size
sweep_sql_raw_size(int column)
{
	return TupleDescAttr(SPI_tuptable->tupdesc, column - 1)->attlen == -1 && !sweep_sql_is_null(column) ? toast_raw_datum_size(sweep_sql_datum(column)) : 0;
}
