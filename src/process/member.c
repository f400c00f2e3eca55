/*
 * member.c
 *		Makes a role a member of sweep_client in a transaction of its own.
 *
 * Called by sweep.grant_queue(). Otherwise the membership would be uncommitted as long as the caller's transaction is open,
 * and every other session that grants it to that role, in any database, would wait. A background worker adds the membership
 * and ends. If the caller's transaction is rolled back, the membership remains; alone it gives no privilege on any queue.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/inval.h"
#include "utils/memutils.h"

#include "base/txn.h"
#include "base/worker.h"

/* Does nothing for a role that only the transaction of the caller can see. */
static SweepStatement add_member_sql = {
	.text = "SELECT sweep._add_member($1) FROM pg_catalog.pg_roles r WHERE r.oid = $1",
	.types = {OIDOID}};

/* Entry function of the process that adds the membership. */
extern PGDLLEXPORT void sweep_member_main(Datum arg);

PG_FUNCTION_INFO_V1(sweep_member_add_apart);

/* SQL: sweep._add_member_apart(role regrole) RETURNS void */
Datum
sweep_member_add_apart(PG_FUNCTION_ARGS)
{
	SweepWorkerArgs args = {.database = MyDatabaseId, .role = PG_GETARG_OID(0)};
	BackgroundWorkerHandle *handle;

	if (!sweep_worker_register("pg_sweep member", "pg_sweep member", "sweep_member_main", &args, &handle))
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("role \"%s\" cannot be made a member of sweep_client: no background worker is free",
						GetUserNameFromId(args.role, false)),
				 errhint("Try again, raise max_worker_processes, or have GRANT sweep_client executed by a role that may.")));
	(void) WaitForBackgroundWorkerShutdown(handle);
	AcceptInvalidationMessages();
	PG_RETURN_VOID();
}

void
sweep_member_main(Datum arg)
{
	SweepWorkerArgs args;
	Datum		role;
	ErrorData  *error = NULL;

	sweep_worker_args(&args);
	role = ObjectIdGetDatum(args.role);
	sweep_worker_begin();
	sweep_worker_connect_engine(args.database);
	/* The caller's own transaction may hold the lock; then this process gives up. */
	sweep_worker_set("lock_timeout", "2s");
	if (sweep_txn_execute(&(SweepTxnPolicy) {.error_context = TopMemoryContext}, sweep_sql_execute_work, &(SweepExecution) {&add_member_sql, &role, NULL}, &error) == TXN_FAILED)
		ereport(LOG,
				(errcode(error->sqlerrcode),
				 errmsg("pg_sweep could not add a member of sweep_client: %s", error->message)));
	proc_exit(0);
}
