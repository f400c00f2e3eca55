/*
 * txn.c
 *		One transaction of the engine, with all that belongs to one.
 *
 * Called by whoever does work in the database: scheduler, notifier and consumers, the batches of a run, the
 * store of buckets. Each transaction first locks the extension, shared and without waiting: DROP EXTENSION
 * and ALTER EXTENSION UPDATE need every table of the extension for themselves, and would deadlock with
 * somebody in the middle of his statements. While somebody has it locked, the transaction is given up; the
 * process waits outside of any transaction, tries again, and then sees what became of the extension.
 *
 * What a room must do right before the commit, or when there is none, it hangs into the policy: so nothing
 * that stands below a batch has to know what stands above it.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/latch.h"

#include "base/compat.h"
#include "base/extension.h"
#include "base/txn.h"

/* So long a process waits before it tries to lock the extension again. */
#define PAUSE_MS 50L

/* One try. */
typedef struct Attempt
{
	const SweepTxnPolicy *policy;
	SweepWork	work;
	void	   *arg;
	bool		locked;			/* somebody alters or drops the extension */
	bool		absent;
} Attempt;

static void attempt_work(void *arg);
static void watch_commit(XactEvent event, void *arg);
static bool wait_for_extension(const SweepTxnPolicy *policy);

/* Those of the transaction in progress. */
static const SweepTxnHook *current_hooks = NULL;

SweepTxnEnd
sweep_txn_execute(const SweepTxnPolicy *policy, SweepWork work, void *arg, ErrorData **error)
{
	static bool registered = false;
	Attempt		attempt = {.policy = policy, .work = work, .arg = arg};

	if (policy->hooks != NULL && !registered)
	{
		RegisterXactCallback(watch_commit, NULL);
		registered = true;
	}
	for (int tries = 1;;)
	{
		bool		done;

		current_hooks = policy->hooks;
		done = sweep_sql_transaction(attempt_work, &attempt, policy->error_context, error);
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

/* No request to cancel keeps what the engine has to record from being begun; the work is free to heed one. */
static void
attempt_work(void *arg)
{
	Attempt    *attempt = arg;
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
	if (!attempt->absent)
		attempt->work(attempt->arg);
}

/* Between the end of the work and the commit there is more: triggers that were deferred. */
static void
watch_commit(XactEvent event, void *arg)
{
	/* An error that goes past this file must not leave them to the next transaction of the session. */
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

/* False when the owner is to stop. */
static bool
wait_for_extension(const SweepTxnPolicy *policy)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, PAUSE_MS, sweep_wait_event());
	ResetLatch(MyLatch);
	HOLD_CANCEL_INTERRUPTS();
	CHECK_FOR_INTERRUPTS();
	RESUME_CANCEL_INTERRUPTS();
	if (policy->is_stopped != NULL)
		return !policy->is_stopped(policy->owner);
	/* It was no request to cancel the work, which has not begun. */
	QueryCancelPending = false;
	return true;
}
