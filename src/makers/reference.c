/*
 * reference.c
 *		Checks whether rows of another owner's table refer to a row.
 *
 * Called from the statements of a retention (retention.sql). Reading or planning such a table as the role of the job would
 * execute code of its owner as that role: policies, index expressions, casts of the owner's types. PostgreSQL checks a foreign
 * key as the owner of the table, by the columns and operators of the key alone, with row security off. This file does the same,
 * and discards settings that are changed meanwhile.
 *
 * sweep._reference_queries generates the statements from the catalogue; the caller only provides values of the types of the key.
 * With ON DELETE CASCADE, the rows that would be deleted are also checked for rows that refer to them, each table as its owner.
 * The statements are kept for the duration of the calling statement.
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/guc.h"

#include "base/door.h"
#include "base/role.h"
#include "base/sql.h"
#include "makers/owner_plan.h"
#include "makers/range_statements.h"

static SweepStatement reference_queries_sql = {
	.text = "SELECT depth, relation, types, first_column, statement FROM sweep._reference_queries($1, $2)",
	.types = {OIDOID, OIDOID}};

/* Number of rows that are fetched at a time. */
#define ROWS_AT_ONCE 1000

/* A foreign key and its query. The keys below it in the tree follow it, with a greater depth. */
typedef struct Reference
{
	int			depth;
	Oid			relation;		/* the referring table */
	Oid		   *types;			/* of the key columns */
	int			count;
	int			first_column;	/* where its key begins in the rows of the key above it */
	char	   *text;
	SweepPlan  *plan;			/* NULL = not prepared yet */
} Reference;

typedef struct References
{
	MemoryContextCallback callback;
	Oid			foreign_key;
	int			count;
	Reference	tree[FLEXIBLE_ARRAY_MEMBER];
} References;

static References *find_references(FunctionCallInfo fcinfo, Oid foreign_key);
static void free_plans(void *references);
static bool ask(References *references, int index, Datum *values);
static bool ask_below(References *references, int index, Datum *values);

PG_FUNCTION_INFO_V1(sweep_reference_exists);

/* SQL: sweep._reference_exists(foreign key oid, VARIADIC key "any") RETURNS boolean */
Datum
sweep_reference_exists(PG_FUNCTION_ARGS)
{
	References *references;
	Datum		values[FUNC_MAX_ARGS];
	bool		found;

	for (int i = 0; i < PG_NARGS(); i++)
	{
		if (PG_ARGISNULL(i))
			PG_RETURN_BOOL(false);
	}
	sweep_sql_begin_call();
	references = find_references(fcinfo, PG_GETARG_OID(0));
	for (int i = 0; i < references->tree[0].count; i++)
		values[i] = PG_GETARG_DATUM(i + 1);
	found = ask(references, 0, values);
	sweep_sql_end_call();
	PG_RETURN_BOOL(found);
}

static References *
find_references(FunctionCallInfo fcinfo, Oid foreign_key)
{
	MemoryContext context = fcinfo->flinfo->fn_mcxt;
	References *references = fcinfo->flinfo->fn_extra;
	Datum		values[] = {ObjectIdGetDatum(GetUserId()), ObjectIdGetDatum(foreign_key)};
	uint64		count;

	if (references != NULL && references->foreign_key == foreign_key)
		return references;
	sweep_range_preparing = true;
	count = sweep_sql_execute(&reference_queries_sql, values, NULL);
	sweep_range_preparing = false;
	references = MemoryContextAllocZero(context, offsetof(References, tree) + sizeof(Reference) * count);
	for (uint64 i = 0; i < count; i++)
	{
		Reference  *reference = &references->tree[i];

		sweep_sql_row(i);
		reference->depth = sweep_sql_int32(1);
		reference->relation = sweep_sql_oid(2);
		reference->types = sweep_sql_oids(3, context, &reference->count);
		reference->first_column = sweep_sql_int32(4);
		reference->text = sweep_sql_text(5, context);
	}
	for (int i = 0; i < Max(references->tree[0].count, PG_NARGS() - 1); i++)
	{
		if (references->tree[0].count != PG_NARGS() - 1 || get_fn_expr_argtype(fcinfo->flinfo, i + 1) != references->tree[0].types[i])
			ereport(ERROR,
					(errcode(ERRCODE_DATATYPE_MISMATCH),
					 errmsg("these are not values of the columns that foreign key %u refers to", foreign_key),
					 errhint("Start the job again: it reads the foreign keys anew.")));
	}
	references->count = (int) count;
	references->foreign_key = foreign_key;
	references->callback.func = free_plans;
	references->callback.arg = references;
	MemoryContextRegisterResetCallback(context, &references->callback);
	fcinfo->flinfo->fn_extra = references;
	return references;
}

static void
free_plans(void *arg)
{
	References *references = arg;

	for (int i = 0; i < references->count; i++)
		sweep_sql_free_plan(references->tree[i].plan);
}

/* Uses the index that the retention requires, even in a small table. */
static bool
ask(References *references, int index, Datum *values)
{
	Reference  *reference = &references->tree[index];
	Oid			owner = sweep_role_owning(RelationRelationId, reference->relation);
	SweepDoor	door;
	bool		found;

	/* A dropped table refers to nothing. */
	if (!OidIsValid(owner))
		return false;
	sweep_door_enter_owner(&door, owner);
	sweep_sql_begin_call();
	if (reference->plan == NULL || !sweep_sql_is_valid(reference->plan))
	{
		(void) set_config_option("enable_seqscan", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
		(void) set_config_option("jit", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	}
	sweep_owner_plan(&reference->plan, reference->text, reference->count, reference->types, reference->relation, AccessShareLock, false);
	if (index + 1 < references->count && reference[1].depth > reference->depth)
		found = ask_below(references, index, values);
	else
		found = sweep_sql_read(reference->plan, values, 1) > 0;
	sweep_sql_end_call();
	sweep_door_leave(&door);
	return found;
}

/* Whether a row refers to one of the rows that would be deleted together with this one. */
static bool
ask_below(References *references, int index, Datum *values)
{
	const Reference *reference = &references->tree[index];
	SweepCursor *cursor = sweep_sql_open(reference->plan, values);
	bool		found = false;
	uint64		count;

	while (!found && (count = sweep_sql_fetch(cursor, ROWS_AT_ONCE)) > 0)
	{
		for (uint64 row = 0; row < count && !found; row++)
		{
			for (int i = index + 1; i < references->count && references->tree[i].depth > reference->depth && !found; i++)
			{
				const Reference *below = &references->tree[i];
				Datum		key[FUNC_MAX_ARGS];
				bool		is_null = false;

				if (below->depth > reference->depth + 1)
					continue;
				sweep_sql_row(row);
				for (int column = 0; column < below->count; column++)
				{
					is_null = is_null || sweep_sql_is_null(below->first_column + column);
					key[column] = sweep_sql_value(below->first_column + column, below->types[column]);
				}
				found = !is_null && ask(references, i, key);
			}
		}
	}
	sweep_sql_close(cursor);
	return found;
}
