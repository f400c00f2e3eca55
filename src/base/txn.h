/*
 * txn.h
 *		One transaction of the engine: what is done before its work, at its end, and when it fails.
 */
#ifndef SWEEP_TXN_H
#define SWEEP_TXN_H

#include "base/sql.h"

/* What became of it. */
typedef enum SweepTxnEnd
{
	TXN_COMMITTED,
	TXN_FAILED,					/* rolled back, with an error */
	TXN_STOPPED,				/* not done: is_stopped said so while the extension was locked */
	TXN_ABSENT,					/* not done: this database has no extension (any more) */
} SweepTxnEnd;

/* What a room must do at the end of transactions; each function may be NULL. */
typedef struct SweepTxnHook
{
	void		(*before_commit) (void *arg);	/* behind deferred triggers; may raise */
	void		(*after_abort) (void *arg);
	void	   *arg;
	struct SweepTxnHook *next;
} SweepTxnHook;

/* How somebody's transactions are done. All zero: once, without waiting. */
typedef struct SweepTxnPolicy
{
	MemoryContext error_context;	/* of the error; outlives the transaction */
	void	   *owner;			/* argument of the two functions */
	void		(*begin) (void *owner); /* before the work, in the transaction; may be NULL */
	bool		waits;			/* for whoever alters or drops the extension; else that is a failure */
	bool		(*is_stopped) (void *owner);	/* asked while it waits; NULL = never */
	bool		required;		/* that the extension is absent is a failure */
	int			tries;			/* how often, as long as it fails to be serialized */
	SweepTxnHook *hooks;
} SweepTxnPolicy;

/* So often a transaction is tried whose role has its transactions serialized. */
#define SWEEP_TXN_SERIALIZATION_TRIES 20

/*
 * Does the work in a transaction of its own, in which nobody alters or drops the extension, and commits it.
 * With TXN_FAILED, and only then, *error is set.
 */
extern SweepTxnEnd sweep_txn_execute(const SweepTxnPolicy *policy, SweepWork work, void *arg, ErrorData **error);

#endif							/* SWEEP_TXN_H */
