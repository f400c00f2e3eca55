/*
 * cascade_rows.c
 *		Lists and sets of rows by ctid; locks on rows.
 *
 * Called by cascade.c, dismantle.c and range_roots.c.
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/hsearch.h"
#include "utils/lsyscache.h"

#include "base/door.h"
#include "base/role.h"
#include "base/sql.h"
#include "makers/cascade.h"
#include "makers/owner_plan.h"

/* Identifies a row; key of a hash table, compared by its bytes. The fields leave no padding, which an assignment need not copy. */
typedef struct RowPlace
{
	Oid			table;
	uint32		block;
	uint32		offset;
} RowPlace;

/* Some rows, of one table. */
typedef struct Locked
{
	SweepCascade *cascade;
	const SweepCascadeRows *rows;
	int			first;
	int			count;
	Oid			table;			/* InvalidOid = all */
	HTAB	   *got;			/* set of the rows that were locked; NULL = wait for all locks */
} Locked;

static RowPlace row_place(Oid table, ItemPointer place);
static Datum places_in(const Locked *some);
static void lock_rows(const Locked *some);
static void lock_table(const Locked *locked);

HTAB *
sweep_cascade_new_set(MemoryContext context)
{
	HASHCTL		info = {.keysize = sizeof(RowPlace), .entrysize = sizeof(RowPlace), .hcxt = context};

	return hash_create("pg_sweep rows", 1024, &info, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

bool
sweep_cascade_add_to_set(HTAB *set, Oid table, ItemPointer place)
{
	RowPlace	row = row_place(table, place);
	bool		found;

	(void) hash_search(set, &row, HASH_ENTER, &found);
	return !found;
}

bool
sweep_cascade_is_in_set(HTAB *set, Oid table, ItemPointer place)
{
	RowPlace	row = row_place(table, place);

	return hash_search(set, &row, HASH_FIND, NULL) != NULL;
}

static RowPlace
row_place(Oid table, ItemPointer place)
{
	return (RowPlace) {table, ItemPointerGetBlockNumber(place), ItemPointerGetOffsetNumber(place)};
}

SweepCascadeRows *
sweep_cascade_new_rows(Oid relation, int columns)
{
	SweepCascadeRows *rows = palloc0(sizeof(SweepCascadeRows));

	rows->relation = relation;
	rows->columns = columns;
	rows->room = 64;
	rows->tables = palloc(sizeof(Oid) * rows->room);
	rows->places = palloc(sizeof(ItemPointerData) * rows->room);
	rows->values = palloc(sizeof(Datum) * rows->room * Max(columns, 1));
	rows->nulls = palloc(sizeof(bool) * rows->room * Max(columns, 1));
	rows->types = palloc0(sizeof(Oid) * Max(columns, 1));
	return rows;
}

void
sweep_cascade_add_row(SweepCascadeRows *rows, MemoryContext context)
{
	int			first = rows->count * rows->columns;

	sweep_cascade_add_place(rows, sweep_sql_oid(1), &sweep_sql_tid(2));
	for (int column = 0; column < rows->columns; column++)
	{
		rows->types[column] = sweep_sql_type(column + 3);
		rows->nulls[first + column] = sweep_sql_is_null(column + 3);
		rows->values[first + column] = rows->nulls[first + column] ? (Datum) 0 : sweep_sql_copy(column + 3, context);
	}
}

void
sweep_cascade_add_place(SweepCascadeRows *rows, Oid table, ItemPointer place)
{
	if (rows->count == rows->room)
	{
		rows->room *= 2;
		rows->tables = repalloc_huge(rows->tables, sizeof(Oid) * rows->room);
		rows->places = repalloc_huge(rows->places, sizeof(ItemPointerData) * rows->room);
		rows->values = repalloc_huge(rows->values, sizeof(Datum) * rows->room * Max(rows->columns, 1));
		rows->nulls = repalloc_huge(rows->nulls, sizeof(bool) * rows->room * Max(rows->columns, 1));
	}
	rows->tables[rows->count] = table;
	rows->places[rows->count] = *place;
	rows->count++;
}

void
sweep_cascade_check_types(const SweepCascadeKey *key, const SweepCascadeRows *rows)
{
	for (int column = 0; rows->count > 0 && column < key->count; column++)
	{
		int			place = (int) key->places[column] - 1;

		if (place >= rows->columns || rows->types[place] != key->elements[column])
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("columns of \"%s\" to which foreign keys refer have changed since the run began", get_rel_name(key->parent)),
					 errhint("Start the job again.")));
	}
}

SweepCascadeRows *
sweep_cascade_copy_row(const SweepCascadeRows *rows, int index)
{
	SweepCascadeRows *copy = sweep_cascade_new_rows(rows->relation, rows->columns);

	copy->count = 1;
	copy->tables[0] = rows->tables[index];
	copy->places[0] = rows->places[index];
	memcpy(copy->nulls, &rows->nulls[index * rows->columns], sizeof(bool) * rows->columns);
	memcpy(copy->types, rows->types, sizeof(Oid) * rows->columns);
	for (int column = 0; column < rows->columns; column++)
	{
		int16		length;
		bool		by_value;

		if (copy->nulls[column])
			continue;
		get_typlenbyval(rows->types[column], &length, &by_value);
		copy->values[column] = datumCopy(rows->values[index * rows->columns + column], by_value, length);
	}
	return copy;
}

bool
sweep_cascade_is_row(const SweepCascadeRows *rows, int index, const SweepCascadeRows *others, int other)
{
	return rows->tables[index] == others->tables[other] && ItemPointerEquals(&rows->places[index], &others->places[other]) && sweep_cascade_has_key(rows, index, others, other);
}

bool
sweep_cascade_has_key(const SweepCascadeRows *rows, int index, const SweepCascadeRows *others, int other)
{
	bool		is_same = rows->columns == others->columns;

	for (int column = 0; is_same && column < rows->columns; column++)
	{
		int			own = index * rows->columns + column;
		int			its = other * rows->columns + column;
		int16		length;
		bool		by_value;

		is_same = rows->types[column] == others->types[column] && rows->nulls[own] == others->nulls[its];
		if (!is_same || rows->nulls[own])
			continue;
		get_typlenbyval(rows->types[column], &length, &by_value);
		is_same = datum_image_eq(rows->values[own], others->values[its], by_value, length);
	}
	return is_same;
}

Datum
sweep_cascade_places(const SweepCascadeRows *rows, int first, int count)
{
	return places_in(&(Locked) {.rows = rows, .first = first, .count = count});
}

/* The places of the rows, without those of other tables unless "table" is InvalidOid. */
static Datum
places_in(const Locked *some)
{
	Datum	   *places = palloc(sizeof(Datum) * (some->count + 1));
	int			count = 0;

	for (int i = some->first; i < some->first + some->count; i++)
	{
		if (!OidIsValid(some->table) || some->rows->tables[i] == some->table)
			places[count++] = PointerGetDatum(&some->rows->places[i]);
	}
	return PointerGetDatum(construct_array(places, count, TIDOID, sizeof(ItemPointerData), false, TYPALIGN_SHORT));
}

Datum
sweep_cascade_tables(const SweepCascadeRows *rows)
{
	Datum	   *tables = palloc(sizeof(Datum) * (rows->count + 1));

	for (int i = 0; i < rows->count; i++)
		tables[i] = ObjectIdGetDatum(rows->tables[i]);
	return PointerGetDatum(construct_array(tables, rows->count, OIDOID, sizeof(Oid), true, TYPALIGN_INT));
}

void
sweep_cascade_lock(SweepCascade *cascade, const SweepCascadeRows *rows, int first, int count)
{
	lock_rows(&(Locked) {.cascade = cascade, .rows = rows, .first = first, .count = count});
}

SweepCascadeRows *
sweep_cascade_lock_free(SweepCascade *cascade, SweepCascadeRows *rows)
{
	SweepCascadeRows *held = sweep_cascade_new_rows(rows->relation, 0);
	Locked		locked = {.cascade = cascade, .rows = rows, .count = rows->count, .got = sweep_cascade_new_set(CurrentMemoryContext)};
	int			count = 0;

	lock_rows(&locked);
	for (int i = 0; i < rows->count; i++)
	{
		if (!sweep_cascade_is_in_set(locked.got, rows->tables[i], &rows->places[i]))
		{
			sweep_cascade_add_place(held, rows->tables[i], &rows->places[i]);
			continue;
		}
		rows->tables[count] = rows->tables[i];
		rows->places[count] = rows->places[i];
		memmove(&rows->values[count * rows->columns], &rows->values[i * rows->columns], sizeof(Datum) * rows->columns);
		memmove(&rows->nulls[count * rows->columns], &rows->nulls[i * rows->columns], sizeof(bool) * rows->columns);
		count++;
	}
	rows->count = count;
	hash_destroy(locked.got);
	return held;
}

/* Locks the rows of each table as its owner. The role of the job only needs the right to delete rows of the target. */
static void
lock_rows(const Locked *some)
{
	const SweepCascadeRows *rows = some->rows;

	for (int i = some->first; i < some->first + some->count; i++)
	{
		Locked		of_table = *some;
		SweepDoor	door;
		Oid			owner;
		int			other = some->first;

		while (rows->tables[other] != rows->tables[i])
			other++;
		owner = other == i ? sweep_role_owning(RelationRelationId, rows->tables[i]) : InvalidOid;
		of_table.table = rows->tables[i];
		if (!OidIsValid(owner))
			continue;
		sweep_door_enter_owner(&door, owner);
		lock_table(&of_table);
		sweep_door_leave(&door);
	}
}

static void
lock_table(const Locked *locked)
{
	Oid			type = TIDARRAYOID;
	Datum		places = places_in(locked);
	char	   *name = get_rel_name(locked->table);
	SweepCascade *cascade = locked->cascade;
	bool		skips = locked->got != NULL;
	uint64		count;

	/* A partition may have been dropped since its rows were found. */
	if (name == NULL)
		return;
	sweep_sql_connect();
	if (cascade->lock_plan != NULL && (cascade->lock_table != locked->table || cascade->lock_skips != skips))
	{
		sweep_sql_free_plan(cascade->lock_plan);
		cascade->lock_plan = NULL;
	}
	sweep_owner_plan(&cascade->lock_plan, psprintf("SELECT ctid FROM ONLY %s WHERE ctid OPERATOR(pg_catalog.=) ANY ($1) FOR UPDATE%s",
												   quote_qualified_identifier(get_namespace_name(get_rel_namespace(locked->table)), name),
												   skips ? " SKIP LOCKED" : ""), 1, &type, locked->table, RowShareLock, false);
	cascade->lock_table = locked->table;
	cascade->lock_skips = skips;
	count = sweep_sql_execute_plan(cascade->lock_plan, &places, NULL);
	for (uint64 row = 0; row < count && locked->got != NULL; row++)
	{
		sweep_sql_row(row);
		(void) sweep_cascade_add_to_set(locked->got, locked->table, &sweep_sql_tid(1));
	}
	sweep_sql_end_call();
}
