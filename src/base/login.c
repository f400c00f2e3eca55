/*
 * login.c
 *		What a session has read of its role and database when it logged in.
 *
 * Whether a role may log in and is a superuser, and the settings of role and database, are read once. A process that performs
 * another run must not do that as the role was when it began: called by runner.c.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_database.h"
#include "catalog/pg_db_role_setting.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "utils/fmgroids.h"
#include "utils/syscache.h"

#include "base/login.h"

static uint64 add_cached(uint64 stamp, int cache, Oid object);
static uint64 add_settings(uint64 stamp, Relation settings, Oid database, Oid role);
static uint64 add_version(uint64 stamp, HeapTuple tuple);

uint64
sweep_login_stamp(void)
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

/* Whoever changes a row writes another version of it; what VACUUM and in-place updates do is no change. */
static uint64
add_version(uint64 stamp, HeapTuple tuple)
{
	uint64		version[] = {HeapTupleHeaderGetRawXmin(tuple->t_data), ItemPointerGetBlockNumber(&tuple->t_self), ItemPointerGetOffsetNumber(&tuple->t_self)};

	return hash_bytes_extended((const unsigned char *) version, sizeof(version), stamp);
}
