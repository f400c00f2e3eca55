/*
 * utility.c
 *		Stops processes that would block commands which need a database, or the extension, exclusively.
 *
 * DROP DATABASE, ALTER DATABASE ... RENAME and SET TABLESPACE, and CREATE DATABASE with a template wait five seconds for other
 * sessions to leave the database and then fail. A scheduler would never leave. The session that executes such a command therefore
 * takes a lock that keeps the launcher from starting a scheduler there, asks the scheduler to leave, and waits until it has. Runs
 * in progress are not stopped: the command fails at once with an error that says so.
 *
 * ALTER EXTENSION pg_sweep UPDATE first locks the extension as DROP EXTENSION does, so that no process of pg_sweep executes
 * statements while the tables change, see txn.c. Extensions that require pg_sweep are locked, too: otherwise DROP EXTENSION,
 * which needs the tables of both, could deadlock with a batch that uses their tables.
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_database.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_type.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "storage/lmgr.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"

#include "api/utility.h"
#include "base/ask.h"
#include "base/clock.h"
#include "base/extension.h"
#include "base/lock.h"
#include "base/session_lock.h"
#include "base/shared.h"
#include "base/sql.h"
#include "base/worker.h"
#include "queue/queue.h"

/* PostgreSQL waits as long for sessions to leave; a scheduler needs milliseconds. */
#define LEAVE_TIMEOUT_MS 5000

static SweepStatement requires_sql = {
	.text = "SELECT FROM pg_catalog.pg_depend d WHERE d.classid = 'pg_catalog.pg_extension'::pg_catalog.regclass AND d.objid = $1 AND d.refclassid = d.classid AND d.refobjid = $2",
	.types = {OIDOID, OIDOID}};

static ProcessUtility_hook_type previous_hook = NULL;

static void before_utility(PlannedStmt *plan, const char *query, bool read_only_tree, ProcessUtilityContext context,
						   ParamListInfo params, QueryEnvironment *environment, DestReceiver *destination,
						   QueryCompletion *completion);
static bool ends_prepared(const Node *statement);
static void require_owner(const char *name);
static void spare_tables(const Node *statement);
static void spare_all(const List *elements);
static void spare(const RangeVar *name);
static void lock_extension(const char *name);
static bool is_required(Oid by, Oid extension);
static const char *wanted_database(Node *statement, bool *force);
static const char *option_text(List *options, const char *name);
static void clear_database(Oid database, const char *name, bool force);
static int	ask_to_leave(Oid database, bool force, ProcNumber *scheduler);
static bool scheduler_is_there(Oid database);

void
sweep_utility_install_hook(void)
{
	previous_hook = ProcessUtility_hook;
	ProcessUtility_hook = before_utility;
}

static void
before_utility(PlannedStmt *plan, const char *query, bool read_only_tree, ProcessUtilityContext context,
			   ParamListInfo params, QueryEnvironment *environment, DestReceiver *destination,
			   QueryCompletion *completion)
{
	Node	   *statement = plan->utilityStmt;
	bool		drops_extension = IsA(statement, DropStmt) && castNode(DropStmt, statement)->removeType == OBJECT_EXTENSION;
	/* DISCARD ALL: connection pools execute it before they give a connection to the next client. */
	bool		discards = IsA(statement, DiscardStmt) && castNode(DiscardStmt, statement)->target == DISCARD_ALL;
	bool		drops_database = IsA(statement, DropdbStmt);
	bool		ended_prepared = ends_prepared(statement);
	bool		force = false;
	const char *name = wanted_database(statement, &force);
	Oid			database = name != NULL ? get_database_oid(name, true) : InvalidOid;
	Oid			messages = InvalidOid;

	/* For a role without the right no scheduler is stopped; the command raises the error. */
	if (OidIsValid(database) && database != MyDatabaseId &&
		sweep_database_is_owned(database, GetUserId()))
		clear_database(database, name, force);
	if (IsA(statement, AlterExtensionStmt))
		lock_extension(castNode(AlterExtensionStmt, statement)->extname);
	if (drops_extension)
	{
		ListCell   *cell;

		foreach(cell, castNode(DropStmt, statement)->objects)
		{
			require_owner(strVal(lfirst(cell)));
			lock_extension(strVal(lfirst(cell)));
		}
	}
	if (IsA(statement, AlterObjectDependsStmt))
		require_owner(strVal(castNode(AlterObjectDependsStmt, statement)->extname));
	spare_tables(statement);
	if (IsA(statement, DropStmt) || IsA(statement, DropOwnedStmt))
		messages = get_relname_relid("queue_message", get_namespace_oid("sweep", true));

	if (previous_hook)
		previous_hook(plan, query, read_only_tree, context, params, environment, destination, completion);
	else
		standard_ProcessUtility(plan, query, read_only_tree, context, params, environment, destination, completion);

	/* "statement" is not used from here on: a CALL that has rolled back may have freed it. */
	if (discards)
		sweep_session_lock_release_taken();
	if (name != NULL)
		sweep_shared_wake_launcher(false);
	sweep_queue_note_dropped(drops_database ? database : InvalidOid, messages);
	/* Wakes the scheduler, which exits when the extension is gone. */
	if (drops_extension)
		sweep_worker_wake_at_commit();
	if (ended_prepared)
	{
		sweep_queue_settle_prepared();
		sweep_ask_for_prepared();
	}
}

static bool
ends_prepared(const Node *statement)
{
	TransactionStmtKind kind = IsA(statement, TransactionStmt) ? ((const TransactionStmt *) statement)->kind : TRANS_STMT_BEGIN;

	return kind == TRANS_STMT_COMMIT_PREPARED || kind == TRANS_STMT_ROLLBACK_PREPARED;
}

/*
 * PostgreSQL locks an extension against all others before it checks the right to drop it, and any role may have its own objects depend
 * on it, with the same lock until its transaction ends. No run could go on meanwhile.
 */
static void
require_owner(const char *name)
{
	Oid			ours = get_extension_oid("pg_sweep", true);

	if (OidIsValid(ours) && get_extension_oid(name, true) == ours && !sweep_extension_is_owned(ours, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_EXTENSION, name);
}

/*
 * PostgreSQL also locks a table before it checks the right to make a trigger or a rule on it, to refer to it, to attach it, to make a
 * partition of it, or to have an index depend on an extension. While such a statement waits for an open transaction, all writers of
 * the table would wait behind it. The tables of the extension are refused before.
 */
static void
spare_tables(const Node *statement)
{
	if (IsA(statement, CreateTrigStmt))
		spare(((const CreateTrigStmt *) statement)->relation);
	else if (IsA(statement, AlterObjectDependsStmt))
		spare(((const AlterObjectDependsStmt *) statement)->relation);
	else if (IsA(statement, RuleStmt))
		spare(((const RuleStmt *) statement)->relation);
	else if (IsA(statement, CreateStmt) || IsA(statement, CreateForeignTableStmt))
	{
		/* A CreateForeignTableStmt begins with one. */
		spare_all(((const CreateStmt *) statement)->tableElts);
		spare_all(((const CreateStmt *) statement)->inhRelations);
	}
	else if (IsA(statement, AlterTableStmt))
		spare_all(((const AlterTableStmt *) statement)->cmds);
}

static void
spare_all(const List *elements)
{
	const ListCell *cell;

	foreach(cell, elements)
	{
		const Node *element = lfirst(cell);

		if (IsA(element, AlterTableCmd))
			element = ((const AlterTableCmd *) element)->def;
		if (element == NULL)
			continue;
		if (IsA(element, Constraint))
			spare(((const Constraint *) element)->pktable);
		else if (IsA(element, PartitionCmd))
			spare(((const PartitionCmd *) element)->name);
		else if (IsA(element, RangeVar))
			spare((const RangeVar *) element);
		else if (IsA(element, ColumnDef))
			spare_all(((const ColumnDef *) element)->constraints);
	}
}

static void
spare(const RangeVar *name)
{
	Oid			table;

	/* The role may have no right on another schema, in which PostgreSQL may look up nothing either, as with IF NOT EXISTS. */
	if (name == NULL || (name->schemaname != NULL && strcmp(name->schemaname, "sweep") != 0))
		return;
	table = RangeVarGetRelid(name, NoLock, true);
	if (OidIsValid(table) && sweep_extension_find() && get_rel_namespace(table) == sweep_extension()->schema &&
		!sweep_extension_is_owned(sweep_extension()->id, GetUserId()))
		aclcheck_error(ACLCHECK_NO_PRIV, get_rel_relkind(table) == RELKIND_INDEX ? OBJECT_INDEX : OBJECT_TABLE, name->relname);
}

/* Locks pg_sweep when the extension is pg_sweep or requires it. */
static void
lock_extension(const char *name)
{
	Oid			ours = get_extension_oid("pg_sweep", true);
	Oid			other = get_extension_oid(name, true);

	if (OidIsValid(ours) && OidIsValid(other) && superuser() && (other == ours || (sweep_extension_find() && is_required(other, ours))))
		LockDatabaseObject(ExtensionRelationId, ours, 0, AccessExclusiveLock);
}

static bool
is_required(Oid by, Oid extension)
{
	bool		found;

	sweep_sql_connect();
	found = sweep_sql_execute(&requires_sql, (Datum[]) {ObjectIdGetDatum(by), ObjectIdGetDatum(extension)}, NULL) > 0;
	sweep_sql_end_call();
	return found;
}

/* The database in which the command does not allow other sessions, or NULL. */
static const char *
wanted_database(Node *statement, bool *force)
{
	switch (nodeTag(statement))
	{
		case T_DropdbStmt:
			{
				ListCell   *cell;

				foreach(cell, castNode(DropdbStmt, statement)->options)
					*force |= strcmp(lfirst_node(DefElem, cell)->defname, "force") == 0;
				return castNode(DropdbStmt, statement)->dbname;
			}
		case T_RenameStmt:
			if (castNode(RenameStmt, statement)->renameType != OBJECT_DATABASE)
				return NULL;
			return castNode(RenameStmt, statement)->subname;
		case T_AlterDatabaseStmt:
			if (option_text(castNode(AlterDatabaseStmt, statement)->options, "tablespace") == NULL)
				return NULL;
			return castNode(AlterDatabaseStmt, statement)->dbname;
		case T_CreatedbStmt:
			/* Without the option it is template1, where no scheduler is started. */
			return option_text(castNode(CreatedbStmt, statement)->options, "template");
		default:
			return NULL;
	}
}

static const char *
option_text(List *options, const char *name)
{
	ListCell   *cell;

	foreach(cell, options)
	{
		DefElem    *option = lfirst_node(DefElem, cell);

		if (strcmp(option->defname, name) == 0 && option->arg != NULL)
			return defGetString(option);
	}
	return NULL;
}

static void
clear_database(Oid database, const char *name, bool force)
{
	SweepShared *shared = sweep_shared();
	int64		deadline_us = sweep_monotonic_us() + LEAVE_TIMEOUT_MS * INT64CONST(1000);
	ProcNumber	scheduler;
	int			runs;

	/* The launcher checks this lock after it has claimed an entry; the entry is looked for here after the lock: one sees the other. */
	sweep_lock_hold_database(database);
	runs = ask_to_leave(database, force, &scheduler);
	if (runs > 0 && !force)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("database \"%s\" is being used by pg_sweep", name),
				 errdetail_plural("There is %d run in progress in it.", "There are %d runs in progress in it.", runs, runs),
				 errhint("Wait for it to end, or stop it with sweep.cancel() in that database.")));
	sweep_shared_wake(scheduler);
	sweep_shared_lock(LW_SHARED);
	sweep_shared_dismiss(database, -1, PG_INT32_MAX);
	sweep_shared_unlock();
	ConditionVariablePrepareToSleep(&shared->changed);
	while ((scheduler_is_there(database) || sweep_shared_any_consumer(database, false)) && sweep_monotonic_us() < deadline_us)
		(void) ConditionVariableTimedSleep(&shared->changed, LEAVE_TIMEOUT_MS / 10, sweep_wait_event(SWEEP_WAIT_IDLE));
	ConditionVariableCancelSleep();
}

/*
 * Returns the number of runs in progress. If there are none, or with "force", asks the scheduler to leave, under the same lock, so
 * that it starts no run in between.
 */
static int
ask_to_leave(Oid database, bool force, ProcNumber *scheduler)
{
	SweepShared *shared = sweep_shared();
	SweepDatabase *entry;
	int			runs = 0;

	*scheduler = INVALID_PROC_NUMBER;
	sweep_shared_lock(LW_EXCLUSIVE);
	for (int i = 0; i < shared->slot_count; i++)
	{
		SweepSlot  *slot = &shared->slots[i];

		if (slot->database != database || slot->consumer_id != 0)
			continue;
		/* Frees a slot that is only wanted; the scheduler that finds this run next may claim another one for it. */
		if (slot->state == SLOT_WANTED)
		{
			sweep_shared_unclaim(slot);
			(void) sweep_shared_ask(database);
		}
		runs += slot->state == SLOT_STARTING || slot->state == SLOT_RUNNING;
	}
	entry = runs == 0 || force ? sweep_shared_find_database(database) : NULL;
	if (entry != NULL)
	{
		entry->leave = true;
		*scheduler = entry->procno;
	}
	sweep_shared_unlock();
	return runs;
}

static bool
scheduler_is_there(Oid database)
{
	bool		there = false;

	sweep_shared_lock(LW_SHARED);
	for (int i = 0; i < sweep_shared_database_count(); i++)
	{
		const SweepDatabase *entry = sweep_shared_database(i);

		/* A scheduler that is leaving may still be connected. */
		there |= entry->database == database && (entry->state == DATABASE_STARTING || entry->procno != INVALID_PROC_NUMBER);
	}
	sweep_shared_unlock();
	return there;
}
