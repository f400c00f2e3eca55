/*
 * txn.c
 *		Transactions of the engine: the only file that catches errors.
 *
 * Called by all files that work in the database: scheduler and consumers, the batches of a run, the store of buckets,
 * procedures. Each transaction first locks the extension, shared and without waiting: DROP EXTENSION and ALTER EXTENSION UPDATE
 * need every table of the extension for themselves, and would deadlock with a transaction that is in the middle of its
 * statements. While another transaction has the extension locked, this one is given up. The process waits outside of any
 * transaction and tries again; then it sees whether the extension still exists.
 *
 * A worker begins and ends its transactions itself. A session that executes CALL leaves that to SPI. There the work is a
 * subtransaction, so that a failure rolls back completely, and a commit follows.
 *
 * A room adds its work before the commit or after the abort to the policy as a hook, so that this file does not depend on rooms above.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/timeout.h"

#include "base/cancel.h"
#include "base/compat.h"
#include "base/door.h"
#include "base/extension.h"
#include "base/log_context.h"
#include "base/sql.h"
#include "base/txn.h"

/* Delay before the extension is locked again, in ms. */
#define PAUSE_MS 50L

/* Memory that suffices for the copy of any error, in bytes. */
#define ERROR_ROOM (16 * 1024 * 1024)

/* One try. */
typedef struct Attempt
{
	const SweepTxnPolicy *policy;	/* NULL = the extension is not locked */
	SweepWork	work;
	void	   *arg;
	bool		locked;			/* another transaction alters or drops the extension */
	bool		absent;
} Attempt;

static void transaction_work(void *arg);
static void do_work(Attempt *attempt);
static void lock_extension(Attempt *attempt);
static bool execute_in_call(Attempt *attempt, MemoryContext error_context, ErrorData **error);
static void call_hooks(XactEvent event, void *arg);
static bool wait_for_extension(const SweepTxnPolicy *policy);

/* Hooks of the current transaction. */
static const SweepTxnHook *current_hooks = NULL;

SweepTxnEnd
sweep_txn_execute(const SweepTxnPolicy *policy, SweepWork work, void *arg, ErrorData **error)
{
	static bool registered = false;
	Attempt		attempt = {.policy = policy, .work = work, .arg = arg};

	if (policy->hooks != NULL && !registered)
	{
		RegisterXactCallback(call_hooks, NULL);
		registered = true;
	}
	for (int tries = 1;;)
	{
		bool		done;

		current_hooks = policy->hooks;
		done = sweep_sql_in_call() ? execute_in_call(&attempt, policy->error_context, error) :
			sweep_txn_catch(transaction_work, &attempt, policy->error_context, error);
		current_hooks = NULL;
		if (done)
			return attempt.absent ? TXN_ABSENT : TXN_COMMITTED;
		for (const SweepTxnHook *hook = policy->hooks; hook != NULL; hook = hook->next)
		{
			if (hook->after_abort != NULL)
				hook->after_abort(hook->arg);
		}
		if (attempt.locked ? !policy->waits : (*error)->sqlerrcode != ERRCODE_T_R_SERIALIZATION_FAILURE || tries++ >= policy->tries)
			return TXN_FAILED;
		FreeErrorData(*error);
		*error = NULL;
		if (attempt.locked && !wait_for_extension(policy))
			return TXN_STOPPED;
	}
}

bool
sweep_txn_execute_in_call(SweepWork work, void *arg, MemoryContext error_context, ErrorData **error)
{
	return execute_in_call(&(Attempt) {.work = work, .arg = arg}, error_context, error);
}

static ErrorData *
copy_error(void)
{
	ErrorData  *error = CopyErrorData();

	sweep_log_context_cut(error);
	return error;
}

/*
 * The error is copied before the abort, because an error that was raised again from a copy, as by RAISE in an exception handler,
 * points into memory of the transaction. If no memory is left, the memory of the transaction is freed first; until then the error
 * is in ErrorContext, which survives the transaction.
 */
bool
sweep_txn_catch(SweepWork work, void *arg, MemoryContext error_context, ErrorData **error)
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
			*error = copy_error();
		}
		AbortOutOfAnyTransaction();
		MemoryContextSwitchTo(error_context);
		if (room == NULL)
			*error = copy_error();
		FlushErrorState();
		sweep_cancel_drop();
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
	/* A lock_timeout that fired when the lock was just granted must not end the next statement. */
	if (get_timeout_indicator(LOCK_TIMEOUT, true))
		sweep_cancel_drop();
	MemoryContextSwitchTo(caller_context);
	pgstat_report_stat(false);
	return done;
}

ErrorData *
sweep_txn_savepoint(SweepWork work, void *arg, bool keeps)
{
	MemoryContext caller_context = CurrentMemoryContext;
	ResourceOwner caller_owner = CurrentResourceOwner;
	ErrorData  *volatile error = NULL;

	BeginInternalSubTransaction(NULL);
	PG_TRY();
	{
		do_work(&(Attempt) {.work = work, .arg = arg});
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(caller_context);
		error = copy_error();
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

void
sweep_txn_undo_on_error(SweepWork work, SweepWork undo, void *arg)
{
	PG_TRY();
	{
		work(arg);
	}
	PG_CATCH();
	{
		undo(arg);
		PG_RE_THROW();
	}
	PG_END_TRY();
}

/* PG_CATCH and PG_END_TRY restore error_context_stack, so an error that is raised again gets the CONTEXT lines of the caller. */
void
sweep_txn_hide_context(SweepWork work, void *arg)
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
		error = copy_error();
		FlushErrorState();
		/* An object of the extension may be dropped after PostgreSQL has looked it up and before it is locked: that is an internal error. */
		if (ERRCODE_TO_CATEGORY(error->sqlerrcode) == ERRCODE_INTERNAL_ERROR && !sweep_extension_is_unchanged())
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_OBJECT),
					 errmsg("extension pg_sweep was altered or dropped during the call"),
					 errdetail("The look-up of one of its objects has failed: %s.", error->message)));
		sweep_door_raise_for_user(error);
	}
	PG_END_TRY();
}

/*
 * The transaction is a block, as after BEGIN. Otherwise an extension that forwards a statement to another server may
 * commit there with the statement and not with this transaction, as Citus does if one worker is enough.
 */
static void
transaction_work(void *arg)
{
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	BeginTransactionBlock();
	CommitTransactionCommand();
	StartTransactionCommand();
	if (sweep_log_context_is_pending)
		sweep_log_context_look_up();
	do_work(arg);
	(void) EndTransactionBlock(false);
	CommitTransactionCommand();
}

static void
do_work(Attempt *attempt)
{
	sweep_sql_connect();
	PushActiveSnapshot(GetTransactionSnapshot());
	if (attempt->policy != NULL)
		lock_extension(attempt);
	if (!attempt->absent)
		attempt->work(attempt->arg);
	PopActiveSnapshot();
	sweep_sql_end_call();
}

/* A request to cancel must not prevent the engine from recording; the work itself may process the request. */
static void
lock_extension(Attempt *attempt)
{
	const SweepTxnPolicy *policy = attempt->policy;

	HOLD_CANCEL_INTERRUPTS();
	attempt->locked = true;
	attempt->absent = !sweep_extension_lock();
	attempt->locked = false;
	if (policy->required)
		sweep_extension_require(!attempt->absent);
	if (!attempt->absent && policy->begin != NULL)
		policy->begin(policy->owner);
	RESUME_CANCEL_INTERRUPTS();
}

/*
 * If the commit fails, SPI aborts and keeps the error in the current memory context meanwhile, so that context must not
 * belong to the transaction.
 */
static bool
execute_in_call(Attempt *attempt, MemoryContext error_context, ErrorData **error)
{
	MemoryContext caller_context = CurrentMemoryContext;
	ResourceOwner caller_owner = CurrentResourceOwner;
	volatile bool in_work = true;
	volatile bool done = false;

	BeginInternalSubTransaction(NULL);
	PG_TRY();
	{
		do_work(attempt);
		ReleaseCurrentSubTransaction();
		CurrentResourceOwner = caller_owner;
		in_work = false;
		MemoryContextSwitchTo(error_context);
		sweep_sql_end_transaction();
		done = true;
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(error_context);
		*error = copy_error();
		FlushErrorState();
		if (in_work)
		{
			RollbackAndReleaseCurrentSubTransaction();
			CurrentResourceOwner = caller_owner;
		}
		sweep_cancel_drop();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(caller_context);
	return done;
}

/* PostgreSQL calls this after the deferred triggers, which are executed between the end of the work and the commit. */
static void
call_hooks(XactEvent event, void *arg)
{
	/* After an error that is not caught here, the hooks must not apply to the next transaction of the session. */
	if (event == XACT_EVENT_ABORT)
		current_hooks = NULL;
	if (event != XACT_EVENT_PRE_COMMIT)
		return;
	for (const SweepTxnHook *hook = current_hooks; hook != NULL; hook = hook->next)
	{
		if (hook->before_commit != NULL)
			hook->before_commit(hook->arg);
	}
}

/* Waits before the next try; false when the owner is to stop. */
static bool
wait_for_extension(const SweepTxnPolicy *policy)
{
	sweep_cancel_wait(PAUSE_MS, sweep_wait_event(SWEEP_WAIT_LOCK));
	if (policy->is_stopped != NULL)
		return !policy->is_stopped(policy->owner);
	/* A request to cancel does not concern the work, which has not begun. */
	sweep_cancel_drop();
	return true;
}
