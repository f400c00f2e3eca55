/*
 * sql.c
 *		Transactions and statements: the only file that uses SPI and the only one that catches errors.
 *
 * A unit of work is one transaction. A worker begins and ends it itself. A session that executes CALL
 * must leave that to SPI, and cannot roll back what a nested function left half done; there the work is
 * a subtransaction, so that a failure is contained, followed by a commit.
 *
 * The statements of the engine are constants with parameters. They run as the owner of the extension,
 * within the transaction of the job's own work and whatever that left behind in the session, so user,
 * security context, search_path and what else changes their meaning are set around each of them (door.c).
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "executor/spi.h"
#include "pgstat.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/door.h"
#include "base/extension.h"
#include "base/sql.h"

/* Memory that is enough for the copy of any error, in bytes. */
#define ERROR_ROOM (16 * 1024 * 1024)

/* The work of one transaction. */
typedef struct Transaction
{
	SweepWork	work;
	void	   *arg;
} Transaction;

static bool in_call = false;
static uint64 current_row = 0;

static void leave_call(void *arg);
static void transaction_work(void *arg);
static void do_work(SweepWork work, void *arg);
static bool transaction_in_call(SweepWork work, void *arg, MemoryContext error_context, ErrorData **error);
static void plan_statement(SweepStatement *statement);
static uint64 check_result(int code);

void
sweep_sql_enter_call(void)
{
	MemoryContextCallback *callback;

	(void) SPI_connect_ext(SPI_OPT_NONATOMIC);
	/* In the context of the procedure, which goes with SPI_finish(), or with the portal that an error ends. */
	callback = palloc0(sizeof(MemoryContextCallback));
	callback->func = leave_call;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, callback);
	in_call = true;
}

void
sweep_sql_leave_call(void)
{
	SPI_finish();
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

bool
sweep_sql_transaction(SweepWork work, void *arg, MemoryContext error_context, ErrorData **error)
{
	if (in_call)
		return transaction_in_call(work, arg, error_context, error);
	return sweep_sql_attempt(transaction_work, &(Transaction) {work, arg}, error_context, error);
}

/*
 * A block, as after BEGIN. Without one, an extension that sends a statement on to another server has that
 * committed with the statement, and not with this transaction: Citus does that where one worker is enough.
 */
static void
transaction_work(void *arg)
{
	const Transaction *transaction = arg;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	BeginTransactionBlock();
	CommitTransactionCommand();
	StartTransactionCommand();
	do_work(transaction->work, transaction->arg);
	(void) EndTransactionBlock(false);
	CommitTransactionCommand();
}

/*
 * The error is copied before the abort: one that was raised again from a copy, as by RAISE in a handler of exceptions, points into
 * memory of the transaction. A process that has no memory left frees that of the transaction first; until then the error is in
 * ErrorContext, which outlives the transaction.
 */
bool
sweep_sql_attempt(SweepWork work, void *arg, MemoryContext error_context, ErrorData **error)
{
	MemoryContext caller_context = CurrentMemoryContext;
	volatile bool done = false;

	PG_TRY();
	{
		work(arg);
		done = true;
	}
	PG_CATCH();
	{
		void	   *room = MemoryContextAllocExtended(error_context, ERROR_ROOM, MCXT_ALLOC_NO_OOM);

		HOLD_INTERRUPTS();
		MemoryContextSwitchTo(error_context);
		if (room != NULL)
		{
			pfree(room);
			*error = CopyErrorData();
		}
		AbortOutOfAnyTransaction();
		MemoryContextSwitchTo(error_context);
		if (room == NULL)
			*error = CopyErrorData();
		FlushErrorState();
		QueryCancelPending = false;
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
	/* One that fired when the lock was just got means nothing to what comes next. */
	if (get_timeout_indicator(LOCK_TIMEOUT, true))
		QueryCancelPending = false;
	MemoryContextSwitchTo(caller_context);
	pgstat_report_stat(false);
	return done;
}

static void
do_work(SweepWork work, void *arg)
{
	(void) SPI_connect();
	PushActiveSnapshot(GetTransactionSnapshot());
	work(arg);
	PopActiveSnapshot();
	SPI_finish();
}

/*
 * Work, contained by a subtransaction, and the commit, which fails as a whole or not at all. SPI_commit() keeps an error
 * in the current memory context while it aborts, so that context must not be one of the transaction.
 */
static bool
transaction_in_call(SweepWork work, void *arg, MemoryContext error_context, ErrorData **error)
{
	MemoryContext caller_context = CurrentMemoryContext;
	ResourceOwner caller_owner = CurrentResourceOwner;
	volatile bool in_work = true;
	volatile bool done = false;

	BeginInternalSubTransaction(NULL);
	PG_TRY();
	{
		do_work(work, arg);
		ReleaseCurrentSubTransaction();
		CurrentResourceOwner = caller_owner;
		in_work = false;
		MemoryContextSwitchTo(error_context);
		SPI_commit();
		done = true;
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(error_context);
		*error = CopyErrorData();
		FlushErrorState();
		if (in_work)
		{
			RollbackAndReleaseCurrentSubTransaction();
			CurrentResourceOwner = caller_owner;
		}
		QueryCancelPending = false;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(caller_context);
	return done;
}

ErrorData *
sweep_sql_savepoint(SweepWork work, void *arg, bool keeps)
{
	MemoryContext caller_context = CurrentMemoryContext;
	ResourceOwner caller_owner = CurrentResourceOwner;
	ErrorData  *volatile error = NULL;

	BeginInternalSubTransaction(NULL);
	PG_TRY();
	{
		do_work(work, arg);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(caller_context);
		error = CopyErrorData();
		FlushErrorState();
	}
	PG_END_TRY();
	if (keeps && error == NULL)
		ReleaseCurrentSubTransaction();
	else
		RollbackAndReleaseCurrentSubTransaction();
	MemoryContextSwitchTo(caller_context);
	CurrentResourceOwner = caller_owner;
	return error;
}

/* PG_END_TRY and PG_CATCH restore error_context_stack, so that what is raised again has the lines of the caller. */
void
sweep_sql_hide_context(SweepWork work, void *arg)
{
	MemoryContext caller_context = CurrentMemoryContext;

	PG_TRY();
	{
		error_context_stack = NULL;
		work(arg);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(caller_context);
		error = CopyErrorData();
		FlushErrorState();
		/* An object that PostgreSQL has looked up and not yet locked may go with the extension; only an internal error says that. */
		if (ERRCODE_TO_CATEGORY(error->sqlerrcode) == ERRCODE_INTERNAL_ERROR && !sweep_extension_is_unchanged())
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_OBJECT),
					 errmsg("extension pg_sweep was altered or dropped during the call"),
					 errdetail("The look-up of one of its objects has failed: %s.", error->message)));
		sweep_door_raise_for_user(error);
	}
	PG_END_TRY();
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
	uint32		held = QueryCancelHoldoffCount;	/* an error that a function catches resets it */
	Snapshot	latest = statement->reads_latest && IsolationUsesXactSnapshot() ? GetLatestSnapshot() : InvalidSnapshot;
	uint64		count;

	sweep_door_enter_statement(&door, sweep_extension()->owner);
	/* A job whose role, or whose own SQL, made its transactions read-only is recorded all the same. */
	if (MyBackendType == B_BG_WORKER)
		XactReadOnly = false;
	plan_statement(statement);
	count = check_result(SPI_execute_snapshot(statement->plan, values, nulls, latest, InvalidSnapshot, false, true, 0));
	XactReadOnly = read_only;
	QueryCancelHoldoffCount = held;
	sweep_door_leave_statement(&door);
	return count;
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
 * The plans of constant statements are generic ones: nothing in them depends on the values. They go by indexes, however
 * small a table is when they are made: a queue that was vacuumed when it was empty may have millions of messages the next minute,
 * and long before the next ANALYZE.
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
		statement->plan = sweep_sql_prepare(statement->text, count, (Oid *) statement->types, true);
	nest_level = NewGUCNestLevel();
	(void) set_config_option("enable_seqscan", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	/* Where there is no index the plan looks as costly as if it were worth compiling. */
	(void) set_config_option("jit", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	sweep_sql_make_plan(statement->plan);
	AtEOXact_GUC(true, nest_level);
}

SweepPlan *
sweep_sql_prepare(const char *text, int count, Oid *types, bool generic)
{
	int			nest_level = sweep_door_enter_literals();
	SweepPlan  *plan = SPI_prepare_cursor(text, count, types, generic ? CURSOR_OPT_GENERIC_PLAN : 0);

	sweep_door_leave_literals(nest_level);
	if (plan == NULL || SPI_keepplan(plan) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("could not prepare \"%s\": %s", text, SPI_result_code_string(SPI_result))));
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
	(void) SPI_freeplan(plan);
}

uint64
sweep_sql_execute_plan(SweepPlan *plan, Datum *values, const char *nulls)
{
	return check_result(SPI_execute_plan(plan, values, nulls, false, 0));
}

uint64
sweep_sql_ask(SweepPlan *plan, Datum value, Oid *type)
{
	uint64		rows = check_result(SPI_execute_plan(plan, &value, NULL, true, 2));

	*type = SPI_gettypeid(SPI_tuptable->tupdesc, 1);
	return rows;
}

bool
sweep_sql_find(SweepPlan *plan, Datum *values)
{
	return check_result(SPI_execute_plan(plan, values, NULL, true, 1)) > 0;
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

static uint64
check_result(int code)
{
	if (code < 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("statement could not be executed in a batch: %s", SPI_result_code_string(code)),
				 errhint("A batch is one transaction: it cannot begin or end one.")));
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
	return sweep_sql_is_null(column) ? if_null : sweep_interval_us(DatumGetIntervalP(sweep_sql_datum(column)));
}

Oid *
sweep_sql_oids(int column, MemoryContext context, int *count)
{
	Datum	   *elements = NULL;
	Oid		   *oids;

	*count = 0;
	if (!sweep_sql_is_null(column))
		deconstruct_array(DatumGetArrayTypeP(sweep_sql_datum(column)), OIDOID, sizeof(Oid), true, TYPALIGN_INT, &elements, NULL, count);
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
	return sweep_sql_is_null(column) ? NULL : MemoryContextStrdup(context, TextDatumGetCString(sweep_sql_datum(column)));
}

Jsonb *
sweep_sql_jsonb(int column, MemoryContext context)
{
	MemoryContext old = MemoryContextSwitchTo(context);
	Jsonb	   *json = sweep_sql_is_null(column) ? NULL : DatumGetJsonbPCopy(sweep_sql_datum(column));

	MemoryContextSwitchTo(old);
	return json;
}

Size
sweep_sql_raw_size(int column)
{
	return TupleDescAttr(SPI_tuptable->tupdesc, column - 1)->attlen == -1 && !sweep_sql_is_null(column) ? toast_raw_datum_size(sweep_sql_datum(column)) : 0;
}
