/*
 * extension.c
 *		The extension itself: whether this database has it, and where its objects are.
 *
 * Called by txn.c in each transaction of the engine, which locks it, by functions that a session calls, which only look
 * for it, and by whoever needs one of the objects. What was found is kept; whether it is still there is asked again.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/namespace.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "base/extension.h"

static SweepExtension extension;

static bool search(void);

bool
sweep_extension_lock(void)
{
	LOCKTAG		tag;

	if (!OidIsValid(extension.id) && !search())
		return false;
	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, ExtensionRelationId, extension.id, 0);
	if (LockAcquire(&tag, AccessShareLock, false, true) == LOCKACQUIRE_NOT_AVAIL)
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("extension pg_sweep is being altered or dropped")));
	AcceptInvalidationMessages();
	return sweep_extension_find();
}

static bool
search(void)
{
	Oid			schema = get_namespace_oid("sweep", true);
	HeapTuple	tuple = NULL;

	extension.id = get_extension_oid("pg_sweep", true);
	if (OidIsValid(extension.id) && OidIsValid(schema))
	{
		extension.run_table = get_relname_relid("run_live", schema);
		extension.begun_sequence = get_relname_relid("run_begun_seq", schema);
		extension.batch_type = GetSysCacheOid2(TYPENAMENSP, Anum_pg_type_oid, CStringGetDatum("batch"), ObjectIdGetDatum(schema));
		tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(extension.batch_type));
	}
	if (!HeapTupleIsValid(tuple))
	{
		extension.id = InvalidOid;
		return false;
	}
	/* The objects of an extension belong to whoever created it. */
	extension.owner = ((Form_pg_type) GETSTRUCT(tuple))->typowner;
	ReleaseSysCache(tuple);
	return true;
}

bool
sweep_extension_find(void)
{
	return (OidIsValid(extension.id) && SearchSysCacheExists1(TYPEOID, ObjectIdGetDatum(extension.batch_type))) || search();
}

const SweepExtension *
sweep_extension(void)
{
	return &extension;
}

void
sweep_extension_assume(const SweepExtension *found)
{
	extension = *found;
}

void
sweep_extension_require(bool found)
{
	if (!found)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("extension pg_sweep does not exist")));
}
