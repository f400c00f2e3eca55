/*
 * standby.c
 *		Whether the commit of a transaction waits for a synchronous standby, and whether that has it.
 *
 * Called by batch.c and consumer_handle.c around their commits. A request to cancel, or to end the process, ends the
 * wait: then the transaction is committed here and, until its standby has caught up, here alone. PostgreSQL says so by a WARNING,
 * which is no way for a program to know.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "replication/syncrep.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"
#include "storage/lwlock.h"

#include "base/compat.h"
#include "base/standby.h"

int
sweep_standby_awaited(void)
{
	/* A library built for an older minor release reads a byte here that is never 0 on a newer server: hence the names as well. */
	if (!SyncRepRequested() || SyncRepStandbyNames[0] == '\0' || !sweep_sync_standbys_defined())
		return SYNC_REP_NO_WAIT;
	switch (synchronous_commit)
	{
		case SYNCHRONOUS_COMMIT_REMOTE_WRITE:
			return SYNC_REP_WAIT_WRITE;
		case SYNCHRONOUS_COMMIT_REMOTE_APPLY:
			return SYNC_REP_WAIT_APPLY;
		default:
			return SYNC_REP_WAIT_FLUSH;
	}
}

bool
sweep_standby_has_confirmed(int awaited)
{
	bool		confirmed;

	if (awaited == SYNC_REP_NO_WAIT)
		return true;
	LWLockAcquire(SyncRepLock, LW_SHARED);
	/* Without names of standbys all commits go on. */
	confirmed = !sweep_sync_standbys_defined() || WalSndCtl->lsn[awaited] >= XactLastCommitEnd;
	LWLockRelease(SyncRepLock);
	return confirmed;
}
