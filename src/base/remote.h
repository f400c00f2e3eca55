/*
 * remote.h
 *		Other servers that a commit reaches: servers that commit together with this one, and the synchronous standby.
 */
#ifndef SWEEP_REMOTE_H
#define SWEEP_REMOTE_H

#include "postmaster/interrupt.h"
#include "replication/syncrep.h"

/*
 * Whether other servers may commit with this transaction: workers of Citus, and servers to which a foreign data wrapper or
 * dblink may have connected in this process. Called last in a transaction that has executed code of a job or a handler; makes
 * servers that can do so commit in two phases.
 */
extern bool sweep_remote_prepare_commit(void);

/*
 * The standby confirmation that the commit of this transaction waits for, as a wait mode of syncrep.h; a constant if there are no
 * standbys. A commit uses the shared memory of the server, which may be newer than the settings of this process.
 */
extern int	sweep_remote_standby_mode(void);
#define sweep_remote_awaits() \
	(ConfigReloadPending || (SyncRepStandbyNames != NULL && SyncRepStandbyNames[0] != '\0') ? \
	 sweep_remote_standby_mode() : SYNC_REP_NO_WAIT)

/* Whether the confirmation that the last commit of this process waited for has come: a request to cancel ends the wait without it. */
extern bool sweep_remote_has_confirmed(int awaited);

#endif							/* SWEEP_REMOTE_H */
