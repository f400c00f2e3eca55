/*
 * role.c
 *		The rights to act for a role, and to SET ROLE to it, for SQL and C.
 *
 * There are two rights, because from PostgreSQL 16 on a membership may have one without the other. A member acts for
 * a role if it inherits the privileges of that role (INHERIT, pg_has_role's USAGE). This counts for memberships in
 * sweep_admin, for the rights of the owner of a job or queue, and for the rows that views show. A member becomes a
 * role by SET ROLE. This right is checked if a role chooses code that is executed as another role.
 *
 * Tables store the names of roles, because an OID in a dump may be another role where it is restored. If no role has
 * a stored name, no role acts for it, and nothing runs as it.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/objectaddress.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_database.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/syscache.h"

#include "base/compat.h"
#include "base/role.h"

/* The reader of a view; in fn_extra. */
typedef struct Reader
{
	Oid			role;
	bool		sees_all;
} Reader;

PG_FUNCTION_INFO_V1(sweep_role_to_oid);
PG_FUNCTION_INFO_V1(sweep_role_to_name);
PG_FUNCTION_INFO_V1(sweep_role_to_problem);
PG_FUNCTION_INFO_V1(sweep_role_to_is_user);
PG_FUNCTION_INFO_V1(sweep_role_may_act);
PG_FUNCTION_INFO_V1(sweep_role_may_become);
PG_FUNCTION_INFO_V1(sweep_role_may_see);

static void note_change(Datum arg, int cache, uint32 hash);
static Oid	role_argument(FunctionCallInfo fcinfo, int number);

static uint64 changes = 0;

Oid
sweep_role_find(const char *name)
{
	/* A longer name belongs to no role; truncated, it could be the name of one. */
	return strlen(name) < NAMEDATALEN ? get_role_oid(name, true) : InvalidOid;
}

bool
sweep_role_acts_for(Oid member, Oid role)
{
	return OidIsValid(role) && has_privs_of_role(member, role);
}

bool
sweep_role_is(Oid member, const char *name)
{
	return sweep_role_acts_for(member, sweep_role_find(name));
}

bool
sweep_role_sees_all(Oid member)
{
	return sweep_role_is(member, "sweep_monitor") || sweep_role_is(member, "sweep_operator") || sweep_role_is(member, "sweep_admin");
}

bool
sweep_role_can_become(Oid member, Oid role)
{
	return OidIsValid(role) && sweep_member_can_set_role(member, role);
}

Oid
sweep_role_owning(Oid class, Oid object)
{
	AttrNumber	attribute = get_object_attnum_owner(class);
	HeapTuple	tuple = attribute != InvalidAttrNumber ? SearchSysCache1(get_object_catcache_oid(class), ObjectIdGetDatum(object)) : NULL;
	Oid			owner = InvalidOid;
	bool		is_null;

	if (HeapTupleIsValid(tuple))
	{
		owner = DatumGetObjectId(SysCacheGetAttr(get_object_catcache_oid(class), tuple, attribute, &is_null));
		ReleaseSysCache(tuple);
	}
	return owner;
}

uint64
sweep_role_changes(void)
{
	const int	caches[] = {AUTHOID, AUTHMEMMEMROLE, DATABASEOID};

	for (int i = 0; i < (int) lengthof(caches) && changes == 0; i++)
		CacheRegisterSyscacheCallback(caches[i], note_change, (Datum) 0);
	changes = Max(changes, 1);
	return changes;
}

static void
note_change(Datum arg, int cache, uint32 hash)
{
	changes++;
}

bool
sweep_role_is_user(Oid role)
{
	return sweep_role_is(role, "sweep_user") || sweep_role_is(role, "sweep_admin");
}

const char *
sweep_role_problem(Oid role, bool as_user)
{
	HeapTuple	tuple = SearchSysCache1(AUTHOID, ObjectIdGetDatum(role));
	const char *problem = NULL;

	if (!HeapTupleIsValid(tuple))
		return psprintf("role with OID %u does not exist", role);
	if (SWEEP_WORKERS_NEED_LOGIN && !((Form_pg_authid) GETSTRUCT(tuple))->rolcanlogin)
		problem = "is not permitted to log in";
	else if (!sweep_may_connect(role))
		problem = "may not connect to the database";
	else if (as_user && !sweep_role_is_user(role))
		problem = "is not a member of sweep_user";
	if (problem != NULL)
		problem = psprintf("role \"%s\" %s", NameStr(((Form_pg_authid) GETSTRUCT(tuple))->rolname), problem);
	ReleaseSysCache(tuple);
	return problem;
}

/* SQL: sweep._role_oid(role text) RETURNS oid: NULL when there is none */
Datum
sweep_role_to_oid(PG_FUNCTION_ARGS)
{
	Oid			role = role_argument(fcinfo, 0);

	if (!OidIsValid(role))
		PG_RETURN_NULL();
	PG_RETURN_OID(role);
}

/* SQL: sweep._role_name(role oid) RETURNS text */
Datum
sweep_role_to_name(PG_FUNCTION_ARGS)
{
	Oid			role = PG_GETARG_OID(0);
	char	   *name = GetUserNameFromId(role, true);

	if (name == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("role with OID %u does not exist", role)));
	PG_RETURN_TEXT_P(cstring_to_text(name));
}

/* SQL: sweep._role_problem(role text, as_user boolean) RETURNS text */
Datum
sweep_role_to_problem(PG_FUNCTION_ARGS)
{
	char	   *name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	Oid			role = sweep_role_find(name);
	const char *problem = OidIsValid(role) ? sweep_role_problem(role, PG_GETARG_BOOL(1)) : psprintf("role \"%s\" does not exist", name);

	if (problem == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(problem));
}

/* SQL: sweep._is_user(role text) RETURNS boolean: NULL when there is no such role */
Datum
sweep_role_to_is_user(PG_FUNCTION_ARGS)
{
	Oid			role = role_argument(fcinfo, 0);

	if (!OidIsValid(role))
		PG_RETURN_NULL();
	PG_RETURN_BOOL(sweep_role_is_user(role));
}

/* SQL: sweep._acts_for(caller oid, role text) RETURNS boolean: never NULL, because callers refuse actions by it */
Datum
sweep_role_may_act(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(!PG_ARGISNULL(0) && sweep_role_acts_for(PG_GETARG_OID(0), role_argument(fcinfo, 1)));
}

/* SQL: sweep._can_become(caller oid, role text) RETURNS boolean: never NULL */
Datum
sweep_role_may_become(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(!PG_ARGISNULL(0) && sweep_role_can_become(PG_GETARG_OID(0), role_argument(fcinfo, 1)));
}

/* SQL: sweep._may_see(run_as text) RETURNS boolean: never NULL. A view calls it for each row: checks that are the same for all rows are made once. */
Datum
sweep_role_may_see(PG_FUNCTION_ARGS)
{
	Reader	   *reader = fcinfo->flinfo->fn_extra;

	if (reader == NULL || reader->role != GetUserId())
	{
		if (reader == NULL)
			reader = fcinfo->flinfo->fn_extra = MemoryContextAlloc(fcinfo->flinfo->fn_mcxt, sizeof(Reader));
		*reader = (Reader) {.role = GetUserId(), .sees_all = sweep_role_sees_all(GetUserId())};
	}
	PG_RETURN_BOOL(reader->sees_all || sweep_role_acts_for(reader->role, role_argument(fcinfo, 0)));
}

static Oid
role_argument(FunctionCallInfo fcinfo, int number)
{
	return PG_ARGISNULL(number) ? InvalidOid : sweep_role_find(text_to_cstring(PG_GETARG_TEXT_PP(number)));
}
