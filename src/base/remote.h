/*
 * remote.h
 *		Other servers that a commit reaches: those that commit with it, and the synchronous standby.
 */
#ifndef SWEEP_REMOTE_H
#define SWEEP_REMOTE_H

#include "postmaster/interrupt.h"
#include "replication/syncrep.h"

/*
 * Whether other servers commit with this transaction, as far as it can be known: those of Citus, and those that a foreign data
 * wrapper or dblink has talked to in this process. Called last in a transaction that has executed code of a job or a handler;
 * where the other servers can commit in two phases, it has them do so.
 */
extern bool sweep_remote_prepare_commit(void);

/*
 * The confirmation that the commit of this transaction waits for, as the wait mode of syncrep.h; a constant where there are no standbys.
 * A commit goes by the shared memory of the server, which may be ahead of the settings of this process.
 */
extern int	sweep_remote_standby_mode(void);
#define sweep_remote_awaits() \
	(ConfigReloadPending || (SyncRepStandbyNames != NULL && SyncRepStandbyNames[0] != '\0') ? \
	 sweep_remote_standby_mode() : SYNC_REP_NO_WAIT)

/* Whether the last commit of this process, which waited for that, was confirmed: a request to cancel ends the wait. */
extern bool sweep_remote_has_confirmed(int awaited);

#endif							/* SWEEP_REMOTE_H */
