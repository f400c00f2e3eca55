/*
 * cascade.h
 *		Rows that go, or lose their reference, with the rows that a batch deletes.
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

/* A foreign key, of a table whose rows go or change with those of another one. */
typedef struct SweepCascadeKey
{
	Oid			foreign_key;
	Oid			parent;
	Oid			child;
	Oid			root;			/* the partitioned table that the child is a partition of, or the child */
	int			count;			/* columns of the key */
	Oid		   *places;			/* of each, its number among the columns of the parent that are read */
	Oid		   *elements;		/* their types */
	Oid		   *types;			/* the types of arrays of them */
	bool		keeps;			/* a row that refers by it keeps the other one from being deleted */
	bool		deletes;		/* a row that refers by it is deleted with the other one; if neither, it loses its reference */
	bool		is_shared;		/* the rows of the child refer by other keys, too, to rows that go */
	int64		counted;		/* rows that sweep_cascade_tally has found by it */
	double		weight;			/* rows that go with a row of the child, itself included, as was found when some were counted last; 0 = not known */
	int			columns;		/* number of columns that are read of the child, because rows go with it; 0 = its rows are counted */
	Oid		   *attributes;		/* their numbers in the child */
	char	   *texts[CASCADE_STATEMENT_COUNT];
	SweepPlan  *plans[CASCADE_STATEMENT_COUNT];	/* NULL = not prepared yet */
	uint64		planned_in[CASCADE_STATEMENT_COUNT];	/* the batch in which the plan was last looked at */
} SweepCascadeKey;

typedef struct SweepCascade
{
	MemoryContextCallback callback;
	Oid			relation;		/* the target */
	int			columns;		/* that are read of it */
	uint64		batch;			/* its number in the run */
	bool		has_keepers;	/* some key keeps rows */
	bool		locks;			/* rows below those of the batch are locked as they are counted */
	bool		is_kept;		/* what was counted last cannot be deleted: other rows refer to some of it */
	List	   *before;			/* rows that the transaction had deleted and updated when the batch began, by table */
	SweepPlan  *lock_plan;		/* of the statement that locks rows of a table; NULL = none yet */
	Oid			lock_table;
	bool		lock_skips;		/* it leaves out those that other sessions hold */
	int			count;
	SweepCascadeKey keys[FLEXIBLE_ARRAY_MEMBER];
} SweepCascade;

/* Rows of a table. */
typedef struct SweepCascadeRows
{
	Oid			relation;		/* the table */
	int			columns;		/* of the key of each */
	int			count;
	int			room;
	Oid		   *tables;			/* of each, its partition, or the table */
	ItemPointer places;
	Datum	   *values;			/* of each, the columns that sweep._referred_columns lists */
	bool	   *nulls;
	Oid		   *types;			/* of these columns, as the rows have them */
} SweepCascadeRows;

/* A set of rows, in the given context. Adding a row returns whether it was new. */
extern HTAB *sweep_cascade_new_set(MemoryContext context);
extern bool sweep_cascade_add_to_set(HTAB *set, Oid table, ItemPointer place);
extern bool sweep_cascade_is_in_set(HTAB *set, Oid table, ItemPointer place);

/* The foreign keys to a table and to what goes with it, in the given context; NULL when there are none. */
extern SweepCascade *sweep_cascade_make(MemoryContext context, Oid relation);

/*
 * At the start of each batch: what is reported in its end begins to be counted, and plans are looked at anew, which may have become invalid
 * since the last one. Raises when PostgreSQL counts nothing.
 */
extern void sweep_cascade_begin_batch(SweepCascade *cascade);

/* Rows of a table with that many columns to read; in the current memory context. */
extern SweepCascadeRows *sweep_cascade_new_rows(Oid relation, int columns);

/* Adds a row of the current result: tableoid, ctid and the key. */
extern void sweep_cascade_add_row(SweepCascadeRows *rows, MemoryContext context);

/* Adds a row without a key. */
extern void sweep_cascade_add_place(SweepCascadeRows *rows, Oid table, ItemPointer place);

/* A copy of one of the rows, in the current memory context. */
extern SweepCascadeRows *sweep_cascade_copy_row(const SweepCascadeRows *rows, int index);

/* Whether two rows are the same: of one partition, at one place, with the same key. A place may be that of another row since. */
extern bool sweep_cascade_is_row(const SweepCascadeRows *rows, int index, const SweepCascadeRows *others, int other);

/* The places of some rows as tid[], and their tables as oid[]; in the current memory context. */
extern Datum sweep_cascade_places(const SweepCascadeRows *rows, int first, int count);
extern Datum sweep_cascade_tables(const SweepCascadeRows *rows);

/* Locks some rows as FOR UPDATE does, so that no session adds a row that refers to them. */
extern void sweep_cascade_lock(SweepCascade *cascade, const SweepCascadeRows *rows, int first, int count);

/*
 * The same for all rows, but for those that other sessions hold, or have changed since: these are taken out and returned, in the current
 * memory context.
 */
extern SweepCascadeRows *sweep_cascade_lock_free(SweepCascade *cascade, SweepCascadeRows *rows);

/*
 * The number of rows that a DELETE of some rows deletes or changes, themselves included; more than most means "at least that", or that
 * cascade->is_kept.
 */
extern int64 sweep_cascade_count(SweepCascade *cascade, const SweepCascadeRows *rows, int first, int count, int64 most);

/*
 * Counts, without locks, what a DELETE of some rows deletes or changes beside them: adds to the "counted" of each key. The set has the
 * rows that were counted before, and those rows themselves; it gets the others.
 */
extern void sweep_cascade_tally(SweepCascade *cascade, const SweepCascadeRows *rows, HTAB *seen);

/*
 * Reads the rows that refer by a key to some rows from an index, at most that many; returns their number, or -1 when there is no index for
 * that. Where others go with them, those that are not in the set yet are added to it, and to the children, with their keys. Where none do, the
 * children get the places of all that has an entry, be it a row that has gone; without children entries are counted, those of rows that
 * several keys reach if they are not in the set.
 */
extern int64 sweep_cascade_read_index(const SweepCascadeKey *key, const SweepCascadeRows *rows, int first, int count, int64 most, SweepCascadeRows *children, HTAB *seen);

/*
 * Executes a statement of a key as the owner of the child. Values are the arrays that sweep_cascade_key_values makes, and what follows them.
 * Returns the number of rows of the result, which is to be read before sweep_cascade_leave(); -1 when the child was dropped: then nothing
 * was done, and nothing is to be left.
 */
extern int64 sweep_cascade_execute(SweepDoor *door, SweepCascade *cascade, SweepCascadeKey *key, SweepCascadeStatement which, Datum *values);
extern void sweep_cascade_leave(SweepDoor *door);

/* Raises unless the columns to which a key refers are in the rows, of the types that they had when the run began. */
extern void sweep_cascade_check_types(const SweepCascadeKey *key, const SweepCascadeRows *rows);

/* The keys of some rows, with room for two more values; the number of rows whose key has no null is 0 when nothing refers to them. */
extern Datum *sweep_cascade_key_values(const SweepCascadeKey *key, const SweepCascadeRows *rows, int first, int count, int *found);

/*
 * Appends to a JSON object what the batch has done, as members "tables" and "touched"; deleted are its own rows. Returns the number of
 * rows touched; json may be NULL.
 */
extern int64 sweep_cascade_report(SweepCascade *cascade, int64 deleted, StringInfo json);

/* The members of an object "tables" for so many rows of the relation, and what sweep_cascade_tally has counted; without a cascade NULL. */
extern char *sweep_cascade_report_counts(const SweepCascade *cascade, Oid relation, int64 found);

#endif							/* SWEEP_CASCADE_H */
