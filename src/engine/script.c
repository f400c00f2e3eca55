/*
 * script.c
 *		Executes the statements of a job with sql, once, as psql would execute them from a file.
 *
 * Called by run.c, in a worker only. In SPI a statement is part of another one: there VACUUM and CREATE INDEX
 * CONCURRENTLY are refused, and a procedure cannot commit. Here each statement is executed as in a session: it is analysed
 * and planned, and a portal without a name executes it as a command of the top level, which may end the transaction that was
 * begun for it and begin others. Nothing of the engine is around it: no SPI, no snapshot, no subtransaction.
 *
 * The work of a statement is committed before it can be recorded; a crash in between makes a run 'lost' that has done its work.
 * The extension may be altered or dropped meanwhile; each transaction checks first that it is still there.
 *
 * The statements have the session for themselves: the settings of the role and of the job, only their own time limits, and
 * a setting of one is in force for the next. The session is reset before the end of the run is recorded. The first error
 * ends the run, and rolls back the transaction block in which it has occurred.
 *
 * Two memory contexts: that of the batch has the parsed statements, a child of it what one statement needs, which outlives
 * the transactions that the statement itself begins and ends.
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

/* Length of a statement that is shown with an error, in bytes. */
#define SHOWN_BYTES 240

typedef struct Script
{
	SweepRun   *run;
	MemoryContext context;		/* of the run */
	MemoryContext statement_context;
	char	   *text;			/* of the statement in progress; NULL = none */
	int64		number;			/* of that statement, from 1 */
	SweepLoop	committed;		/* the counts when no transaction block was open last */
	char	   *tags[SWEEP_DETAIL_MAX_ELEMENTS];	/* of the first statements */
	bool		absent;			/* this database has no extension any more */
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

/* All of the text is parsed before any of it is executed, and each statement analysed when those before it are done. */
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
	/* A run that the statement before has called turns it off. */
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
		/* A statement that writes rows sets nothing by itself: code of other roles has, which its cascades have called. */
		if (meaning != NULL)
			sweep_door_put_back(meaning, run->run_as, GUC_ACTION_SET);
		sweep_timers_disarm_statement(run);
		sweep_batch_require_lock(run);
	}
	/* Commits, unless the statement has left a block open, or ends the block as the statement has said. */
	CommitTransactionCommand();

	error_context_stack = callback.previous;
	MemoryContextSwitchTo(script->statement_context);
	if (!script->absent)
		count_statement(script, &completion);
}

/* By itself or in its WITH. */
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
 * Its result is discarded row by row. The source, the statement and the current memory context outlive all
 * transactions that the statement begins.
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

/* A command that begins transactions itself must find no snapshot. */
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

/* The tag is that of a client, "INSERT 0 5". The statements of a block are committed with it, or not at all. */
static void
count_statement(Script *script, const QueryCompletion *completion)
{
	SweepRun   *run = script->run;
	bool		has_rows = command_tag_display_rowcount(completion->commandTag);
	const char *name = GetCommandTagName(completion->commandTag);
	/* The zero once was the OID of a row. */
	const char *zero = completion->commandTag == CMDTAG_INSERT ? "0 " : "";
	const char *tag = has_rows ? psprintf("%s %s" UINT64_FORMAT, name, zero, completion->nprocessed) : name;

	if (script->number <= SWEEP_DETAIL_MAX_ELEMENTS)
		script->tags[script->number - 1] = MemoryContextStrdup(script->context, tag);
	sweep_loop_add_rows(&run->state.loop, has_rows ? (int64) completion->nprocessed : 0);
	/* No limit can end the run here. */
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

/* The first ones only: they are kept in the row of the run. */
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
