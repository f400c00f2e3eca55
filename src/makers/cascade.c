/*
 * cascade.c
 *		Rows that are deleted, or lose their reference, with the rows that a batch deletes.
 *
 * Called by ranges.c, dismantle.c and delete_count.c for a job whose target is referred to with ON DELETE CASCADE, SET NULL or SET DEFAULT. The
 * rows that refer to those of the batch are counted, table by table, up to the number that a batch may touch. After a batch in which more rows
 * were deleted than counted, the counted rows are locked. The rows of a table are found as its owner, by
 * the columns of the key alone, like in PostgreSQL's own triggers, which then delete or change the rows during the statement of the batch.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "base/compat.h"
#include "base/door.h"
#include "base/role.h"
#include "base/sql.h"
#include "makers/cascade.h"
#include "makers/owner_plan.h"

static SweepStatement cascades_sql = {
	.text = "SELECT foreign_key, parent, child, root, places, types, keeps, deletes, attributes, counts, finds, removes, holds FROM sweep._cascades($1, $2)",
	.types = {OIDOID, OIDOID}};

/* Counts the rows that are affected by a deletion, table by table. */
typedef struct Walk
{
	SweepCascade *cascade;
	MemoryContext context;
	int64		found;
	int64		most;
	List	   *pending;		/* SweepCascadeRows whose children have not been counted yet */
	HTAB	   *seen;			/* rows counted so far: several keys, or a row itself, may refer to a row */
	SweepCascadeKey *key;		/* the key whose children are being counted */
	bool		is_tally;		/* count all rows of each table, without locks */
} Walk;

static void read_key(SweepCascadeKey *key, MemoryContext context);
static void free_plans(void *cascade);
static void ask_all(Walk *walk, const SweepCascadeRows *rows, int first, int count);
static void ask(Walk *walk, SweepCascadeKey *key, const SweepCascadeRows *rows, int first, int count);
static bool reads_rows(const Walk *walk);
static void read_children(Walk *walk, int64 count);
static bool ask_index(Walk *walk, const SweepCascadeKey *key, const SweepCascadeRows *rows, int first, int count);
static void take_children(Walk *walk, SweepCascadeRows *children);
static void make_plan(SweepCascadeKey *key, SweepCascadeStatement which, Oid owner, bool is_first);
static void check_foreign_key(const SweepCascadeKey *key);

SweepCascade *
sweep_cascade_make(MemoryContext context, Oid relation)
{
	Datum		values[] = {ObjectIdGetDatum(GetUserId()), ObjectIdGetDatum(relation)};
	uint64		count = sweep_sql_execute(&cascades_sql, values, NULL);
	SweepCascade *cascade;

	if (count == 0)
		return NULL;
	cascade = MemoryContextAllocZero(context, offsetof(SweepCascade, keys) + sizeof(SweepCascadeKey) * count);
	cascade->relation = relation;
	cascade->count = (int) count;
	for (int i = 0; i < cascade->count; i++)
	{
		SweepCascadeKey *key = &cascade->keys[i];

		sweep_sql_row(i);
		read_key(key, context);
		cascade->has_keepers |= key->keeps;
		for (int column = 0; key->parent == relation && column < key->count; column++)
			cascade->columns = Max(cascade->columns, (int) key->places[column]);
		key->is_shared = key->child == relation;
		for (int other = 0; other < i; other++)
		{
			if (cascade->keys[other].child == key->child)
				cascade->keys[other].is_shared = key->is_shared = true;
		}
	}
	cascade->callback.func = free_plans;
	cascade->callback.arg = cascade;
	MemoryContextRegisterResetCallback(context, &cascade->callback);
	return cascade;
}

static void
read_key(SweepCascadeKey *key, MemoryContext context)
{
	key->foreign_key = sweep_sql_oid(1);
	key->parent = sweep_sql_oid(2);
	key->child = sweep_sql_oid(3);
	key->root = sweep_sql_oid(4);
	key->places = sweep_sql_oids(5, context, &key->count);
	key->elements = sweep_sql_oids(6, context, &key->count);
	key->types = MemoryContextAlloc(context, sizeof(Oid) * key->count);
	key->keeps = sweep_sql_bool(7);
	key->deletes = sweep_sql_bool(8);
	key->attributes = sweep_sql_oids(9, context, &key->columns);
	for (int i = 0; i < CASCADE_STATEMENT_COUNT; i++)
		key->texts[i] = sweep_sql_text(10 + i, context);
	for (int i = 0; i < key->count; i++)
	{
		key->types[i] = get_array_type(key->elements[i]);
		if (!OidIsValid(key->types[i]))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("rows of \"%s\" that go with those of \"%s\" cannot be counted", get_rel_name(key->child), get_rel_name(key->parent)),
					 errdetail("There are no arrays of type %s, of which a column of their foreign key is.", format_type_be(key->elements[i])),
					 errhint("Have the job delete at once: sweep.create_retention(..., cascade => 'at_once').")));
	}
}

static void
free_plans(void *arg)
{
	SweepCascade *cascade = arg;

	sweep_sql_free_plan(cascade->lock_plan);
	for (int i = 0; i < cascade->count * CASCADE_STATEMENT_COUNT; i++)
		sweep_sql_free_plan(cascade->keys[i / CASCADE_STATEMENT_COUNT].plans[i % CASCADE_STATEMENT_COUNT]);
}

int64
sweep_cascade_count(SweepCascade *cascade, const SweepCascadeRows *rows, int first, int count, int64 most)
{
	Walk		walk = {.cascade = cascade, .context = CurrentMemoryContext, .found = count, .most = most};

	cascade->is_kept = false;
	walk.seen = sweep_cascade_new_set(CurrentMemoryContext);
	for (int i = first; i < first + count; i++)
		(void) sweep_cascade_add_to_set(walk.seen, rows->tables[i], &rows->places[i]);
	ask_all(&walk, rows, first, count);
	hash_destroy(walk.seen);
	return walk.found;
}

void
sweep_cascade_tally(SweepCascade *cascade, const SweepCascadeRows *rows, HTAB *seen)
{
	Walk		walk = {.cascade = cascade, .context = CurrentMemoryContext, .most = PG_INT64_MAX - 1, .seen = seen, .is_tally = true};

	ask_all(&walk, rows, 0, rows->count);
}

/* Counts the rows that are affected by deleting these, directly and indirectly, up to walk->most. */
static void
ask_all(Walk *walk, const SweepCascadeRows *rows, int first, int count)
{
	for (;;)
	{
		for (int i = 0; i < walk->cascade->count && walk->found <= walk->most; i++)
		{
			if (walk->cascade->keys[i].parent == rows->relation)
				ask(walk, &walk->cascade->keys[i], rows, first, count);
		}
		if (walk->pending == NIL || walk->found > walk->most)
			return;
		rows = linitial(walk->pending);
		first = 0;
		count = rows->count;
		walk->pending = list_delete_first(walk->pending);
	}
}

/* Counts the rows that refer by this key to these rows. */
static void
ask(Walk *walk, SweepCascadeKey *key, const SweepCascadeRows *rows, int first, int count)
{
	int			found;
	Datum	   *values;
	SweepDoor	door;
	int64		rows_read;

	if ((walk->is_tally && key->keeps) || ask_index(walk, key, rows, first, count))
		return;
	values = sweep_cascade_key_values(key, rows, first, count, &found);
	if (found == 0)
		return;
	/* Rows that are read may have been found before, so the limit must not be lowered by them. */
	values[key->count] = Int64GetDatum(walk->most + 1 - (key->columns == 0 && !walk->is_tally ? walk->found : 0));
	walk->key = key;
	rows_read = sweep_cascade_execute(&door, walk->cascade, key, reads_rows(walk) && !walk->cascade->locks ? CASCADE_FINDS : CASCADE_COUNTS, values);
	if (rows_read < 0)
		return;
	read_children(walk, rows_read);
	sweep_cascade_leave(&door);
}

/* Whether rows are read instead of counted: if others refer to them, or in a tally if several keys reach them. */
static bool
reads_rows(const Walk *walk)
{
	return walk->key->columns > 0 || (walk->is_tally && walk->key->is_shared);
}

static void
read_children(Walk *walk, int64 count)
{
	MemoryContext old;
	SweepCascadeRows *children;

	if (walk->key->keeps)
	{
		walk->cascade->is_kept |= sweep_sql_int64(1) > 0;
		walk->found = walk->cascade->is_kept ? walk->most + 1 : walk->found;
		return;
	}
	if (!reads_rows(walk))
	{
		walk->found += sweep_sql_int64(1);
		walk->key->counted += sweep_sql_int64(1);
		return;
	}
	old = MemoryContextSwitchTo(walk->context);
	children = sweep_cascade_new_rows(walk->key->child, walk->key->columns);
	for (int64 row = 0; row < count; row++)
	{
		sweep_sql_row(row);
		if (sweep_cascade_add_to_set(walk->seen, sweep_sql_oid(1), &sweep_sql_tid(2)))
			sweep_cascade_add_row(children, walk->context);
	}
	walk->key->counted += children->count;
	take_children(walk, children);
	MemoryContextSwitchTo(old);
}

static void
take_children(Walk *walk, SweepCascadeRows *children)
{
	walk->found += children->count;
	if (children->count > 0 && children->columns > 0)
		walk->pending = lappend(walk->pending, children);
}

/*
 * Counts them by an index, without locks. False when a statement must count them: if there are too many entries, which may be those of
 * dead rows, and if a row loses its reference by another key but keeps its entry for this one.
 */
static bool
ask_index(Walk *walk, const SweepCascadeKey *key, const SweepCascadeRows *rows, int first, int count)
{
	bool		reads = key->columns > 0;
	MemoryContext old;
	SweepCascadeRows *children;
	int64		found;

	if (walk->is_tally || key->keeps || (reads && walk->cascade->locks) || (key->is_shared && !key->deletes))
		return false;
	old = MemoryContextSwitchTo(walk->context);
	children = reads ? sweep_cascade_new_rows(key->child, key->columns) : NULL;
	found = sweep_cascade_read_index(key, rows, first, count, walk->most + 1 - (reads ? 0 : walk->found), children, walk->seen);
	if (found >= 0 && reads)
		take_children(walk, children);
	else if (found >= 0 && walk->found + found <= walk->most)
		walk->found += found;
	else
		found = -1;
	MemoryContextSwitchTo(old);
	return found >= 0;
}

Datum *
sweep_cascade_key_values(const SweepCascadeKey *key, const SweepCascadeRows *rows, int first, int count, int *found)
{
	Datum	   *values = palloc(sizeof(Datum) * (key->count + 2));
	Datum	   *elements = palloc(sizeof(Datum) * (count + 1));

	sweep_cascade_check_types(key, rows);
	*found = 0;
	for (int column = 0; column < key->count; column++)
	{
		int16		length;
		bool		by_value;
		char		align;
		int			filled = 0;

		for (int row = first; row < first + count; row++)
		{
			bool		refers = true;

			for (int other = 0; other < key->count; other++)
				refers &= !rows->nulls[row * rows->columns + key->places[other] - 1];
			if (refers)
				elements[filled++] = rows->values[row * rows->columns + key->places[column] - 1];
		}
		get_typlenbyvalalign(key->elements[column], &length, &by_value, &align);
		values[column] = PointerGetDatum(construct_array(elements, filled, key->elements[column], length, by_value, align));
		*found = filled;
	}
	return values;
}

int64
sweep_cascade_execute(SweepDoor *door, SweepCascade *cascade, SweepCascadeKey *key, SweepCascadeStatement which, Datum *values)
{
	Oid			owner = sweep_role_owning(RelationRelationId, key->child);
	bool		is_first = key->planned_in[which] != cascade->batch;

	if (!OidIsValid(owner))
		return -1;
	if (is_first || key->plans[which] == NULL || !sweep_sql_is_valid(key->plans[which]))
		make_plan(key, which, owner, is_first);
	key->planned_in[which] = cascade->batch;
	if (which == CASCADE_REMOVES)
		sweep_door_enter_cascade(door, owner);
	else
		sweep_door_enter_owner(door, owner);
	sweep_sql_connect();
	return (int64) sweep_sql_execute_plan(key->plans[which], values, NULL);
}

void
sweep_cascade_leave(SweepDoor *door)
{
	sweep_sql_end_call();
	sweep_door_leave(door);
}

/*
 * Rows are found by the index that a retention requires, even in a small table. They are deleted by ctid, because the index still has the
 * entries of all deleted rows. The door undoes the settings. "is_first": the first one with this plan in the batch.
 */
static void
make_plan(SweepCascadeKey *key, SweepCascadeStatement which, Oid owner, bool is_first)
{
	static const char *const off[] = {"enable_seqscan", "enable_hashjoin", "enable_mergejoin", "enable_sort", "jit",
	"enable_indexscan", "enable_indexonlyscan", "enable_bitmapscan"};
	char	   *search_path = pstrdup(namespace_search_path);
	SweepDoor	door;
	bool		removes = which == CASCADE_REMOVES;
	bool		by_place = removes || which == CASCADE_HOLDS;
	Oid		   *types;

	sweep_door_enter_owner(&door, owner);
	for (int i = 0; i < (int) lengthof(off) - (by_place ? 0 : 3); i++)
		(void) set_config_option(off[i], "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	/* Planned with the search_path of its execution, or it would be planned again each time. */
	if (removes)
		(void) set_config_option("search_path", search_path, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	sweep_sql_connect();
	types = palloc(sizeof(Oid) * (key->count + 2));
	memcpy(types, key->types, sizeof(Oid) * key->count);
	types[key->count] = by_place ? TIDARRAYOID : INT8OID;
	types[key->count + 1] = OIDOID;
	sweep_owner_plan(&key->plans[which], key->texts[which], key->count + (by_place ? 2 : 1), types, key->child,
					 removes ? RowExclusiveLock : by_place || (which == CASCADE_COUNTS && key->columns > 0) ? RowShareLock : AccessShareLock, is_first);
	sweep_sql_make_plan(key->plans[which]);
	sweep_sql_end_call();
	if (removes && is_first)
		check_foreign_key(key);
	sweep_door_leave(&door);
}

/* Called with the child locked, so that the key cannot be dropped or altered: without it, or with another action, the rows must stay. */
static void
check_foreign_key(const SweepCascadeKey *key)
{
	HeapTuple	tuple = SearchSysCache1(CONSTROID, ObjectIdGetDatum(key->foreign_key));
	bool		is_there = HeapTupleIsValid(tuple) && sweep_constraint_enforced((Form_pg_constraint) GETSTRUCT(tuple));

	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	if (!is_there)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("a foreign key of \"%s\" that refers to \"%s\" has been dropped since the run began", get_rel_name(key->child), get_rel_name(key->parent)),
				 errhint("Start the job again: it reads the foreign keys anew.")));
}
