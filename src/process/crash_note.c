/*
 * crash_note.c
 *		Notes of the messages or run that a process works on, in files that survive a crash of the server.
 *
 * A handler that crashes its process takes the whole server and its shared memory down. Without a note no process would know which message
 * caused the crash, and the message would be tried for ever, with a crash each time. Before a consumer calls a handler, it therefore writes the ids
 * of the messages that it is handling to a file of its own, and at the end that there are none. These are plain writes of a few bytes without
 * a flush, because the operating system survives the crash of a process. The exit callback of the process removes the file. If the next scheduler
 * of the database finds messages in the file, they were being handled when the server went down, and it counts them in sweep.consumer_crash.
 * The process of a run notes the run_id and the job in the same way; these crashes are counted in sweep.job_state, see engine/crashes.sql.
 *
 * The files are in pg_stat_tmp: it is always there, and base backups leave out its contents.
 */
#include "postgres.h"

#include <fcntl.h>
#include <unistd.h>

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/fd.h"
#include "utils/array.h"
#include "utils/builtins.h"

#include "base/lock.h"
#include "base/shared.h"
#include "process/crash_note.h"

static SweepStatement count_crash_sql = {
	.text = "SELECT sweep._count_crash($1, $2)",
	.types = {INT4OID, INT8ARRAYOID}};
static SweepStatement count_run_crashes_sql = {
	.text = "SELECT sweep._count_run_crashes($1)",
	.types = {TEXTARRAYOID}};

#define NOTE_PREFIX "pg_sweep."
/* Another one when the header changes: a note of another version says nothing. */
#define NOTE_MAGIC 0x53574551
#define MOST_MESSAGES 10000

typedef struct NoteHeader
{
	uint32		magic;
	int32		queue_id;
	int32		count;
} NoteHeader;

/* A note that was found. */
typedef struct CrashNote
{
	char	   *path;
	int			slot;			/* of the process that wrote it */
	int32		queue_id;
	int			count;			/* 0 = nothing was being handled */
	int64	   *message_ids;
} CrashNote;

static int	note_file = -1;
static char note_path[MAXPGPATH];

static const char *found_kind;
static List *found = NIL;		/* of CrashNote, of that kind; in the transaction only those that are counted stay */
static bool left;				/* some could not be counted */

static void list_notes(void);
static bool read_note(const char *path, CrashNote *note);
static void count_work(void *arg);
static bool is_alive(const CrashNote *note);
static bool count_messages(const CrashNote *note);

void
sweep_crash_note_open(const char *kind, int slot)
{
	snprintf(note_path, sizeof(note_path), PG_STAT_TMP_DIR "/" NOTE_PREFIX "%u.%s%d", MyDatabaseId, kind, slot);
	note_file = BasicOpenFile(note_path, O_CREAT | O_TRUNC | O_WRONLY | PG_BINARY);
	if (note_file < 0)
		ereport(FATAL,
				(errcode_for_file_access(),
				 errmsg("could not create file \"%s\": %m", note_path)));
}

/* If a write fails, a crash is not counted; nothing else depends on the note. */
void
sweep_crash_note_write(int32 queue_id, const int64 *message_ids, int count)
{
	static bool complained = false;
	NoteHeader	header = {.magic = NOTE_MAGIC, .queue_id = queue_id, .count = count};
	size_t		size = sizeof(header) + sizeof(int64) * count;
	char	   *note = palloc(size);

	memcpy(note, &header, sizeof(header));
	memcpy(note + sizeof(header), message_ids, sizeof(int64) * count);
	if (pg_pwrite(note_file, note, size, 0) != (ssize_t) size && !complained)
	{
		complained = true;
		ereport(WARNING,
				(errcode_for_file_access(),
				 errmsg("could not write to file \"%s\": %m", note_path)));
	}
	pfree(note);
}

void
sweep_crash_note_clear(void)
{
	sweep_crash_note_write(0, &(int64) {0}, 0);
}

void
sweep_crash_note_close(void)
{
	if (note_file < 0)
		return;
	(void) unlink(note_path);
	(void) close(note_file);
	note_file = -1;
}

bool
sweep_crash_note_count(const char *kind, bool (*transact) (SweepWork work), bool *counted)
{
	ListCell   *cell;

	if (*counted)
		return true;
	found_kind = kind;
	left = false;
	list_notes();
	if (found != NIL && !transact(count_work))
		return false;
	foreach(cell, found)
		(void) unlink(((const CrashNote *) lfirst(cell))->path);
	*counted = !left;
	return true;
}

static void
list_notes(void)
{
	DIR		   *directory = AllocateDir(PG_STAT_TMP_DIR);
	struct dirent *entry;
	char	   *prefix = psprintf(NOTE_PREFIX "%u.%s", MyDatabaseId, found_kind);

	found = NIL;
	while ((entry = ReadDirExtended(directory, PG_STAT_TMP_DIR, LOG)) != NULL)
	{
		CrashNote  *note;
		char	   *end;

		if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
			continue;
		note = palloc0(sizeof(CrashNote));
		note->slot = (int) strtol(entry->d_name + strlen(prefix), &end, 10);
		if (*end != '\0')
			continue;
		note->path = psprintf(PG_STAT_TMP_DIR "/%s", entry->d_name);
		if (!read_note(note->path, note))
			note->count = 0;
		found = lappend(found, note);
	}
	FreeDir(directory);
}

/* Reads a note. A file with another layout is ignored. */
static bool
read_note(const char *path, CrashNote *note)
{
	NoteHeader	header;
	int			file = OpenTransientFile(path, O_RDONLY | PG_BINARY);
	bool		whole = false;

	if (file < 0)
		return false;
	if (read(file, &header, sizeof(header)) == sizeof(header) && header.magic == NOTE_MAGIC &&
		header.count > 0 && header.count <= MOST_MESSAGES)
	{
		ssize_t		size = sizeof(int64) * header.count;

		note->queue_id = header.queue_id;
		note->count = header.count;
		note->message_ids = palloc(size);
		whole = read(file, note->message_ids, size) == size;
	}
	(void) CloseTransientFile(file);
	return whole;
}

static void
count_work(void *arg)
{
	bool		of_runs = strcmp(found_kind, NOTE_OF_RUN) == 0;
	Datum	   *jobs = palloc(sizeof(Datum) * list_length(found));
	int			count = 0;
	Datum		value;
	ListCell   *cell;

	foreach(cell, found)
	{
		const CrashNote *note = lfirst(cell);
		bool		alive = is_alive(note);

		if (!alive && of_runs)
			jobs[count++] = CStringGetTextDatum((const char *) &note->message_ids[1]);
		else if (alive || !count_messages(note))
		{
			left |= !alive;
			found = foreach_delete_current(found, cell);
		}
	}
	value = PointerGetDatum(construct_array(jobs, count, TEXTOID, -1, false, TYPALIGN_INT));
	if (of_runs)
		(void) sweep_sql_execute(&count_run_crashes_sql, &value, NULL);
}

/* Its process is alive if only the scheduler was started again. A note without a run is of a process that waits for its next run. */
static bool
is_alive(const CrashNote *note)
{
	SweepSlot	slot;

	if (strcmp(found_kind, NOTE_OF_RUN) != 0)
		return sweep_shared_look(note->slot, &slot) && slot.consumer_id != 0;
	if (note->count == 0 || !sweep_lock_acquire_number(SWEEP_LOCK_RUN, note->message_ids[0]))
		return true;
	sweep_lock_give_back_number(SWEEP_LOCK_RUN, note->message_ids[0]);
	return false;
}

/* False if another transaction is dropping the queue or has locked its rows: the note is kept for another try. */
static bool
count_messages(const CrashNote *note)
{
	Datum	   *ids = palloc(sizeof(Datum) * note->count);
	Datum		values[2] = {Int32GetDatum(note->queue_id)};

	if (note->count == 0)
		return true;
	for (int i = 0; i < note->count; i++)
		ids[i] = Int64GetDatum(note->message_ids[i]);
	values[1] = PointerGetDatum(construct_array(ids, note->count, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
	(void) sweep_sql_execute(&count_crash_sql, values, NULL);
	return sweep_sql_bool(1);
}
