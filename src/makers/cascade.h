/*
 * cascade.h
 *		Rows that are deleted, or lose their reference, with the rows that a batch deletes.
 */
#ifndef SWEEP_CASCADE_H
#define SWEEP_CASCADE_H

#include "postgres.h"

#include "lib/stringinfo.h"
#include "storage/itemptr.h"
#include "utils/hsearch.h"

#include "base/door.h"
#include "base/sql.h"

/* The statements of a foreign key; sweep._cascade_statements makes them. */
typedef enum SweepCascadeStatement
{
	CASCADE_COUNTS,
	CASCADE_FINDS,
	CASCADE_REMOVES,
	CASCADE_HOLDS,
	CASCADE_STATEMENT_COUNT
} SweepCascadeStatement;

/* A foreign key: with rows of the parent, rows of the child are deleted or changed, or these keep the parent's rows. */
typedef struct SweepCascadeKey
{
	Oid			foreign_key;
	Oid			parent;
	Oid			child;
	Oid			root;			/* the partitioned table that the child is a partition of, or the child */
	int			count;			/* columns of the key */
	Oid		   *places;			/* of each, its index among the columns that are read of the parent */
	Oid		   *elements;		/* their types */
	Oid		   *types;			/* their array types */
	bool		keeps;			/* a row that refers by it keeps the referenced row from being deleted */
	bool		deletes;		/* a row that refers by it is deleted with the referenced one; if neither, it loses its reference */
	bool		is_shared;		/* rows of the child refer to deleted rows by other keys, too */
	int64		counted;		/* number of rows that sweep_cascade_tally has found by it */
	double		weight;			/* rows affected by deleting a row of the child, itself included, at the last count; 0 = not known */
	int			columns;		/* number of columns read of the child, if its rows affect other rows; 0 = they are only counted */
	Oid		   *attributes;		/* their numbers in the child */
	char	   *texts[CASCADE_STATEMENT_COUNT];
	SweepPlan  *plans[CASCADE_STATEMENT_COUNT];	/* NULL = not prepared yet */
	uint64		planned_in[CASCADE_STATEMENT_COUNT];	/* the batch in which the plan was last checked */
} SweepCascadeKey;

typedef struct SweepCascade
{
	MemoryContextCallback callback;
	Oid			relation;		/* the target */
	int			columns;		/* number of columns that are read of it */
	uint64		batch;			/* its number in the run */
	bool		has_keepers;	/* "keeps" of a key is set */
	bool		locks;			/* rows below those of the batch are locked as they are counted */
	bool		is_kept;		/* result of the last count: some of the rows cannot be deleted, because others refer to them */
	List	   *before;			/* rows that the transaction had deleted and updated when the batch began, by table */
	SweepPlan  *lock_plan;		/* statement that locks rows of lock_table; NULL = none yet */
	Oid			lock_table;
	bool		lock_skips;		/* it skips rows that other sessions have locked */
	int			count;
	SweepCascadeKey keys[FLEXIBLE_ARRAY_MEMBER];
} SweepCascade;

/* Rows of a table. */
typedef struct SweepCascadeRows
{
	Oid			relation;		/* the table */
	int			columns;		/* number of columns of the key */
	int			count;
	int			room;
	Oid		   *tables;			/* of each row: its partition, or the table */
	ItemPointer places;
	Datum	   *values;			/* of each row: the columns that sweep._referred_columns lists */
	bool	   *nulls;
	Oid		   *types;			/* types of these columns in the rows */
} SweepCascadeRows;

/* A set of rows, in the given context. Adding a row returns whether it was new. */
extern HTAB *sweep_cascade_new_set(MemoryContext context);
extern bool sweep_cascade_add_to_set(HTAB *set, Oid table, ItemPointer place);
extern bool sweep_cascade_is_in_set(HTAB *set, Oid table, ItemPointer place);

/* The foreign keys to a table and to the tables whose rows are affected through them, in the given context; NULL when there are none. */
extern SweepCascade *sweep_cascade_make(MemoryContext context, Oid relation);

/*
 * To be called at the start of each batch: notes the counts from which the batch's report is computed. Plans, which may have become
 * invalid, are checked again. Raises an error when PostgreSQL counts no rows or follows no foreign keys.
 */
extern void sweep_cascade_begin_batch(SweepCascade *cascade);

/* An empty list of rows with that many columns to read; in the current memory context. */
extern SweepCascadeRows *sweep_cascade_new_rows(Oid relation, int columns);

/* Adds a row of the current result: tableoid, ctid and the key. */
extern void sweep_cascade_add_row(SweepCascadeRows *rows, MemoryContext context);

/* Adds a row without a key. */
extern void sweep_cascade_add_place(SweepCascadeRows *rows, Oid table, ItemPointer place);

/* A copy of one of the rows, in the current memory context. */
extern SweepCascadeRows *sweep_cascade_copy_row(const SweepCascadeRows *rows, int index);

/* Whether two rows are the same: partition, place and key are equal. The key is compared because the place may have been reused. */
extern bool sweep_cascade_is_row(const SweepCascadeRows *rows, int index, const SweepCascadeRows *others, int other);
extern bool sweep_cascade_has_key(const SweepCascadeRows *rows, int index, const SweepCascadeRows *others, int other);

/* The places of some rows as tid[], the tables of all as oid[]; in the current memory context. */
extern Datum sweep_cascade_places(const SweepCascadeRows *rows, int first, int count);
extern Datum sweep_cascade_tables(const SweepCascadeRows *rows);

/* Locks some rows as FOR UPDATE does, so that no session adds a row that refers to them. */
extern void sweep_cascade_lock(SweepCascade *cascade, const SweepCascadeRows *rows, int first, int count);

/*
 * Locks all rows, except those that other sessions have locked, or have changed since. These are removed from the list and returned, in
 * the current memory context.
 */
extern SweepCascadeRows *sweep_cascade_lock_free(SweepCascade *cascade, SweepCascadeRows *rows);

/*
 * The number of rows that a DELETE of some rows deletes or changes, themselves included. A result above "most" means that there are
 * more, or that cascade->is_kept is set.
 */
extern int64 sweep_cascade_count(SweepCascade *cascade, const SweepCascadeRows *rows, int first, int count, int64 most);

/*
 * Counts, without locks, the other rows that a DELETE of some rows deletes or changes: adds to "counted" of each key. "seen" has these
 * rows and all rows that were counted before; the new ones are added.
 */
extern void sweep_cascade_tally(SweepCascade *cascade, const SweepCascadeRows *rows, HTAB *seen);

/*
 * Reads the rows that refer by a key to some rows from an index, and stops after "most" of them. Returns their number, or -1 when no index can
 * be used. If other rows are affected by these rows (key->columns), the rows that are not in "seen" are added to it, and to "children", with
 * their keys. If none are, "children" gets the place of each index entry, also of dead rows. Without "children" entries are only counted; if
 * several keys reach a row, it is counted if it is not in "seen".
 */
extern int64 sweep_cascade_read_index(const SweepCascadeKey *key, const SweepCascadeRows *rows, int first, int count, int64 most, SweepCascadeRows *children, HTAB *seen);

/*
 * Executes a statement of a key as the owner of the child. The values are the arrays of sweep_cascade_key_values, and further parameters.
 * Returns the number of rows of the result, which are read before sweep_cascade_leave(); -1 when the child was dropped: then
 * sweep_cascade_leave() is not called.
 */
extern int64 sweep_cascade_execute(SweepDoor *door, SweepCascade *cascade, SweepCascadeKey *key, SweepCascadeStatement which, Datum *values);
extern void sweep_cascade_leave(SweepDoor *door);

/* Raises an error unless the rows have the columns to which a key refers, with the types of the start of the run. */
extern void sweep_cascade_check_types(const SweepCascadeKey *key, const SweepCascadeRows *rows);

/* The keys of some rows as arrays, with room for two more values. *found: the number of rows whose key has no null; if 0, no row refers to them. */
extern Datum *sweep_cascade_key_values(const SweepCascadeKey *key, const SweepCascadeRows *rows, int first, int count, int *found);

/*
 * Appends the members "tables" and "touched" to a JSON object, from the rows that the batch has deleted and changed; "deleted" is the
 * number of its own rows. Returns the number of touched rows; json may be NULL.
 */
extern int64 sweep_cascade_report(SweepCascade *cascade, int64 deleted, StringInfo json);

/* The members of an object "tables": "found" rows of the relation, and what sweep_cascade_tally has counted. NULL without a cascade. */
extern char *sweep_cascade_report_counts(const SweepCascade *cascade, Oid relation, int64 found);

#endif							/* SWEEP_CASCADE_H */
