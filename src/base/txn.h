/*
 * txn.h
 *		Transactions of the engine; only here errors are caught.
 */
#ifndef SWEEP_TXN_H
#define SWEEP_TXN_H

#include "base/sql.h"

/* The end of a transaction. */
typedef enum SweepTxnEnd
{
	TXN_COMMITTED,
	TXN_FAILED,					/* rolled back, with an error */
	TXN_STOPPED,				/* not done: is_stopped() returned true while the extension was locked */
	TXN_ABSENT,					/* not done: this database does not have the extension */
} SweepTxnEnd;

/* Work of a room at the end of a transaction; each function may be NULL. */
typedef struct SweepTxnHook
{
	void		(*before_commit) (void *arg);	/* after deferred triggers; may raise */
	void		(*after_abort) (void *arg);
	void	   *arg;
	struct SweepTxnHook *next;
} SweepTxnHook;

/* Options of a transaction. All zero: one try, without waiting. */
typedef struct SweepTxnPolicy
{
	MemoryContext error_context;	/* for the error; must survive the transaction */
	void	   *owner;			/* argument of the two functions */
	void		(*begin) (void *owner); /* before the work, in the transaction; may be NULL */
	bool		waits;			/* waits while another transaction alters or drops the extension; otherwise that is a failure */
	bool		(*is_stopped) (void *owner);	/* called while it waits; NULL = never stopped */
	bool		required;		/* an absent extension is a failure */
	int			tries;			/* number of tries after serialization failures */
	SweepTxnHook *hooks;
} SweepTxnPolicy;

/* Number of tries for a role whose transactions are serializable. */
#define SWEEP_TXN_SERIALIZATION_TRIES 20

/*
 * Calls work in a transaction of its own and commits it. No other transaction can alter or drop the extension meanwhile.
 * Sets *error only with TXN_FAILED.
 */
extern SweepTxnEnd sweep_txn_execute(const SweepTxnPolicy *policy, SweepWork work, void *arg, ErrorData **error);

/* Within CALL, the same without a lock on the extension. If work fails, rolls back and returns false with the error. */
extern bool sweep_txn_execute_in_call(SweepWork work, void *arg, MemoryContext error_context, ErrorData **error);

/*
 * In a worker: calls work that begins and ends transactions itself. If work fails, rolls back an open transaction and
 * returns false with the error.
 */
extern bool sweep_txn_catch(SweepWork work, void *arg, MemoryContext error_context, ErrorData **error);

/*
 * Calls work in a subtransaction, and rolls it back unless work succeeds and "keeps" is set. Returns the error of the
 * work, in the current memory context, or NULL.
 */
extern ErrorData *sweep_txn_savepoint(SweepWork work, void *arg, bool keeps);

/* Calls work, and if that raises an error, calls undo, which must not raise one, and raises the error again. */
extern void sweep_txn_undo_on_error(SweepWork work, SweepWork undo, void *arg);

/*
 * Calls work of the engine for a call of a user. Its errors have the CONTEXT lines of the caller and of the user's
 * code that work has executed, but not those of the engine.
 */
extern void sweep_txn_hide_context(SweepWork work, void *arg);

#endif							/* SWEEP_TXN_H */
