/*
 * txn.h
 *		Transactions of the engine, and the only place where errors are caught.
 */
#ifndef SWEEP_TXN_H
#define SWEEP_TXN_H

#include "base/sql.h"

/* The end of a transaction. */
typedef enum SweepTxnEnd
{
	TXN_COMMITTED,
	TXN_FAILED,					/* rolled back, with an error */
	TXN_STOPPED,				/* not done: is_stopped said so while the extension was locked */
	TXN_ABSENT,					/* not done: this database has no extension */
} SweepTxnEnd;

/* Work of a room at the end of a transaction; each function may be NULL. */
typedef struct SweepTxnHook
{
	void		(*before_commit) (void *arg);	/* behind deferred triggers; may raise */
	void		(*after_abort) (void *arg);
	void	   *arg;
	struct SweepTxnHook *next;
} SweepTxnHook;

/* How a transaction is done. All zero: once, without waiting. */
typedef struct SweepTxnPolicy
{
	MemoryContext error_context;	/* of the error; outlives the transaction */
	void	   *owner;			/* argument of the two functions */
	void		(*begin) (void *owner); /* before the work, in the transaction; may be NULL */
	bool		waits;			/* until another transaction has altered or dropped the extension; else that is a failure */
	bool		(*is_stopped) (void *owner);	/* asked while it waits; NULL = never */
	bool		required;		/* an absent extension is a failure */
	int			tries;			/* number of tries while it cannot be serialized */
	SweepTxnHook *hooks;
} SweepTxnPolicy;

/* Number of tries for a role whose transactions are serializable. */
#define SWEEP_TXN_SERIALIZATION_TRIES 20

/*
 * Does the work in a transaction of its own and commits it. No other transaction alters or drops the extension meanwhile.
 * Sets *error with TXN_FAILED, and only then.
 */
extern SweepTxnEnd sweep_txn_execute(const SweepTxnPolicy *policy, SweepWork work, void *arg, ErrorData **error);

/* Within CALL, the same without a lock on the extension. When the work fails: rolls back, and returns false with the error. */
extern bool sweep_txn_execute_in_call(SweepWork work, void *arg, MemoryContext error_context, ErrorData **error);

/*
 * In a worker: does work that begins and ends transactions itself. When it fails: rolls back what it has left open, and
 * returns false with the error.
 */
extern bool sweep_txn_catch(SweepWork work, void *arg, MemoryContext error_context, ErrorData **error);

/*
 * Does work in a subtransaction, and rolls that back unless the work succeeds and "keeps" is set. Returns the error of
 * the work, in the current memory context, or NULL.
 */
extern ErrorData *sweep_txn_savepoint(SweepWork work, void *arg, bool keeps);

/* Does the work, and undoes it, without an error, where it raises. */
extern void sweep_txn_undo_on_error(SweepWork work, SweepWork undo, void *arg);

/*
 * Does work of the engine for a call of a user. Its error is raised without the lines of CONTEXT that tell of the
 * engine, but with those of the caller and of code of the user that the work has executed.
 */
extern void sweep_txn_hide_context(SweepWork work, void *arg);

#endif							/* SWEEP_TXN_H */
