/*
 * crash_note.c
 *		Notes of the work in hand of a consumer or a run, written where they outlive a crash of the server.
 *
 * A handler that crashes its process takes the whole server with it, and shared memory, so nothing in
 * there could tell which message it was, and the message would be tried for ever, with the server going
 * down each time. Before a consumer calls a handler it therefore writes the ids of the messages to a file of its
 * own, then which of them is in hand whenever that changes, and when they are done it writes that there are
 * none: plain writes of a few bytes, no flush, because the operating system survives what happens to our
 * process. The exit callback of the process removes the file. The messages that the next scheduler of the
 * database finds in the file were in hand when the server went down; it counts them in sweep.consumer_crash. The process of a run notes its number and job in the same way; that
 * is counted in sweep.job_state, see engine/crashes.sql.
 *
 * The files are in pg_stat_tmp: it is always there, and base backups leave out its contents.
 */
#include "postgres.h"

#include <fcntl.h>
#include <unistd.h>

#include "miscadmin.h"
#include "pgstat.h"
#include "storage/fd.h"

#include "process/crash_note.h"

#define NOTE_PREFIX "pg_sweep."
#define NOTE_MAGIC 0x53574550
#define MOST_MESSAGES 10000

typedef struct NoteHeader
{
	uint32		magic;
	int32		queue_id;
	int32		count;
	int32		in_hand;		/* index of a message; negative: all of them */
} NoteHeader;

static int	note_file = -1;
static char note_path[MAXPGPATH];
static int	note_count;
static int32 note_in_hand;

static void write_note(const void *data, size_t size, off_t offset);
static bool read_note(const char *path, SweepCrashNote *note);

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

void
sweep_crash_note_write(int32 queue_id, const int64 *message_ids, int count)
{
	NoteHeader	header = {.magic = NOTE_MAGIC, .queue_id = queue_id, .count = count, .in_hand = SWEEP_CRASH_NOTE_ALL};
	size_t		size = sizeof(header) + sizeof(int64) * count;
	char	   *note = palloc(size);

	memcpy(note, &header, sizeof(header));
	memcpy(note + sizeof(header), message_ids, sizeof(int64) * count);
	write_note(note, size, 0);
	note_count = count;
	note_in_hand = header.in_hand;
	pfree(note);
}

void
sweep_crash_note_in_hand(int32 index)
{
	if (index == note_in_hand || note_count == 1)
		return;
	write_note(&index, sizeof(index), offsetof(NoteHeader, in_hand));
	note_in_hand = index;
}

void
sweep_crash_note_clear(void)
{
	NoteHeader	header = {.magic = NOTE_MAGIC};

	write_note(&header, sizeof(header), 0);
}

/* Without it a crash is not counted; nothing else depends on it. */
static void
write_note(const void *data, size_t size, off_t offset)
{
	static bool complained = false;

	if (pg_pwrite(note_file, data, size, offset) == (ssize_t) size || complained)
		return;
	complained = true;
	ereport(WARNING,
			(errcode_for_file_access(),
			 errmsg("could not write to file \"%s\": %m", note_path)));
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

List *
sweep_crash_note_list(const char *kind)
{
	DIR		   *directory = AllocateDir(PG_STAT_TMP_DIR);
	struct dirent *entry;
	char	   *prefix = psprintf(NOTE_PREFIX "%u.%s", MyDatabaseId, kind);
	List	   *notes = NIL;

	while ((entry = ReadDirExtended(directory, PG_STAT_TMP_DIR, LOG)) != NULL)
	{
		SweepCrashNote *note;
		char	   *end;

		if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
			continue;
		note = palloc0(sizeof(SweepCrashNote));
		note->slot = (int) strtol(entry->d_name + strlen(prefix), &end, 10);
		if (*end != '\0')
			continue;
		note->path = psprintf(PG_STAT_TMP_DIR "/%s", entry->d_name);
		if (!read_note(note->path, note))
			note->count = 0;
		notes = lappend(notes, note);
	}
	FreeDir(directory);
	return notes;
}

/* Reads what was in hand. A file that is not as we write it says nothing. */
static bool
read_note(const char *path, SweepCrashNote *note)
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
		whole = read(file, note->message_ids, size) == size && header.in_hand < header.count;
		if (header.in_hand >= 0)
		{
			note->message_ids += header.in_hand;
			note->count = 1;
		}
	}
	(void) CloseTransientFile(file);
	return whole;
}

void
sweep_crash_note_remove(const SweepCrashNote *note)
{
	(void) unlink(note->path);
}
