/*
 * remote.c
 *		Other servers that a commit reaches: servers that commit together with this one, and the synchronous standby.
 *
 * Called by batch.c and consumer_handle.c around their commits, and by watch.c. A crash of this server may undo a commit that did not wait
 * for the disk, but not the commit of another server. The engine therefore has to know whether another server commits with a transaction.
 *
 * Citus commits on its workers in two phases, and the commit record of this server decides for them. But if the transaction has written on
 * only one worker, that worker commits before this server, and a crash in between loses the part of this server. Citus has a function that
 * requests two phases in this case, too, and one that says whether the transaction is distributed; they are called by name if Citus is
 * loaded and has them. No function says whether a foreign data wrapper has an open transaction. But its library, like that of dblink, is
 * loaded at the first use, so a process without such a library has used none. A preloaded library counts as used.
 *
 * A request to cancel, or to end the process, ends the wait for a standby: the transaction is then committed only here until
 * the standby has caught up. PostgreSQL only sends a WARNING, which a program cannot rely on.
 */
#include "postgres.h"

#include <link.h>

#include "access/xact.h"
#include "access/xlog.h"
#include "common/string.h"
#include "fmgr.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"
#include "storage/lwlock.h"

#include "base/compat.h"
#include "base/remote.h"

/* State of the check of loaded libraries; PostgreSQL never unloads one. */
static struct
{
	unsigned long long seen;	/* number of loaded libraries at the last check of all */
	unsigned long long loaded;	/* number of loaded libraries now */
	bool		has_citus;
	bool		has_wrapper;
} libraries;

static int	look_at_library(struct dl_phdr_info *library, size_t size, void *arg);
static bool prepare_citus(void);

bool
sweep_remote_prepare_commit(void)
{
	if (dl_iterate_phdr(look_at_library, NULL) == 0)
		libraries.seen = libraries.loaded;
	return (libraries.has_citus && prepare_citus()) || libraries.has_wrapper;
}

/* Each entry has the number of libraries ever loaded, so the first entry ends the check when there is no new library. */
static int
look_at_library(struct dl_phdr_info *library, size_t size, void *arg)
{
	libraries.loaded = library->dlpi_adds;
	if (libraries.loaded == libraries.seen)
		return 1;
	libraries.has_wrapper |= pg_str_endswith(library->dlpi_name, "_fdw" DLSUFFIX) || pg_str_endswith(library->dlpi_name, "/dblink" DLSUFFIX);
	libraries.has_citus |= pg_str_endswith(library->dlpi_name, "/citus" DLSUFFIX);
	return 0;
}

/* Whether this is a distributed transaction, which then commits in two phases. */
static bool
prepare_citus(void)
{
	static bool (*is_distributed) (void) = NULL;
	static void (*use_two_phases) (void) = NULL;
	static bool looked_up = false;

	if (!looked_up)
	{
		is_distributed = (bool (*) (void)) load_external_function("$libdir/citus", "InCoordinatedTransaction", false, NULL);
		use_two_phases = (void (*) (void)) load_external_function("$libdir/citus", "Use2PCForCoordinatedTransaction", false, NULL);
	}
	looked_up = true;
	if (is_distributed != NULL && !is_distributed())
		return false;
	if (use_two_phases != NULL)
		use_two_phases();
	return true;
}

int
sweep_remote_standby_mode(void)
{
	/* In a build for an older minor release this is always true on a newer server; the caller has checked synchronous_standby_names. */
	if (!SyncRepRequested() || !sweep_sync_standbys_defined())
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
sweep_remote_has_confirmed(int awaited)
{
	bool		confirmed;

	if (awaited == SYNC_REP_NO_WAIT)
		return true;
	LWLockAcquire(SyncRepLock, LW_SHARED);
	/* When synchronous_standby_names is emptied, waiting commits go on. */
	confirmed = !sweep_sync_standbys_defined() || WalSndCtl->lsn[awaited] >= XactLastCommitEnd;
	LWLockRelease(SyncRepLock);
	return confirmed;
}
