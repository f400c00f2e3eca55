/*
 * estimate.c
 *		How many rows a run has to do, as the estimate of its job says.
 *
 * Called by run.c between the commit that says that the run is in progress and its first batch, and by create_job and
 * alter_job for the check. An estimate is a SELECT of the job. It is executed as its role, with the settings of its batches,
 * in a transaction of its own that is read-only and rolled back; and behind the door, as a security-restricted operation,
 * so that it leaves nothing of the session behind that a rollback would not undo. All of it, planning included, has a time limit.
 *
 * It is a convenience for whoever looks at sweep.running. So nothing that is wrong with it ends the run: neither an error
 * nor an answer that is none.
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "storage/proc.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "base/door.h"
#include "base/txn.h"
#include "base/worker.h"
#include "engine/batch.h"
#include "engine/definition.h"
#include "engine/estimate.h"
#include "engine/report.h"
#include "engine/timers.h"

/* What is asked, and what came of it. */
typedef struct Question
{
	SweepRun   *run;
	SweepStep  *step;
	ErrorData  *error;
	bool		timed_out;
	const char *refused;		/* what it returned is no answer */
	double		rows;
} Question;

static void refuse(const char *source);
static void ask_work(void *arg);
static void restricted_work(void *arg);
static void answer_work(void *arg);
static bool is_number(Oid type);
static double number_of(Oid type, Datum value);
static const char *why_unknown(const Question *question);
static bool is_cancelled(const Question *question);
static int64 share_of(const SweepRun *run, double rows);
static int	limit_ms(void);

PG_FUNCTION_INFO_V1(sweep_estimate_check);

/* SQL: sweep._check_estimate(role oid, estimate text, settings jsonb) RETURNS void */
Datum
sweep_estimate_check(PG_FUNCTION_ARGS)
{
	char	   *source = text_to_cstring(PG_GETARG_TEXT_PP(1));
	RawStmt    *raw;
	Query	   *query;
	Oid			type;

	if (!sweep_definition_parse(source, &raw) || !IsA(raw->stmt, SelectStmt))
		refuse(source);
	query = sweep_definition_analyse(PG_GETARG_OID(0), source, PG_GETARG_JSONB_P(2), raw, false);
	if (query->commandType != CMD_SELECT || query->hasModifyingCTE || query->rowMarks != NIL)
		refuse(source);
	if (ExecCleanTargetListLength(query->targetList) != 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("estimate \"%s\" has %d columns", source, ExecCleanTargetListLength(query->targetList)),
				 errhint("Select one number: how many rows there are to do.")));
	type = exprType((Node *) linitial_node(TargetEntry, query->targetList)->expr);
	if (!is_number(type))
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("estimate \"%s\" is of type %s and not a number", source, format_type_be(type)),
				 errhint("Cast it to bigint, numeric or double precision: it is how many rows there are to do.")));
	PG_RETURN_VOID();
}

static void
refuse(const char *source)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("estimate \"%s\" is not a single SELECT that only reads", source),
			 errhint("It is asked when a run starts how many rows there are to do, for example SELECT count(*) FROM ...; $1 is the batch.")));
}

void
sweep_estimate_ask(SweepRun *run)
{
	Question	question = {.run = run};
	MemoryContext old = MemoryContextSwitchTo(run->batch_context);
	SweepTxnEnd end;
	const char *why;

	sweep_report_phase(run, PHASE_ESTIMATE);
	if (!sweep_sql_in_call())
		sweep_worker_report_activity(psprintf("%s: estimate", run->job));
	end = sweep_batch_transact(run, ask_work, &question, &question.error);
	sweep_step_free(question.step);
	if (is_cancelled(&question))
		pg_atomic_fetch_or_u32(&run->slot->stop_request, SWEEP_STOP_REQUEST_CANCEL);
	if (is_cancelled(&question))
		sweep_batch_fail(run, question.error);
	else if (end == TXN_COMMITTED || end == TXN_FAILED)
	{
		why = why_unknown(&question);
		sweep_report_estimate(run, why == NULL ? share_of(run, question.rows) : -1);
		if (why != NULL)
			ereport(sweep_sql_in_call() ? NOTICE : LOG,
					(errmsg("job \"%s\" run %lld: its estimate is not known: %s", run->job, (long long) run->run_id, why)));
	}
	MemoryContextSwitchTo(old);
}

/* An error of the estimate ends here, so that the transaction around it does not fail. */
static void
ask_work(void *arg)
{
	Question   *question = arg;
	MemoryContext old = MemoryContextSwitchTo(question->run->batch_context);

	sweep_timers_arm_limit(limit_ms());
	question->error = sweep_txn_savepoint(restricted_work, question, false);
	question->timed_out = sweep_timers_disarm_limit();
	MemoryContextSwitchTo(old);
}

static void
restricted_work(void *arg)
{
	Question   *question = arg;

	sweep_door_visit_user(question->run->run_as, answer_work, question);
}

/* What is read-only cannot be made read-write again in a subtransaction. */
static void
answer_work(void *arg)
{
	Question   *question = arg;
	SweepRun   *run = question->run;
	SweepBatch	batch = sweep_batch_request(run);
	Oid			type;
	uint64		count;

	(void) set_config_option("transaction_read_only", "on", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
	/* It is about the whole job, whichever share asks. */
	batch.buckets = 0;
	question->step = sweep_step_prepare_question(run->batch_context, run->estimate);
	count = sweep_step_ask(question->step, &batch, &type);
	if (count != 1)
		question->refused = count == 0 ? "it returned no row" : "it returned more than one row";
	else if (sweep_sql_is_null(1))
		question->refused = "it returned NULL";
	else if (!is_number(type))
		question->refused = "it returned something else than a number";
	else
		question->rows = number_of(type, sweep_sql_copy(1, CurrentMemoryContext));
}

static bool
is_number(Oid type)
{
	switch (getBaseType(type))
	{
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case FLOAT4OID:
		case FLOAT8OID:
		case NUMERICOID:
			return true;
		default:
			return false;
	}
}

/* More digits than a double has are not needed. */
static double
number_of(Oid type, Datum value)
{
	switch (getBaseType(type))
	{
		case INT2OID:
			return DatumGetInt16(value);
		case INT4OID:
			return DatumGetInt32(value);
		case INT8OID:
			return (double) DatumGetInt64(value);
		case FLOAT4OID:
			return DatumGetFloat4(value);
		case FLOAT8OID:
			return DatumGetFloat8(value);
		default:
			return DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow, value));
	}
}

/* NULL when it is known. */
static const char *
why_unknown(const Question *question)
{
	if (question->timed_out)
		return psprintf("it takes longer than %d ms", limit_ms());
	if (question->error != NULL)
		return question->error->message;
	if (question->refused != NULL)
		return question->refused;
	if (question->rows >= 0 && question->rows < (double) PG_INT64_MAX)
		return NULL;
	return psprintf("it returned %g", question->rows);
}

/*
 * A request to cancel that this process was sent, and not one that the SQL tells of: of another server, for one. There is
 * no other difference but who has raised it. Or the time of the CALL is over, which may be at the same moment as ours.
 */
static bool
is_cancelled(const Question *question)
{
	const ErrorData *error = question->error;

	return error != NULL && error->sqlerrcode == ERRCODE_QUERY_CANCELED && error->funcname != NULL &&
		strcmp(error->funcname, "ProcessInterrupts") == 0 &&
		(!question->timed_out || sweep_timers_statement_fired(question->run));
}

/* Of a divided job each share has its part. */
static int64
share_of(const SweepRun *run, double rows)
{
	return (int64) ceil(run->buckets != NULL ? rows / Max(run->buckets->count, 1) : rows);
}

/* Not longer than what the role allows its statements; in a session that is the time of the CALL. */
static int
limit_ms(void)
{
	return StatementTimeout > 0 && !sweep_sql_in_call() ? Min(StatementTimeout, SWEEP_ESTIMATE_MS) : SWEEP_ESTIMATE_MS;
}
