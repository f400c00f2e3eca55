/*
 * dismantle.c
 *		Deletes a row in several batches, because too many rows would be deleted or changed with it.
 *
 * Called by ranges.c in each batch, until the row and the rest of its children fit into one. The places of the children are read once; then they
 * are deleted in slices, each with all rows that are affected. A child that does not fit into a batch either is dismantled first. The children
 * are not searched for each slice, because each search would read the index entries of all children that were deleted before.
 *
 * A place may have been reused when a child is to be deleted, so the statement checks the foreign key again. A child that has moved is found
 * when the children are read again. A child that is dismantled itself is locked before rows below it are deleted, and again in each batch; if
 * there is another row at its place by then, or it refers to another row, the row of the target is begun anew.
 */
#include "postgres.h"

#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "makers/dismantle.h"

/* Maximal number of places of children in memory; when these children are deleted, the next ones are read. */
#define MAX_PLACES 1000000
/* The same if keys are kept with the places. */
#define MAX_KEYED_PLACES 50000
/* From that many children on, only their index entries are read; when these children are deleted, the rest is read once more. */
#define MIN_ROUGH_PLACES 500

/* A row whose children are being deleted, key by key. */
typedef struct Frame
{
	struct Frame *above;		/* the row that it refers to; NULL = none */
	MemoryContext context;
	SweepCascadeRows *row;
	int			key;			/* the present key: index among all keys of the cascade */
	SweepCascadeRows *children; /* by this key; NULL = not read yet */
	bool		is_full;		/* the list has the maximal length: there may be more children */
	bool		is_rough;		/* they are index entries: some may be dead rows, and rows may have moved within their pages */
	uint64		read_in;		/* the batch in which they were read */
	bool		is_stale;		/* more children may have come since another key was finished, in an earlier batch */
	int			next;			/* the next child */
	bool		is_rest;		/* the next child has been dismantled, and the rest of it is to be deleted */
	bool		is_bare;		/* nothing is left below that child */
	bool		is_stuck;		/* nothing below that child could be deleted */
	int64		touched;		/* number of rows below it that were touched, including its children */
	bool		has_removed;	/* since the frame began */
	int64		list_removed;	/* number of children removed since they were read */
} Frame;

struct SweepDismantling
{
	MemoryContext context;
	SweepCascade *cascade;
	Frame	   *top;
	SweepCascadeRows *row;		/* the row of the target */
};

/* The number of rows that a batch may still touch. */
typedef struct Budget
{
	int64		size;			/* of the batch, at its start */
	int64		left;
	bool		is_kept;		/* rows below the row cannot be deleted, because others refer to them by now */
} Budget;

static void begin(SweepDismantling **kept, MemoryContext context, SweepCascade *cascade, const SweepCascadeRows *row);
static bool holds_all(const SweepDismantling *dismantling);
static bool holds(SweepCascade *cascade, const Frame *frame, const SweepCascadeRows *rows, int index);
static void push(SweepDismantling *dismantling, const SweepCascadeRows *rows, int index);
static bool note_circle(const SweepDismantling *dismantling, HTAB **circles, MemoryContext context);
static bool is_row(const Frame *frame, Oid table, ItemPointer place);
static bool pop(SweepDismantling *dismantling, bool *is_bare);
static bool remove_fitting(SweepDismantling *dismantling, Budget *budget);
static bool is_large(const SweepDismantling *dismantling, const SweepCascadeKey *key, int64 size);
static bool find_children(SweepDismantling *dismantling);
static bool is_removed(const SweepCascade *cascade, const Frame *frame);
static void read_children(SweepCascade *cascade, Frame *frame, SweepCascadeKey *key, bool visits);
static bool read_index(Frame *frame, SweepCascadeKey *key, int64 most);
static void read_places(Frame *frame, int64 count);
static int	one_table(const SweepCascadeRows *rows, int first, int64 most);
static void remove_children(SweepDismantling *dismantling, int count, int64 touched, Budget *budget);
static int64 count_removed(const SweepCascadeKey *key, int64 count);

bool
sweep_dismantle_is_of(const SweepDismantling *dismantling, const SweepCascadeRows *row)
{
	return row->count == 1 && sweep_cascade_is_row(row, 0, dismantling->row, 0);
}

bool
sweep_dismantle_has_row(const SweepDismantling *dismantling, const SweepCascadeRows *row, const SweepCascadeRows *held)
{
	const SweepCascadeRows *own = dismantling->row;

	if (held->count == 1)
		return held->tables[0] == own->tables[0] && ItemPointerEquals(&held->places[0], &own->places[0]);
	return row->count == 1 && sweep_cascade_has_key(row, 0, own, 0);
}

void
sweep_dismantle_free(SweepDismantling **dismantling)
{
	if (*dismantling != NULL)
		MemoryContextDelete((*dismantling)->context);
	*dismantling = NULL;
}

SweepDismantled
sweep_dismantle(SweepDismantling **kept, HTAB **circles, MemoryContext context, SweepCascade *cascade, const SweepCascadeRows *row, int32 size, int64 *left)
{
	SweepDismantling *dismantling;
	Budget		budget = {.size = size, .left = size};
	SweepDismantled result;
	bool		is_bare = false;

	if (*kept != NULL && !holds_all(*kept))
		sweep_dismantle_free(kept);
	if (*kept == NULL)
		begin(kept, context, cascade, row);
	dismantling = *kept;
	while (dismantling->top != NULL && budget.left > 0)
	{
		Frame	   *frame = dismantling->top;

		if (!find_children(dismantling))
		{
			if (!pop(dismantling, &is_bare))
				break;
		}
		else if (frame->children->columns == 0)
			remove_children(dismantling, one_table(frame->children, frame->next, budget.left), 0, &budget);
		else if (!remove_fitting(dismantling, &budget))
		{
			if (budget.is_kept)
				break;
			if (budget.left < budget.size && (frame->is_rest || !is_large(dismantling, &cascade->keys[frame->key], size)))
				return DISMANTLE_GOES_ON;
			if (frame->is_stuck)
				break;
			if (note_circle(dismantling, circles, context))
			{
				sweep_dismantle_free(kept);
				return DISMANTLE_CIRCLE;
			}
			if (holds(cascade, frame, frame->children, frame->next))
				push(dismantling, frame->children, frame->next);
			else
				read_children(cascade, frame, &cascade->keys[frame->key], true);
		}
	}
	*left = budget.left;
	if (dismantling->top != NULL && budget.left <= 0)
		return DISMANTLE_GOES_ON;
	result = dismantling->top != NULL ? DISMANTLE_KEPT : is_bare ? DISMANTLE_BARE : DISMANTLE_ENDED;
	sweep_dismantle_free(kept);
	return result;
}

static void
begin(SweepDismantling **kept, MemoryContext context, SweepCascade *cascade, const SweepCascadeRows *row)
{
	MemoryContext own = AllocSetContextCreate(context, "pg_sweep dismantling", ALLOCSET_DEFAULT_SIZES);
	SweepDismantling *dismantling = *kept = MemoryContextAllocZero(own, sizeof(SweepDismantling));

	dismantling->context = own;
	dismantling->cascade = cascade;
	push(dismantling, row, 0);
	dismantling->row = dismantling->top->row;
}

/* Locks the rows of the frames below that of the target, from the top down; false when one does not refer to the row above it any more. */
static bool
holds_all(const SweepDismantling *dismantling)
{
	List	   *frames = NIL;
	ListCell   *cell;
	bool		holds_all = true;

	for (Frame *frame = dismantling->top; frame->above != NULL; frame = frame->above)
		frames = lcons(frame, frames);
	foreach(cell, frames)
	{
		const Frame *frame = lfirst(cell);

		holds_all = holds_all && holds(dismantling->cascade, frame->above, frame->row, 0);
	}
	list_free(frames);
	return holds_all;
}

/* Locks a child of the row of a frame; false when there is another row at its place, or when it refers to another one. */
static bool
holds(SweepCascade *cascade, const Frame *frame, const SweepCascadeRows *rows, int index)
{
	SweepCascadeKey *key = &cascade->keys[frame->key];
	SweepCascadeRows *held = sweep_cascade_new_rows(key->child, key->columns);
	int			found;
	Datum	   *values = sweep_cascade_key_values(key, frame->row, 0, 1, &found);
	SweepDoor	door;
	int64		count;

	values[key->count] = sweep_cascade_places(rows, index, 1);
	values[key->count + 1] = ObjectIdGetDatum(rows->tables[index]);
	count = sweep_cascade_execute(&door, cascade, key, CASCADE_HOLDS, values);
	if (count < 0)
		return false;
	for (int64 row = 0; row < count; row++)
	{
		sweep_sql_row(row);
		sweep_cascade_add_row(held, GetMemoryChunkContext(held));
	}
	sweep_cascade_leave(&door);
	return held->count == 1 && sweep_cascade_is_row(held, 0, rows, index);
}

/*
 * Ends the top frame: the rest of its row is deleted as a child of the frame above, or by the batch itself. False when nothing below the row of
 * the target could be deleted: each further batch would try it again.
 */
static bool
pop(SweepDismantling *dismantling, bool *is_bare)
{
	Frame	   *frame = dismantling->top;

	*is_bare = !frame->is_stale && !dismantling->cascade->has_keepers;

	if (frame->above == NULL && !frame->has_removed)
		return false;
	if (frame->above != NULL)
	{
		dismantling->cascade->keys[frame->above->key].weight = (double) frame->touched + 1;
		frame->above->touched += frame->touched;
		frame->above->has_removed |= frame->has_removed;
		frame->above->is_rest = true;
		frame->above->is_bare = *is_bare;
		frame->above->is_stuck = !frame->has_removed;
	}
	dismantling->top = frame->above;
	MemoryContextDelete(frame->context);
	return true;
}

/*
 * Deletes as many of the next children as fit into the batch with all affected rows; false when not even the first one does. How
 * many to try is estimated from the children before, because each failed attempt counts nearly a batch of rows in addition.
 */
static bool
remove_fitting(SweepDismantling *dismantling, Budget *budget)
{
	SweepCascade *cascade = dismantling->cascade;
	Frame	   *frame = dismantling->top;
	SweepCascadeKey *key = &cascade->keys[frame->key];
	int64		most = frame->is_rest ? 1 : (int64) (budget->left / Max(key->weight, 1.0));
	int			count;

	if (most == 0 && (budget->left < budget->size || is_large(dismantling, key, budget->size)))
		return false;
	count = one_table(frame->children, frame->next, Max(most, 1));
	if (cascade->locks)
		sweep_cascade_lock(cascade, frame->children, frame->next, count);
	for (; count > 0; count /= 2)
	{
		int64		touched = frame->is_rest && frame->is_bare ? 1 : sweep_cascade_count(cascade, frame->children, frame->next, count, budget->left);

		if (touched <= budget->left)
		{
			if (!frame->is_rest)
				key->weight = (double) touched / count;
			remove_children(dismantling, count, touched, budget);
			return true;
		}
	}
	if (!frame->is_rest)
		key->weight = Max(key->weight, budget->left + 1);
	budget->is_kept = cascade->is_kept;
	return false;
}

/*
 * Whether a child is dismantled without being counted, because the one before it did not fit. Not for a table that is at several
 * levels of a tree: its rows at lower levels may fit.
 */
static bool
is_large(const SweepDismantling *dismantling, const SweepCascadeKey *key, int64 size)
{
	if (dismantling->cascade->has_keepers || key->weight <= size)
		return false;
	for (const Frame *frame = dismantling->top; frame != NULL; frame = frame->above)
	{
		if (frame->row->relation == key->child)
			return false;
	}
	return true;
}

static void
push(SweepDismantling *dismantling, const SweepCascadeRows *rows, int index)
{
	MemoryContext context = AllocSetContextCreate(dismantling->context, "pg_sweep row", ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	Frame	   *frame = palloc0(sizeof(Frame));

	frame->above = dismantling->top;
	frame->context = context;
	frame->row = sweep_cascade_copy_row(rows, index);
	frame->key = -1;
	dismantling->top = frame;
	MemoryContextSwitchTo(old);
}

/* Whether the next child of the top row is one of the rows of the frames: then these rows are a circle, and are added to the set. */
static bool
note_circle(const SweepDismantling *dismantling, HTAB **circles, MemoryContext context)
{
	const Frame *top = dismantling->top;
	const Frame *same = top;

	while (same != NULL && !is_row(same, top->children->tables[top->next], &top->children->places[top->next]))
		same = same->above;
	if (same == NULL)
		return false;
	if (*circles == NULL)
		*circles = sweep_cascade_new_set(context);
	for (const Frame *frame = top; frame != same->above; frame = frame->above)
		(void) sweep_cascade_add_to_set(*circles, frame->row->tables[0], &frame->row->places[0]);
	return true;
}

static bool
is_row(const Frame *frame, Oid table, ItemPointer place)
{
	return frame->row->tables[0] == table && ItemPointerEquals(&frame->row->places[0], place);
}

/* Whether the row has children left. When those of a key are deleted, reads those of the next key. */
static bool
find_children(SweepDismantling *dismantling)
{
	SweepCascade *cascade = dismantling->cascade;
	Frame	   *frame = dismantling->top;

	while (frame->children == NULL || frame->next >= frame->children->count)
	{
		int			last = frame->key;

		if (frame->children != NULL && frame->is_rough && is_removed(cascade, frame))
		{
			frame->is_rough = false;
			frame->read_in = cascade->batch;
		}
		/* Otherwise there may be more children by the same key. */
		if (frame->children == NULL || (!frame->is_rough && (!frame->is_full || frame->list_removed == 0)))
		{
			frame->is_stale |= frame->children != NULL && (frame->is_full || frame->read_in != cascade->batch);
			do
				frame->key++;
			while (frame->key < cascade->count && cascade->keys[frame->key].parent != frame->row->relation);
		}
		if (frame->key >= cascade->count)
			return false;
		read_children(cascade, frame, &cascade->keys[frame->key], frame->key == last);
	}
	return true;
}

/*
 * Whether all children of a list of index entries have gone, and no entry has come since. PostgreSQL looks for children once more when the row
 * itself is deleted, and if it finds too many, because others have vanished from the index, the batch is done again, with locks.
 */
static bool
is_removed(const SweepCascade *cascade, const Frame *frame)
{
	HTAB	   *seen;
	int64		found;

	if (frame->is_full || cascade->locks || frame->list_removed < frame->children->count)
		return false;
	seen = sweep_cascade_new_set(CurrentMemoryContext);
	found = sweep_cascade_read_index(&cascade->keys[frame->key], frame->row, 0, 1, frame->list_removed + 1, NULL, seen);
	hash_destroy(seen);
	return found >= 0 && found <= frame->list_removed;
}

static void
read_children(SweepCascade *cascade, Frame *frame, SweepCascadeKey *key, bool visits)
{
	int64		most = key->columns == 0 ? MAX_PLACES : MAX_KEYED_PLACES;
	MemoryContext old = MemoryContextSwitchTo(frame->context);
	int			found = 0;
	Datum	   *values = NULL;
	SweepDoor	door;
	int64		count;

	frame->next = 0;
	frame->list_removed = 0;
	frame->read_in = cascade->batch;
	if (visits || !read_index(frame, key, most))
	{
		frame->is_rough = frame->is_full = false;
		frame->children = sweep_cascade_new_rows(key->child, key->columns);
		values = sweep_cascade_key_values(key, frame->row, 0, 1, &found);
		values[key->count] = Int64GetDatum(most);
	}
	MemoryContextSwitchTo(old);
	count = found > 0 ? sweep_cascade_execute(&door, cascade, key, CASCADE_FINDS, values) : -1;
	if (count < 0)
		return;
	read_places(frame, count);
	sweep_cascade_leave(&door);
}

/* Reads the children from an index. False when there is none, or so few children that reading them twice does not pay. */
static bool
read_index(Frame *frame, SweepCascadeKey *key, int64 most)
{
	HTAB	   *self = sweep_cascade_new_set(CurrentMemoryContext);
	int64		found;

	(void) sweep_cascade_add_to_set(self, frame->row->tables[0], &frame->row->places[0]);
	frame->children = sweep_cascade_new_rows(key->child, key->columns);
	found = sweep_cascade_read_index(key, frame->row, 0, 1, most, frame->children, self);
	hash_destroy(self);
	frame->is_full = found >= most;
	frame->is_rough = key->columns == 0;
	return found >= (key->columns == 0 ? MIN_ROUGH_PLACES : 0);
}

static void
read_places(Frame *frame, int64 count)
{
	for (int64 row = 0; row < count; row++)
	{
		sweep_sql_row(row);
		/* A row that refers to itself is no child. */
		if (!is_row(frame, sweep_sql_oid(1), &sweep_sql_tid(2)))
			sweep_cascade_add_row(frame->children, frame->context);
	}
	frame->is_full = count >= (frame->children->columns == 0 ? MAX_PLACES : MAX_KEYED_PLACES);
}

/* The number of rows from the first one on that are in the same partition, at most "most". */
static int
one_table(const SweepCascadeRows *rows, int first, int64 most)
{
	int			count = 1;

	while (first + count < rows->count && count < most && rows->tables[first + count] == rows->tables[first])
		count++;
	return count;
}

/* Deletes the next "count" children of the top row. touched: the number of rows that are affected, themselves included; 0 = no others are. */
static void
remove_children(SweepDismantling *dismantling, int count, int64 touched, Budget *budget)
{
	Frame	   *frame = dismantling->top;
	SweepCascadeKey *key = &dismantling->cascade->keys[frame->key];
	int			found;
	Datum	   *values = sweep_cascade_key_values(key, frame->row, 0, 1, &found);
	SweepDoor	door;
	int64		removed;

	values[key->count] = sweep_cascade_places(frame->children, frame->next, count);
	values[key->count + 1] = ObjectIdGetDatum(frame->children->tables[frame->next]);
	removed = sweep_cascade_execute(&door, dismantling->cascade, key, CASCADE_REMOVES, values);
	if (removed >= 0)
	{
		removed = count_removed(key, removed);
		sweep_cascade_leave(&door);
	}
	frame->has_removed |= removed > 0;
	frame->list_removed += Max(removed, 0);
	budget->left -= Max(touched, count);
	frame->touched += Max(touched, count);
	frame->next += count;
	frame->is_rest = false;
	frame->is_stuck = false;
}

/*
 * Does not count rows that a trigger made refer to the same row again. If a row does so by the default of its column the run fails, as
 * PostgreSQL raises an error after a deletion in one statement.
 */
static int64
count_removed(const SweepCascadeKey *key, int64 count)
{
	int64		removed = count;

	for (int64 row = 0; row < count && !key->deletes; row++)
	{
		sweep_sql_row(row);
		if (sweep_sql_is_null(1))
			ereport(ERROR,
					(errcode(ERRCODE_FOREIGN_KEY_VIOLATION),
					 errmsg("a row of \"%s\" cannot be deleted: rows of \"%s\" refer to it by default", get_rel_name(key->parent), get_rel_name(key->child)),
					 errhint("Leave it out by the condition of the job, or give the column another default.")));
		if (sweep_sql_bool(1))
			removed--;
	}
	return removed;
}
