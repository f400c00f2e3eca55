/*
 * estimate.c
 *		The number of rows that a run has to handle, from the estimate of its job.
 *
 * Called by run.c after the commit that sets the run to running and before its first batch, and by create_job and alter_job
 * for the check. An estimate is a SELECT of the job. It is executed as the role of the job, with the settings of its batches,
 * in a transaction of its own that is read-only and rolled back. It runs as a security-restricted operation (door.c), so it
 * leaves nothing in the session that a rollback would not undo. The time limit includes planning.
 *
 * The result is only shown in sweep.running: neither an error of the estimate nor a useless result ends the run.
 */
#include "postgres.h"

#include <math.h>
#include <signal.h>

#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "storage/proc.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"

#include "base/cancel.h"
#include "base/door.h"
#include "base/extension.h"
#include "base/timer.h"
#include "base/txn.h"
#include "base/worker.h"
#include "engine/batch.h"
#include "job/job_statement.h"
#include "engine/estimate.h"
#include "engine/report.h"
#include "engine/timers.h"

/* The question and its answer. */
typedef struct Question
{
	SweepRun   *run;
	SweepStep  *step;
	int			limit_ms;
	ErrorData  *error;
	bool		timed_out;
	const char *refused;		/* why the result is not used */
	double		rows;
} Question;

static void refuse(const char *source);
static void ask_work(void *arg);
static void interrupt(void);
static void answer_work(void *arg);
static double number_of(Oid type, Datum value);
static bool is_number(Oid type);
static const char *why_unknown(const Question *question);

PG_FUNCTION_INFO_V1(sweep_estimate_check);

/* SQL: sweep._check_estimate(role oid, estimate text, settings jsonb) RETURNS void */
Datum
sweep_estimate_check(PG_FUNCTION_ARGS)
{
	char	   *source = text_to_cstring(PG_GETARG_TEXT_PP(1));
	RawStmt    *raw;
	Query	   *query;
	Oid			type;

	sweep_extension_require(sweep_extension_find());
	if (!sweep_job_statement_parse(source, &raw) || !IsA(raw->stmt, SelectStmt))
		refuse(source);
	query = sweep_job_statement_analyse(PG_GETARG_OID(0), source, PG_GETARG_JSONB_P(2), raw, false);
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
	Question	question = {.run = run, .limit_ms = SWEEP_ESTIMATE_MS};
	MemoryContext old = MemoryContextSwitchTo(run->batch_context);
	SweepTxnEnd end;
	const char *why;
	/* Each share of a divided job handles only its part of the rows. */
	int			shares = run->buckets != NULL ? Max(run->buckets->count, 1) : 1;

	/* The limit is not longer than the role's statement_timeout; in a session that timeout is running since the CALL. */
	if (StatementTimeout > 0 && !sweep_sql_in_call())
		question.limit_ms = Min(StatementTimeout, SWEEP_ESTIMATE_MS);

	sweep_report_phase(run, PHASE_ESTIMATE);
	if (!sweep_sql_in_call())
		sweep_worker_report_activity(psprintf("%s: estimate", run->job));
	end = sweep_batch_transact(run, ask_work, &question, &question.error);
	sweep_step_free(question.step);
	/* The timeout of a CALL may pass at the same moment as the limit of the estimate. */
	if (question.error != NULL && sweep_cancel_is_error(question.error) && (!question.timed_out || sweep_timers_statement_fired(run)))
	{
		pg_atomic_fetch_or_u32(&run->slot->stop_request, SWEEP_STOP_REQUEST_CANCEL);
		sweep_batch_fail(run, question.error);
	}
	else if (end == TXN_COMMITTED || end == TXN_FAILED)
	{
		why = why_unknown(&question);
		sweep_report_estimate(run, why == NULL ? (int64) ceil(question.rows / shares) : -1);
		if (why != NULL)
			ereport(sweep_sql_in_call() ? NOTICE : LOG,
					(errmsg("job \"%s\" run %lld: its estimate is not known: %s", run->job, (long long) run->run_id, why)));
	}
	MemoryContextSwitchTo(old);
}

/*
 * The savepoint rolls the estimate back, so that its error does not abort the outer transaction. The limit has its own timer, because in
 * a session the statement timeout of the CALL is running.
 */
static void
ask_work(void *arg)
{
	Question   *question = arg;
	MemoryContext old = MemoryContextSwitchTo(question->run->batch_context);

	sweep_timer_arm(SWEEP_TIMER_LIMIT, (int64) question->limit_ms * 1000, interrupt);
	question->error = sweep_txn_savepoint(answer_work, question, false);
	question->timed_out = sweep_timer_disarm(SWEEP_TIMER_LIMIT);
	/* A cancel request of the timer would otherwise take effect later. Other requests to stop are in the slot of the run. */
	if (question->timed_out)
		sweep_cancel_drop();
	MemoryContextSwitchTo(old);
}

/* Executed in a signal handler. */
static void
interrupt(void)
{
	kill(MyProcPid, SIGINT);
}

/* Code of the job cannot make the subtransaction read-write again. */
static void
answer_work(void *arg)
{
	Question   *question = arg;
	SweepRun   *run = question->run;
	SweepBatch	batch = sweep_batch_request(run);
	SweepDoor	door;
	uint64		count;

	sweep_door_enter_user(&door, run->run_as);
	(void) set_config_option("transaction_read_only", "on", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
	/* The estimate is for the whole job, even if a share asks. */
	batch.buckets = 0;
	question->step = sweep_step_prepare_question(run->batch_context, run->estimate);
	count = sweep_step_ask(question->step, &batch);
	if (count != 1)
		question->refused = count == 0 ? "it returned no row" : "it returned more than one row";
	else if (sweep_sql_is_null(1))
		question->refused = "it returned NULL";
	else if (!is_number(sweep_sql_type(1)))
		question->refused = "it returned something else than a number";
	else
		question->rows = number_of(sweep_sql_type(1), sweep_sql_copy(1, CurrentMemoryContext));
	sweep_door_leave(&door);
}

/* Converts the text of the value, which all numeric types have in the same form. */
static double
number_of(Oid type, Datum value)
{
	Oid			output;
	bool		is_varlena;

	getTypeOutputInfo(type, &output, &is_varlena);
	return strtod(OidOutputFunctionCall(output, value), NULL);
}

static bool
is_number(Oid type)
{
	Oid			base = getBaseType(type);

	return base == INT2OID || base == INT4OID || base == INT8OID || base == FLOAT4OID || base == FLOAT8OID || base == NUMERICOID;
}

/* Why there is no result; NULL when there is one. */
static const char *
why_unknown(const Question *question)
{
	if (question->timed_out)
		return psprintf("it takes longer than %d ms", question->limit_ms);
	if (question->error != NULL)
		return question->error->message;
	if (question->refused != NULL)
		return question->refused;
	return question->rows >= 0 && question->rows < (double) PG_INT64_MAX ? NULL : psprintf("it returned %g", question->rows);
}
