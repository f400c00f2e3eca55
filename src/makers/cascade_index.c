/*
 * cascade_index.c
 *		Reads the rows that refer to others from an index, without a statement.
 *
 * Called by cascade.c and dismantle.c. If rows are only counted, or deleted by ctid later, the table is not read: each row has an index entry,
 * and entries of dead rows do no harm. They make the count too high, or the DELETE finds no row there. Partitioned tables, and keys without a
 * suitable index, are read by statements.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "miscadmin.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/snapmgr.h"

#include "base/compat_table.h"
#include "base/door.h"
#include "base/role.h"
#include "makers/cascade.h"

typedef struct Reading
{
	const SweepCascadeKey *key;
	const SweepCascadeRows *rows;
	int			first;
	int			count;
	int64		most;
	SweepCascadeRows *children;
	HTAB	   *seen;
	MemoryContext context;
	int64		found;
} Reading;

static void read_all(Reading *reading);
static Relation open_index(Relation table, const SweepCascadeKey *key, ScanKey scan_keys);
static bool serves(Relation index, const ForeignKeyCacheInfo *foreign_key, Relation table);
static bool set_values(const Reading *reading, int row, ScanKey scan_keys);
static void read_matches(Reading *reading, IndexScanDesc scan, TupleTableSlot *slot);
static void add_row(Reading *reading, TupleTableSlot *slot);

int64
sweep_cascade_read_index(const SweepCascadeKey *key, const SweepCascadeRows *rows, int first, int count, int64 most, SweepCascadeRows *children, HTAB *seen)
{
	Reading		reading = {key, rows, first, count, most, children, seen, CurrentMemoryContext, -1};
	Oid			owner = sweep_role_owning(RelationRelationId, key->child);
	SweepDoor	door;

	sweep_cascade_check_types(key, rows);
	if (!OidIsValid(owner))
		return reading.found;
	sweep_door_enter_owner(&door, owner);
	read_all(&reading);
	sweep_door_leave(&door);
	return reading.found;
}

static void
read_all(Reading *reading)
{
	ScanKeyData scan_keys[INDEX_MAX_KEYS];
	Relation	table = try_table_open(reading->key->child, AccessShareLock);
	Relation	index = table != NULL && table->rd_rel->relkind == RELKIND_RELATION ? open_index(table, reading->key, scan_keys) : NULL;

	if (index != NULL)
	{
		TupleTableSlot *slot = reading->key->columns > 0 ? table_slot_create(table, NULL) : NULL;
		IndexScanDesc scan;

		reading->found = 0;
		CommandCounterIncrement();
		PushActiveSnapshot(GetTransactionSnapshot());
		scan = sweep_index_beginscan(table, index, GetActiveSnapshot(), reading->key->count);
		for (int row = reading->first; row < reading->first + reading->count && reading->found < reading->most; row++)
		{
			if (!set_values(reading, row, scan_keys))
				continue;
			index_rescan(scan, scan_keys, reading->key->count, NULL, 0);
			read_matches(reading, scan, slot);
		}
		index_endscan(scan);
		PopActiveSnapshot();
		if (slot != NULL)
			ExecDropSingleTupleTableSlot(slot);
		index_close(index, NoLock);
	}
	if (table != NULL)
		table_close(table, NoLock);
}

/* An index that begins with the columns of the foreign key, in its order; NULL = none. */
static Relation
open_index(Relation table, const SweepCascadeKey *key, ScanKey scan_keys)
{
	const ForeignKeyCacheInfo *foreign_key = NULL;
	ListCell   *cell;

	foreach(cell, RelationGetFKeyList(table))
	{
		const ForeignKeyCacheInfo *other = lfirst(cell);

		if (other->conoid == key->foreign_key)
			foreign_key = other;
	}
	if (foreign_key == NULL)
		return NULL;
	foreach(cell, RelationGetIndexList(table))
	{
		Relation	index = index_open(lfirst_oid(cell), AccessShareLock);

		if (serves(index, foreign_key, table))
		{
			for (int i = 0; i < key->count; i++)
				ScanKeyEntryInitialize(&scan_keys[i], 0, i + 1, BTEqualStrategyNumber, InvalidOid, index->rd_indcollation[i],
									   get_opcode(foreign_key->conpfeqop[i]), (Datum) 0);
			return index;
		}
		index_close(index, AccessShareLock);
	}
	return NULL;
}

/* Operator and collation of the index must be those of the foreign key, so that both sides have the type of the index. */
static bool
serves(Relation index, const ForeignKeyCacheInfo *foreign_key, Relation table)
{
	const FormData_pg_index *form = index->rd_index;
	bool		serves = index->rd_rel->relam == BTREE_AM_OID && form->indisvalid && !form->indcheckxmin && form->indnkeyatts >= foreign_key->nkeys &&
		RelationGetIndexPredicate(index) == NIL;

	for (int i = 0; serves && i < foreign_key->nkeys; i++)
	{
		Oid			type = index->rd_opcintype[i];
		Oid			referred_type;
		int32		referred_modifier;
		Oid			referred_collation;

		get_atttypetypmodcoll(foreign_key->confrelid, foreign_key->confkey[i], &referred_type, &referred_modifier, &referred_collation);
		serves = form->indkey.values[i] == foreign_key->conkey[i] &&
			index->rd_indcollation[i] == TupleDescAttr(RelationGetDescr(table), foreign_key->conkey[i] - 1)->attcollation &&
			index->rd_indcollation[i] == referred_collation &&
			get_opfamily_member(index->rd_opfamily[i], type, type, BTEqualStrategyNumber) == foreign_key->conpfeqop[i];
	}
	return serves;
}

/* False when no row can refer to this one, because its key has a null. */
static bool
set_values(const Reading *reading, int row, ScanKey scan_keys)
{
	const SweepCascadeRows *rows = reading->rows;

	for (int i = 0; i < reading->key->count; i++)
	{
		int			place = row * rows->columns + (int) reading->key->places[i] - 1;

		if (rows->nulls[place])
			return false;
		scan_keys[i].sk_argument = rows->values[place];
	}
	return true;
}

static void
read_matches(Reading *reading, IndexScanDesc scan, TupleTableSlot *slot)
{
	ItemPointer place;

	while (reading->found < reading->most)
	{
		CHECK_FOR_INTERRUPTS();
		if (slot != NULL)
		{
			if (!index_getnext_slot(scan, ForwardScanDirection, slot))
				return;
			if (sweep_cascade_add_to_set(reading->seen, slot->tts_tableOid, &slot->tts_tid))
				add_row(reading, slot);
		}
		else
		{
			if ((place = index_getnext_tid(scan, ForwardScanDirection)) == NULL)
				return;
			/* A row that several keys reach is counted once. */
			if (reading->children != NULL)
				sweep_cascade_add_place(reading->children, reading->key->child, place);
			else if (reading->key->is_shared && !sweep_cascade_add_to_set(reading->seen, reading->key->child, place))
				continue;
		}
		reading->found++;
	}
}

static void
add_row(Reading *reading, TupleTableSlot *slot)
{
	SweepCascadeRows *rows = reading->children;
	MemoryContext old = MemoryContextSwitchTo(reading->context);
	int			first = rows->count * rows->columns;

	sweep_cascade_add_place(rows, slot->tts_tableOid, &slot->tts_tid);
	for (int column = 0; column < rows->columns; column++)
	{
		const FormData_pg_attribute *attribute = TupleDescAttr(slot->tts_tupleDescriptor, (int) reading->key->attributes[column] - 1);
		Datum		value = slot_getattr(slot, attribute->attnum, &rows->nulls[first + column]);

		rows->types[column] = attribute->atttypid;
		rows->values[first + column] = rows->nulls[first + column] ? (Datum) 0 : datumCopy(value, attribute->attbyval, attribute->attlen);
	}
	MemoryContextSwitchTo(old);
}
