/*
 * extension.c
 *		The extension itself: whether this database has it, the OIDs of its objects, whether this library fits them, and the
 *		requirements of its functions; rows of its types, which a superuser may have altered.
 *
 * Called by txn.c to lock the extension in each transaction of the engine, by functions that a session calls, which only look it up, and by
 * code that needs an OID of its objects. The result is kept until a type of the database changes.
 *
 * The library and the SQL objects are replaced one after the other: new files, restart of the server, ALTER EXTENSION. The
 * objects include a type whose name has the number of their interface, and the library looks up that type. A session therefore
 * notices a change of the interface, and a new library with the same interface needs no ALTER EXTENSION.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xlog.h"
#include "catalog/namespace.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "storage/lock.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/tuplestore.h"

#include "base/extension.h"

/* Defined in types.sql; gets a new number when a C function, or a statement of the engine, no longer works with the previous objects. */
#define INTERFACE_TYPE "_interface_1"

static SweepExtension extension;

/* valid: no type has changed since the extension was looked up; unchanged: the type of the interface has not. */
static bool valid = false;
static bool unchanged = false;

/* Hash of the interface type in the type cache; 0 = not looked up yet. */
static uint32 interface_hash = 0;

static bool search(void);
static bool has_interface(void);
static bool find_type(const char *name, Oid *oid);
static void forget(Datum arg, int cache, uint32 hash);
static char *read_version(void);
static bool is_before(const char *version, const char *other);
static void pad(TupleDesc columns, const Datum *values, const bool *nulls, int count, Datum **padded, bool **padded_nulls);

PG_FUNCTION_INFO_V1(sweep_extension_require_library);

/*
 * Removed C functions that objects of 0.1.0 and 0.2.0 call. Without them pg_upgrade and restores of these versions could not create
 * these objects. A function whose arguments or columns have changed also calls sweep_extension_require().
 */
#define FORMER_FUNCTION(name) \
	PG_FUNCTION_INFO_V1(name); \
	Datum		name(PG_FUNCTION_ARGS) \
	{ \
		sweep_extension_require(sweep_extension_find()); \
		PG_RETURN_NULL(); \
	} \
	extern int	no_more_##name

FORMER_FUNCTION(sweep_queue_lock_to_drop);
FORMER_FUNCTION(sweep_schedule_is_reboot);
FORMER_FUNCTION(sweep_shared_missing);
FORMER_FUNCTION(sweep_worker_available);
FORMER_FUNCTION(sweep_worker_require);

bool
sweep_extension_lock(void)
{
	LOCKTAG		tag;
	bool		found;

	if (!OidIsValid(extension.id) && !search())
		return false;
	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, ExtensionRelationId, extension.id, 0);
	if (LockAcquire(&tag, AccessShareLock, false, true) == LOCKACQUIRE_NOT_AVAIL)
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("extension pg_sweep is being altered or dropped")));
	AcceptInvalidationMessages();
	found = sweep_extension_find();
	if (found)
		sweep_extension_require(true);
	return found;
}

bool
sweep_extension_find(void)
{
	static bool registered = false;

	if (valid)
		return true;
	if (!registered)
		CacheRegisterSyscacheCallback(TYPENAMENSP, forget, (Datum) 0);
	registered = true;
	/* Set before the search, which may process invalidations. */
	valid = unchanged = true;
	if (OidIsValid(extension.id) && extension.fits && has_interface())
		return true;
	if (search())
		return true;
	valid = false;
	return false;
}

bool
sweep_extension_is_unchanged(void)
{
	return unchanged;
}

/* A hash of 0 stands for all types. */
static void
forget(Datum arg, int cache, uint32 hash)
{
	valid = false;
	if (hash == 0 || hash == interface_hash)
		unchanged = false;
}

static bool
search(void)
{
	extension.schema = get_namespace_oid("sweep", true);
	extension.id = get_extension_oid("pg_sweep", true);
	if (!OidIsValid(extension.id) || !OidIsValid(extension.schema) || !find_type("batch", &extension.batch_type))
	{
		extension.id = InvalidOid;
		return false;
	}
	extension.run_table = get_relname_relid("run_live", extension.schema);
	extension.begun_sequence = get_relname_relid("run_begun_seq", extension.schema);
	/* While the extension is being created, the type is there before the tables are. */
	extension.fits = has_interface() && OidIsValid(extension.run_table) && OidIsValid(extension.begun_sequence);
	return true;
}

static bool
has_interface(void)
{
	Oid			type;

	interface_hash = GetSysCacheHashValue2(TYPENAMENSP, CStringGetDatum(INTERFACE_TYPE), ObjectIdGetDatum(extension.schema));
	return find_type(INTERFACE_TYPE, &type);
}

/* The objects of an extension belong to the role that created it, or to which they were reassigned. */
static bool
find_type(const char *name, Oid *oid)
{
	HeapTuple	tuple = SearchSysCache2(TYPENAMENSP, CStringGetDatum(name), ObjectIdGetDatum(extension.schema));

	if (!HeapTupleIsValid(tuple))
		return false;
	*oid = ((Form_pg_type) GETSTRUCT(tuple))->oid;
	extension.owner = ((Form_pg_type) GETSTRUCT(tuple))->typowner;
	ReleaseSysCache(tuple);
	return true;
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
	char	   *version;

	if (!found)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("extension pg_sweep does not exist")));
	if (extension.fits)
		return;
	version = read_version();
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("library pg_sweep %s does not fit the extension of version %s in this database", SWEEP_VERSION, version),
			 is_before(version, SWEEP_VERSION) ? errhint("Execute ALTER EXTENSION pg_sweep UPDATE.") :
			 errhint("Restart the server, so that it loads the library of the extension.")));
}

/*
 * Every public function that writes calls this first. On a standby the first lock or statement of the engine would
 * fail in any case, but with a message that does not help the user.
 */
void
sweep_require_usable(const char *name)
{
	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("cannot execute %s during recovery", name),
				 errdetail("This server is a standby: what is written comes from its primary."),
				 errhint("Connect to the primary; the views of pg_sweep can be read here.")));
	sweep_extension_require(sweep_extension_find());
}

void
sweep_require_no_block(FunctionCallInfo fcinfo, const char *name)
{
	if (fcinfo->context == NULL || !IsA(fcinfo->context, CallContext) ||
		castNode(CallContext, fcinfo->context)->atomic)
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("%s cannot be called inside a transaction block or a function", name),
				 errhint("It commits: call it as a statement of its own, in a session with autocommit on.")));
}

static char *
read_version(void)
{
	Relation	extensions = table_open(ExtensionRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		is_null = true;
	Datum		version = (Datum) 0;
	char	   *found;

	ScanKeyInit(&key, Anum_pg_extension_oid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(extension.id));
	scan = systable_beginscan(extensions, ExtensionOidIndexId, true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
		version = heap_getattr(tuple, Anum_pg_extension_extversion, RelationGetDescr(extensions), &is_null);
	found = is_null ? pstrdup("?") : TextDatumGetCString(version);
	systable_endscan(scan);
	table_close(extensions, AccessShareLock);
	return found;
}

/* Compares versions, which are numbers separated by points. */
static bool
is_before(const char *version, const char *other)
{
	for (;;)
	{
		char	   *end;
		char	   *other_end;
		long		number = strtol(version, &end, 10);
		long		other_number = strtol(other, &other_end, 10);

		if (number != other_number || *end != '.' || *other_end != '.')
			return number < other_number;
		version = end + 1;
		other = other_end + 1;
	}
}

/* SQL: sweep._require_library(version text): the first statement of the script that updates the objects to a version */
Datum
sweep_extension_require_library(PG_FUNCTION_ARGS)
{
	char	   *version = text_to_cstring(PG_GETARG_TEXT_PP(0));

	if (strcmp(version, SWEEP_VERSION) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("extension pg_sweep %s needs its library, and that of version %s is loaded", version, SWEEP_VERSION),
				 errhint("Restart the server after the files of the extension were installed.")));
	PG_RETURN_VOID();
}

void
sweep_row_check(TupleDesc columns, const Oid *types, int count)
{
	for (int i = 0; i < count; i++)
	{
		if (i < columns->natts && TupleDescAttr(columns, i)->atttypid == types[i])
			continue;
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("type %s was altered", format_type_be(columns->tdtypeid)),
				 errdetail("Its attribute %d is not of type %s.", i + 1, format_type_be(types[i])),
				 errhint("Attributes can be added to it, but those of the extension must stay as they are.")));
	}
}

HeapTuple
sweep_row_form(TupleDesc columns, const Datum *values, const bool *nulls, int count)
{
	Datum	   *padded;
	bool	   *padded_nulls;

	pad(columns, values, nulls, count, &padded, &padded_nulls);
	return heap_form_tuple(columns, padded, padded_nulls);
}

void
sweep_row_put(ReturnSetInfo *result, Datum *values, bool *nulls, int count)
{
	if (result->setDesc->natts > count)
		pad(result->setDesc, values, nulls, count, &values, &nulls);
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

static void
pad(TupleDesc columns, const Datum *values, const bool *nulls, int count, Datum **padded, bool **padded_nulls)
{
	*padded = palloc0(sizeof(Datum) * columns->natts);
	*padded_nulls = palloc(sizeof(bool) * columns->natts);
	memcpy(*padded, values, sizeof(Datum) * count);
	memset(*padded_nulls, true, sizeof(bool) * columns->natts);
	memcpy(*padded_nulls, nulls, sizeof(bool) * count);
}
