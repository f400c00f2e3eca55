/*
 * door.c
 *		The only file that changes the identity of the engine.
 *
 * Called by definition.c for the analysis of a batch_sql, by reference.c, by pg_cron.c to read as its caller, by caller.c for
 * the public functions and by sql.c for the constant statements. Also called before each call of the code of a job or of a
 * handler, to undo changes that code of other roles has left in the session. doc/architecture.md has the list of all places
 * where code of a user runs inside the engine, and says which of them need this door.
 *
 * Code of a user must not leave anything behind for code of the engine that is executed after it with more
 * rights. A pinned search_path of a function is not enough: set_config() in a function that it calls stays in force until
 * the outer function ends, and names are then looked up in the new path. Code of a user therefore has a nest level of
 * settings of its own, which is discarded. A security-restricted operation keeps it from changing roles and from making
 * prepared statements, temporary tables, held cursors and deferred triggers. User and path are compared afterwards; a
 * difference is an error, and the abort of the transaction restores everything.
 *
 * An error in between needs no handling: the abort of the (sub)transaction restores user, security context and
 * settings.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_namespace.h"
#include "commands/trigger.h"
#include "miscadmin.h"
#include "parser/parse_expr.h"
#include "parser/parser.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/float.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/rls.h"
#include "utils/snapmgr.h"

#include "base/compat.h"
#include "base/door.h"
#include "base/role.h"

#define SAFE_PATH "pg_catalog, pg_temp"

/* A CONTEXT line that is never shown: the lines above it belong to code of the user. A text without this line belongs to the engine. */
#define CONTEXT_MARK "pg_sweep: code of a user ends here"

static const char *const meaning_names[] = {
	"role", "search_path", "session_replication_role", "row_security", "standard_conforming_strings", "backslash_quote",
	"transform_null_equals", "array_nulls", "DateStyle", "IntervalStyle", "TimeZone",
	"quote_all_identifiers", "extra_float_digits",
};

#define MEANING_PATH 1			/* index of search_path, which is compared as text */

/* The variables of the other settings, compared with one memcmp: there is no padding between the fields. */
typedef struct Marks
{
	int			settings[12];
	pg_tz	   *zone;
} Marks;

StaticAssertDecl(sizeof(Marks) == sizeof(int) * 12 + sizeof(pg_tz *), "marks are compared by their bytes");

struct SweepMeaning
{
	Marks		marks;
	char	   *values[lengthof(meaning_names)];	/* NULL = this server has no such setting */
	ObjectAddresses *kept;		/* earlier temporary objects of other roles; NULL = none */
};

/* The last note, and sweep_role_changes() at that time, because a role may be renamed; 0 = no note. */
static SweepMeaning noted;
static uint64 noted_at = 0;

static void note_values(const Marks *marks);
static bool is_meaning(const SweepMeaning *meaning, const Marks *marks);
static Marks read_marks(void);
static ObjectAddresses *find_temporary_of_others(Oid role, const ObjectAddresses *kept);
static void drop_temporary_of_others(Oid role, const ObjectAddresses *kept);
static void mark_context(void *arg);
static void enter(SweepDoor *door, Oid role, int flags);
static bool formats_are_safe(void);
static void pin_formats(void);
static void pin(const char *name, const char *value);

void
sweep_door_enter_user(SweepDoor *door, Oid role)
{
	enter(door, role, SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION);
	/* Errors of the user's code have only CONTEXT lines of that code, and none of its caller. */
	door->callback = (ErrorContextCallback) {NULL, mark_context, CurrentMemoryContext};
	error_context_stack = &door->callback;
}

void
sweep_door_enter_owner(SweepDoor *door, Oid owner)
{
	enter(door, owner, SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION | SECURITY_NOFORCE_RLS);
	pin("search_path", SAFE_PATH);
}

void
sweep_door_enter_cascade(SweepDoor *door, Oid owner)
{
	enter(door, owner, SECURITY_LOCAL_USERID_CHANGE | SECURITY_NOFORCE_RLS);
}

/* The mark is only removed from errors, so a notice or a warning gets none. */
static void
mark_context(void *arg)
{
	MemoryContext old = MemoryContextSwitchTo(arg);
	ErrorData  *error = CopyErrorData();
	bool		ends = error->elevel >= ERROR;

	FreeErrorData(error);
	MemoryContextSwitchTo(old);
	if (ends)
		errcontext(CONTEXT_MARK);
}

/* An internal error keeps all lines, for the authors of the engine. */
void
sweep_door_raise_for_user(ErrorData *error)
{
	char	   *mark = error->context != NULL ? strstr(error->context, CONTEXT_MARK) : NULL;

	if (ERRCODE_TO_CATEGORY(error->sqlerrcode) != ERRCODE_INTERNAL_ERROR)
	{
		if (mark != NULL && mark > error->context)
			mark[-1] = '\0';
		else
			error->context = NULL;
	}
	ThrowErrorData(error);
}

void
sweep_door_enter_engine(SweepDoor *door, Oid owner)
{
	enter(door, owner, SECURITY_LOCAL_USERID_CHANGE);
	/* Its functions set the search_path themselves. */
	if (!formats_are_safe())
		pin_formats();
	/* Triggers on the tables of the extension must fire: they wake the scheduler, and drop tables that a job leaves behind. */
	if (SessionReplicationRole != SESSION_REPLICATION_ROLE_ORIGIN)
		(void) set_config_option("session_replication_role", "origin", PGC_SUSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
}

void
sweep_door_leave(SweepDoor *door)
{
	Oid			user;
	int			security_context;

	GetUserIdAndSecContext(&user, &security_context);
	if (user != door->inside || security_context != door->inside_context)
		elog(ERROR, "identity has changed from %u (%d) to %u (%d)", door->inside, door->inside_context, user, security_context);
	AtEOXact_GUC(false, door->nest_level);
	SetUserIdAndSecContext(door->user, door->security_context);
	if (strcmp(namespace_search_path, door->search_path) != 0)
		elog(ERROR, "search_path has changed from \"%s\" to \"%s\"", door->search_path, namespace_search_path);
	pfree(door->search_path);
	error_context_stack = door->outer;
}

static void
enter(SweepDoor *door, Oid role, int flags)
{
	GetUserIdAndSecContext(&door->user, &door->security_context);
	door->outer = error_context_stack;
	door->inside = role;
	door->inside_context = door->security_context | flags;
	door->search_path = pstrdup(namespace_search_path);
	door->nest_level = NewGUCNestLevel();
	SetUserIdAndSecContext(door->inside, door->inside_context);
}

void
sweep_door_enter_statement(SweepDoor *door, Oid owner)
{
	bool		path_is_safe = strcmp(namespace_search_path, SAFE_PATH) == 0;

	door->nest_level = 0;
	GetUserIdAndSecContext(&door->user, &door->security_context);
	SetUserIdAndSecContext(owner, door->security_context | SECURITY_LOCAL_USERID_CHANGE);
	if (path_is_safe && formats_are_safe())
		return;
	door->nest_level = NewGUCNestLevel();
	if (!path_is_safe)
		pin("search_path", SAFE_PATH);
	pin_formats();
}

void
sweep_door_pin_path(void)
{
	(void) set_config_option("search_path", SAFE_PATH, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
}

void
sweep_door_leave_statement(const SweepDoor *door)
{
	if (door->nest_level != 0)
		AtEOXact_GUC(true, door->nest_level);
	SetUserIdAndSecContext(door->user, door->security_context);
}

/*
 * Settings that a session, a role or a database may change: how literals are read, what x = NULL means, and how intervals,
 * timestamps and names are converted to and from text. Names of functions, tables and types are stored and compared as text.
 */
static bool
formats_are_safe(void)
{
	return sweep_strings_conform() && !Transform_null_equals && Array_nulls &&
		DateStyle == USE_ISO_DATES && IntervalStyle == INTSTYLE_POSTGRES && !quote_all_identifiers;
}

static void
pin_formats(void)
{
	if (!sweep_strings_conform())
		pin("standard_conforming_strings", "on");
	if (Transform_null_equals)
		pin("transform_null_equals", "off");
	if (!Array_nulls)
		pin("array_nulls", "on");
	if (DateStyle != USE_ISO_DATES)
		pin("datestyle", "ISO");
	if (IntervalStyle != INTSTYLE_POSTGRES)
		pin("intervalstyle", "postgres");
	if (quote_all_identifiers)
		pin("quote_all_identifiers", "off");
}

static void
pin(const char *name, const char *value)
{
	(void) set_config_option(name, value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
}

int
sweep_door_enter_literals(void)
{
	int			nest_level;

	if (sweep_strings_conform() && backslash_quote == BACKSLASH_QUOTE_SAFE_ENCODING)
		return 0;
	nest_level = NewGUCNestLevel();
	pin("standard_conforming_strings", "on");
	pin("backslash_quote", "safe_encoding");
	return nest_level;
}

void
sweep_door_leave_literals(int nest_level)
{
	if (nest_level != 0)
		AtEOXact_GUC(true, nest_level);
}

SweepMeaning *
sweep_door_note_meaning(MemoryContext context, Oid keeps_for)
{
	SweepMeaning *meaning = MemoryContextAllocZero(context, sizeof(SweepMeaning));
	Marks		marks = read_marks();

	if (OidIsValid(keeps_for))
	{
		MemoryContext old = MemoryContextSwitchTo(context);

		meaning->kept = find_temporary_of_others(keeps_for, NULL);
		MemoryContextSwitchTo(old);
	}
	if (noted_at != sweep_role_changes() || !is_meaning(&noted, &marks))
		note_values(&marks);
	meaning->marks = marks;
	for (int i = 0; i < (int) lengthof(meaning_names); i++)
		meaning->values[i] = noted.values[i] != NULL ? MemoryContextStrdup(context, noted.values[i]) : NULL;
	return meaning;
}

/* Looking up the values by name takes longer than the rest of a note, so it is skipped when the marks have not changed. */
static void
note_values(const Marks *marks)
{
	noted_at = 0;
	for (int i = 0; i < (int) lengthof(meaning_names); i++)
	{
		const char *value = GetConfigOption(meaning_names[i], true, false);

		if (noted.values[i] != NULL)
			pfree(noted.values[i]);
		noted.values[i] = NULL;
		if (value != NULL)
			noted.values[i] = MemoryContextStrdup(TopMemoryContext, value);
	}
	noted.marks = *marks;
	noted_at = sweep_role_changes();
}

static bool
is_meaning(const SweepMeaning *meaning, const Marks *marks)
{
	return memcmp(marks, &meaning->marks, sizeof(Marks)) == 0 && strcmp(namespace_search_path, meaning->values[MEANING_PATH]) == 0;
}

/* Sets with the rights of a superuser: a setting made by a superuser must not stay because the role may not set it. */
void
sweep_door_put_back(const SweepMeaning *meaning, Oid role, GucAction action)
{
	Marks		marks;

	drop_temporary_of_others(role, meaning->kept);
	marks = read_marks();
	if (is_meaning(meaning, &marks))
		return;
	for (int i = 0; i < (int) lengthof(meaning_names); i++)
	{
		if (meaning->values[i] != NULL && strcmp(GetConfigOption(meaning_names[i], false, false), meaning->values[i]) != 0)
			(void) set_config_option(meaning_names[i], meaning->values[i], PGC_SUSET, PGC_S_SESSION, action, true, 0, false);
	}
}

static Marks
read_marks(void)
{
	return (Marks) {
		.settings = {
			(int) GetCurrentRoleId(), SessionReplicationRole, row_security, sweep_strings_conform(), backslash_quote, Transform_null_equals,
			Array_nulls, DateStyle, DateOrder, IntervalStyle, quote_all_identifiers, extra_float_digits
		},
		.zone = session_timezone
	};
}

/* NULL when the session has no temporary schema. */
static ObjectAddresses *
find_temporary_of_others(Oid role, const ObjectAddresses *kept)
{
	Oid			namespace;
	Oid			toast_namespace;
	ObjectAddresses *found;
	ScanKeyData keys[2];
	Relation	depend;
	SysScanDesc scan;
	HeapTuple	tuple;

	GetTempNamespaceState(&namespace, &toast_namespace);
	/* Between two transactions no statement can find temporary objects. */
	if (!OidIsValid(namespace) || !IsTransactionState())
		return NULL;
	found = new_object_addresses();
	depend = table_open(DependRelationId, AccessShareLock);
	ScanKeyInit(&keys[0], Anum_pg_depend_refclassid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(NamespaceRelationId));
	ScanKeyInit(&keys[1], Anum_pg_depend_refobjid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(namespace));
	scan = systable_beginscan(depend, DependReferenceIndexId, true, NULL, lengthof(keys), keys);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		const FormData_pg_depend *entry = (Form_pg_depend) GETSTRUCT(tuple);
		ObjectAddress object = {entry->classid, entry->objid, 0};
		Oid			owner = sweep_role_owning(entry->classid, entry->objid);

		if (OidIsValid(owner) && !sweep_role_can_become(owner, role) && (kept == NULL || !object_address_present(&object, kept)))
			add_exact_object_address(&object, found);
	}
	systable_endscan(scan);
	table_close(depend, AccessShareLock);
	return found;
}

static void
drop_temporary_of_others(Oid role, const ObjectAddresses *kept)
{
	ObjectAddresses *dropped = find_temporary_of_others(role, kept);

	if (dropped == NULL)
		return;
	/* Between two statements of a script there is no snapshot, and long values of the catalogue need one. */
	PushActiveSnapshot(GetTransactionSnapshot());
	performMultipleDeletions(dropped, DROP_CASCADE, PERFORM_DELETION_INTERNAL | PERFORM_DELETION_QUIETLY);
	PopActiveSnapshot();
	free_object_addresses(dropped);
	CommandCounterIncrement();
}
