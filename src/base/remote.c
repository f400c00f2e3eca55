/*
 * remote.c
 *		Other servers that a commit reaches: those that commit with it, and the synchronous standby.
 *
 * Called by batch.c and consumer_handle.c around their commits, and by watch.c. A commit that does not wait for the disk may be
 * undone by a crash of this server; the commit of another server is not undone with it. The engine has to know whether one does.
 *
 * Citus commits on its workers in two phases, and the record of our commit decides for them, unless the transaction has
 * written on one worker alone: that one commits before us, and a crash in between loses our part. Citus has a function that
 * asks for two phases all the same, and one that says whether the transaction is distributed; they are called by name
 * where Citus is loaded and has them. No function says which foreign data wrapper has an open transaction. But their
 * libraries, and that of dblink, are loaded when they are used first: a process without one has used none. A library that is
 * preloaded counts as used.
 *
 * A request to cancel, or to end the process, ends the wait for a standby: then the transaction is committed here and, until
 * its standby has caught up, here alone. PostgreSQL tells by a WARNING, which a program cannot rely on.
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

/* The libraries of this process, none of which is ever unloaded. */
static struct
{
	unsigned long long seen;	/* number of libraries loaded when all were looked at */
	unsigned long long loaded;	/* the same now */
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

/* Each entry has the number of libraries ever loaded: the first one ends the look when no library is new. */
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
	/* A library built for an older minor release finds this always true on a newer server; the caller has looked at the names. */
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
	/* Without names of standbys all commits go on. */
	confirmed = !sweep_sync_standbys_defined() || WalSndCtl->lsn[awaited] >= XactLastCommitEnd;
	LWLockRelease(SyncRepLock);
	return confirmed;
}
