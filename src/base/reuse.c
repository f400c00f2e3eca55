/*
 * reuse.c
 *		One worker for several runs of a role.
 *
 * A new process for each run costs more than most runs: it is forked, connects, reads the catalog and plans the
 * statements of the engine. While there are more runs than may be in progress, a worker whose run has succeeded
 * therefore stays for a moment, connected as its role to its database, and its slot is idle. Called by runner.c, in
 * the worker and in the scheduler.
 *
 * Two processes wake each other: the worker wakes the scheduler when it gives the slot back, as any run that ends does. The scheduler
 * claims the slot for another run, writes the definition of the run, hands it over and wakes the worker. A worker that has waited
 * long enough, or is terminated, checks under the lock whether its slot was claimed. If so, it takes the run, or leaves the run to
 * another process. It cannot free a claimed slot, because the scheduler may be writing to it. If a scheduler ends between claim and
 * hand-over, the next one gives the slot up when it is old (pool.c), and the worker sees that the slot is no longer its own.
 *
 * A process reads only at login whether its role may log in and is a superuser, and the settings of role and database.
 * It must not perform another run after any of these has changed.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_db_role_setting.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/lwlock.h"
#include "utils/fmgroids.h"
#include "utils/syscache.h"

#include "base/reuse.h"
#include "base/lock.h"

static uint64 add_cached(uint64 stamp, int cache, Oid object);
static uint64 add_settings(uint64 stamp, Relation settings, Oid database, Oid role);
static uint64 add_version(uint64 stamp, HeapTuple tuple);

bool
sweep_reuse_is_wanted(void)
{
	const SweepDatabase *entry;
	bool		wanted;

	sweep_shared_lock(LW_SHARED);
	entry = sweep_shared_find_database(MyDatabaseId);
	wanted = entry != NULL && entry->crowded && !entry->leave;
	sweep_shared_unlock();
	return wanted;
}

void
sweep_reuse_hand_over(SweepSlot *slot)
{
	ProcNumber	procno;

	sweep_shared_lock(LW_EXCLUSIVE);
	slot->handed_over = true;
	procno = slot->procno;
	sweep_shared_unlock();
	sweep_shared_wake(procno);
}

void
sweep_reuse_dismiss(void)
{
	SweepShared *shared = sweep_shared();
	ProcNumber	procno = INVALID_PROC_NUMBER;

	sweep_shared_lock(LW_EXCLUSIVE);
	for (int i = 0; i < shared->slot_count && procno == INVALID_PROC_NUMBER; i++)
	{
		SweepSlot  *slot = &shared->slots[i];

		if (slot->state != SLOT_IDLE)
			continue;
		/* The worker sees that the slot is no longer its own, and leaves. */
		slot->state = SLOT_FREE;
		procno = slot->procno;
	}
	sweep_shared_unlock();
	sweep_shared_wake(procno);
}

SweepReuse
sweep_reuse_look(SweepSlot *slot, bool time_over)
{
	SweepReuse	result = REUSE_LEAVE;

	sweep_shared_lock(LW_EXCLUSIVE);
	if (slot->procno == MyProcNumber && slot->state == SLOT_STARTING)
	{
		result = slot->handed_over ? REUSE_TAKEN : REUSE_NOT_YET;
		if (result == REUSE_TAKEN)
		{
			slot->state = SLOT_RUNNING;
			slot->pid = MyProcPid;
		}
	}
	else if (slot->procno == MyProcNumber && slot->state == SLOT_IDLE)
	{
		result = time_over ? REUSE_LEAVE : REUSE_NOT_YET;
		if (time_over)
			slot->state = SLOT_FREE;
	}
	sweep_shared_unlock();
	return result;
}

void
sweep_reuse_give_up(SweepSlot *slot)
{
	bool		claimed;

	sweep_shared_lock(LW_EXCLUSIVE);
	claimed = slot->procno == MyProcNumber && (slot->state == SLOT_STARTING || slot->state == SLOT_RUNNING);
	if (slot->procno == MyProcNumber && slot->state == SLOT_IDLE)
		slot->state = SLOT_FREE;
	if (claimed)
		slot->waits_on = true;
	sweep_shared_unlock();
	if (claimed)
		sweep_shared_release(slot, false, false);
}

uint64
sweep_reuse_login_stamp(void)
{
	Oid			role = GetAuthenticatedUserId();
	uint64		stamp;
	Relation	settings;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	stamp = add_cached(add_cached(0, AUTHOID, role), DATABASEOID, MyDatabaseId);
	settings = table_open(DbRoleSettingRelationId, AccessShareLock);
	stamp = add_settings(stamp, settings, MyDatabaseId, role);
	stamp = add_settings(stamp, settings, InvalidOid, role);
	stamp = add_settings(stamp, settings, MyDatabaseId, InvalidOid);
	stamp = add_settings(stamp, settings, InvalidOid, InvalidOid);
	table_close(settings, AccessShareLock);
	CommitTransactionCommand();
	return stamp | 1;
}

static uint64
add_cached(uint64 stamp, int cache, Oid object)
{
	HeapTuple	tuple = SearchSysCache1(cache, ObjectIdGetDatum(object));

	if (!HeapTupleIsValid(tuple))
		return hash_combine64(stamp, 1);
	stamp = add_version(stamp, tuple);
	ReleaseSysCache(tuple);
	return stamp;
}

static uint64
add_settings(uint64 stamp, Relation settings, Oid database, Oid role)
{
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&keys[0], Anum_pg_db_role_setting_setdatabase, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(database));
	ScanKeyInit(&keys[1], Anum_pg_db_role_setting_setrole, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(role));
	scan = systable_beginscan(settings, DbRoleSettingDatidRolidIndexId, true, NULL, 2, keys);
	tuple = systable_getnext(scan);
	stamp = HeapTupleIsValid(tuple) ? add_version(stamp, tuple) : hash_combine64(stamp, 1);
	systable_endscan(scan);
	return stamp;
}

/* Each change of a row writes a new version. VACUUM and in-place updates do not change the columns that matter here. */
static uint64
add_version(uint64 stamp, HeapTuple tuple)
{
	uint64		version[] = {HeapTupleHeaderGetRawXmin(tuple->t_data), ItemPointerGetBlockNumber(&tuple->t_self), ItemPointerGetOffsetNumber(&tuple->t_self)};

	return sweep_lock_hash(stamp, version, sizeof(version));
}
