/*
 * script.c
 *		Executes the statements of a job with sql once, as psql executes a file.
 *
 * Called by run.c, in a worker only. In SPI a statement is part of another one, so VACUUM and CREATE INDEX CONCURRENTLY are
 * refused, and a procedure cannot commit. Here each statement is executed as in a session: it is analysed and planned, and
 * an unnamed portal executes it as a top-level command, which may end its transaction and begin others. There is no SPI,
 * snapshot or subtransaction of the engine around it.
 *
 * The work of a statement is committed before it can be recorded; after a crash in between, a run is 'lost' although it has
 * done its work. The extension may be altered or dropped meanwhile; each transaction checks first that it is still there.
 *
 * The statements have the settings of the role and of the job and only their own time limits; a setting that one of them
 * changes is in force for the next one. The session is reset before the end of the run is recorded. The first error ends
 * the run, and rolls back the transaction block in which it has occurred.
 *
 * Memory contexts: the batch context has the parsed statements. A child of it has the data of one statement, and survives
 * the transactions that the statement begins and ends.
 */
#include "postgres.h"

#include "access/xact.h"
#include "mb/pg_wchar.h"
#include "parser/analyze.h"
#include "pgstat.h"
#include "tcop/dest.h"
#include "tcop/tcopprot.h"
#include "tcop/utility.h"
#include "utils/guc.h"
#include "utils/json.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/snapmgr.h"

#include "base/compat_query.h"
#include "base/clock.h"
#include "base/detail.h"
#include "base/txn.h"
#include "base/worker.h"
#include "engine/batch.h"
#include "job/job_statement.h"
#include "engine/report.h"
#include "engine/script.h"
#include "engine/timers.h"

/* Longest part of a statement that is shown with an error, in bytes. */
#define SHOWN_BYTES 240

typedef struct Script
{
	SweepRun   *run;
	MemoryContext context;		/* of the run */
	MemoryContext statement_context;
	char	   *text;			/* of the statement in progress; NULL = none */
	int64		number;			/* of that statement, from 1 */
	SweepLoop	committed;		/* the counts at the last moment without an open transaction block */
	char	   *tags[SWEEP_DETAIL_MAX_ELEMENTS];	/* of the first statements */
	bool		absent;			/* the extension was dropped */
} Script;

static void script_work(void *arg);
static void execute_statement(Script *script, RawStmt *statement);
static bool writes_rows(const Node *statement);
static void execute_at_top_level(const char *source, RawStmt *statement, QueryCompletion *completion);
static List *make_plans(const char *source, RawStmt *statement);
static void show_statement(void *arg);
static void count_statement(Script *script, const QueryCompletion *completion);
static void fail(Script *script, ErrorData *error);
static void note_tags(Script *script);

void
sweep_script_execute(SweepRun *run)
{
	Script		script = {.run = run, .context = run->batch_context, .committed = run->state.loop};
	ErrorData  *error = NULL;
	char	   *name = MemoryContextStrdup(run->batch_context, application_name);

	script.statement_context = AllocSetContextCreate(run->batch_context, "pg_sweep statement", ALLOCSET_DEFAULT_SIZES);
	sweep_worker_set("synchronous_commit", run->synchronous_commit);
	if (!sweep_txn_catch(script_work, &script, run->batch_context, &error))
		fail(&script, error);
	else if (script.absent)
	{
		run->status = "cancelled";
		run->reason = SWEEP_STOP_CANCELLED;
		run->stage = RUN_ENDED;
	}
	else
	{
		run->status = "succeeded";
		run->reason = SWEEP_STOP_DONE;
	}
	note_tags(&script);
	sweep_worker_reset_session();
	sweep_worker_set("application_name", name);
}

/* The whole text is parsed before the first statement is executed; each statement is analysed after the earlier ones are done. */
static void
script_work(void *arg)
{
	Script	   *script = arg;
	SweepRun   *run = script->run;
	List	   *statements;
	ListCell   *cell;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	MemoryContextSwitchTo(script->context);
	statements = sweep_job_statement_parse_all(run->sql);
	CommitTransactionCommand();
	MemoryContextSwitchTo(script->context);
	foreach(cell, statements)
	{
		if (pg_atomic_read_u32(&run->slot->stop_request) != 0)
			ereport(ERROR, (errcode(ERRCODE_QUERY_CANCELED), errmsg("canceling statement due to user request")));
		MemoryContextReset(script->statement_context);
		script->number++;
		execute_statement(script, lfirst_node(RawStmt, cell));
		if (script->absent)
			return;
	}
}

static void
execute_statement(Script *script, RawStmt *statement)
{
	SweepRun   *run = script->run;
	int			start = sweep_job_statement_start(run->sql, statement);
	int			length = statement->stmt_len > 0 ? statement->stmt_location + statement->stmt_len - start : (int) strlen(run->sql + start);
	QueryCompletion completion;
	SweepMeaning *meaning = NULL;
	ErrorContextCallback callback = {error_context_stack, show_statement, script};

	run->times.batch_started_us = sweep_monotonic_us();
	script->text = MemoryContextAlloc(script->statement_context, length + 1);
	memcpy(script->text, run->sql + start, length);
	script->text[length] = '\0';
	sweep_worker_report_activity(script->text);
	/* If the statement before has called a run, that run has switched this off. */
	sweep_worker_watch_postmaster(true);
	error_context_stack = &callback;

	/* Begins a transaction, unless the statement belongs to a block. */
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	script->absent = !IsTransactionBlock() && !sweep_extension_find();
	if (!script->absent)
	{
		MemoryContextSwitchTo(script->statement_context);
		sweep_batch_require_role(run);
		if (writes_rows(statement->stmt))
			meaning = sweep_door_note_meaning(script->statement_context, InvalidOid);
		sweep_timers_arm_statement(run);
		execute_at_top_level(run->sql, statement, &completion);
		/* A statement that writes rows changes no settings itself, but code of other roles that its cascades call may have. */
		if (meaning != NULL)
			sweep_door_put_back(meaning, run->run_as, GUC_ACTION_SET);
		sweep_timers_disarm_statement(run);
		sweep_batch_require_lock(run);
	}
	/* Commits unless the statement has left a transaction block open; if it was COMMIT or ROLLBACK, ends the block. */
	CommitTransactionCommand();

	error_context_stack = callback.previous;
	MemoryContextSwitchTo(script->statement_context);
	if (!script->absent)
		count_statement(script, &completion);
}

/* Whether the statement or a query of its WITH writes rows. */
static bool
writes_rows(const Node *statement)
{
	const WithClause *with = IsA(statement, SelectStmt) ? castNode(SelectStmt, (Node *) statement)->withClause : NULL;
	ListCell   *cell;

	foreach(cell, with != NULL ? with->ctes : NIL)
	{
		if (writes_rows(lfirst_node(CommonTableExpr, cell)->ctequery))
			return true;
	}
	return IsA(statement, InsertStmt) || IsA(statement, UpdateStmt) || IsA(statement, DeleteStmt) || IsA(statement, MergeStmt);
}

/*
 * Executes a statement and discards its result row by row. The source, the statement and the current memory context
 * must survive all transactions that the statement begins.
 */
static void
execute_at_top_level(const char *source, RawStmt *statement, QueryCompletion *completion)
{
	List	   *plans = make_plans(source, statement);
	Portal		portal = CreatePortal("", true, true);

	portal->visible = false;
	InitializeQueryCompletion(completion);
	PortalDefineQuery(portal, NULL, source, CreateCommandTag(statement->stmt), plans, NULL);
	PortalStart(portal, NULL, 0, InvalidSnapshot);
	sweep_portal_run_once(portal, None_Receiver, completion);
	PortalDrop(portal, false);
}

/* No snapshot may be active for a command that begins transactions itself. */
static List *
make_plans(const char *source, RawStmt *statement)
{
	bool		needs_snapshot = analyze_requires_snapshot(statement);
	List	   *queries;
	List	   *plans;

	if (needs_snapshot)
		PushActiveSnapshot(GetTransactionSnapshot());
	queries = pg_analyze_and_rewrite_fixedparams(statement, source, NULL, 0, NULL);
	plans = pg_plan_queries(queries, source, CURSOR_OPT_PARALLEL_OK, NULL);
	if (needs_snapshot)
		PopActiveSnapshot();
	return plans;
}

static void
show_statement(void *arg)
{
	const Script *script = arg;
	int			length = strlen(script->text);

	errcontext("statement %lld of the sql of the job: %.*s%s", (long long) script->number,
			   pg_mbcliplen(script->text, length, SHOWN_BYTES), script->text, length > SHOWN_BYTES ? "..." : "");
}

/* The tag is the one that a client gets, "INSERT 0 5". The statements of a transaction block are counted as committed when it ends. */
static void
count_statement(Script *script, const QueryCompletion *completion)
{
	SweepRun   *run = script->run;
	bool		has_rows = command_tag_display_rowcount(completion->commandTag);
	const char *name = GetCommandTagName(completion->commandTag);
	/* The zero once was the OID of the inserted row. */
	const char *zero = completion->commandTag == CMDTAG_INSERT ? "0 " : "";
	const char *tag = has_rows ? psprintf("%s %s" UINT64_FORMAT, name, zero, completion->nprocessed) : name;

	if (script->number <= SWEEP_DETAIL_MAX_ELEMENTS)
		script->tags[script->number - 1] = MemoryContextStrdup(script->context, tag);
	sweep_loop_add_rows(&run->state.loop, has_rows ? (int64) completion->nprocessed : 0);
	/* The return value is ignored, because no limit ends a run with sql. */
	(void) sweep_loop_end_batch(&run->state.loop, false, 0);
	run->times.last_batch_us = sweep_monotonic_us() - run->times.batch_started_us;
	sweep_report_batch(run);
	if (IsTransactionBlock())
		return;
	script->committed = run->state.loop;
	pgstat_report_stat(false);
}

static void
fail(Script *script, ErrorData *error)
{
	SweepRun   *run = script->run;

	sweep_timers_disarm_statement(run);
	run->state.loop = script->committed;
	if (error->hint == NULL && (error->sqlerrcode == ERRCODE_UNDEFINED_TABLE || error->sqlerrcode == ERRCODE_UNDEFINED_FUNCTION ||
								error->sqlerrcode == ERRCODE_UNDEFINED_OBJECT))
		error->hint = MemoryContextStrdup(script->context, "Names without a schema are looked up in the search_path of the job's settings, "
										  "or of its role, or the one that the sql has set.");
	sweep_batch_fail(run, error);
}

/* Only the first ones are kept, because they are in the row of the run. */
static void
note_tags(Script *script)
{
	SweepRun   *run = script->run;
	int			count = (int) Min(run->state.loop.batches, SWEEP_DETAIL_MAX_ELEMENTS);
	StringInfoData json;

	if (count == 0)
		return;
	initStringInfo(&json);
	for (int i = 0; i < count; i++)
	{
		appendStringInfoString(&json, i == 0 ? "{\"tags\": [" : ", ");
		escape_json(&json, script->tags[i]);
	}
	appendStringInfoString(&json, "]}");
	run->state.detail = sweep_detail_merge(run->state.detail, sweep_detail_read(json.data), run->context);
}
