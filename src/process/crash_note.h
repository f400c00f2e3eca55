/*
 * crash_note.h
 *		Notes of the work in hand of a consumer or a run, written where they outlive a crash of the server.
 */
#ifndef SWEEP_CRASH_NOTE_H
#define SWEEP_CRASH_NOTE_H

#include "nodes/pg_list.h"

#define NOTE_OF_CONSUMER ""
#define NOTE_OF_RUN "run."

typedef struct SweepCrashNote
{
	char	   *path;
	int			slot;			/* of the process that wrote it */
	int32		queue_id;
	int			count;
	int64	   *message_ids;	/* that were in hand */
} SweepCrashNote;

#define SWEEP_CRASH_NOTE_ALL (-1)

/* Opens the note of this process in its slot. Kind: NOTE_OF_CONSUMER or NOTE_OF_RUN, whose number is its only message. */
extern void sweep_crash_note_open(const char *kind, int slot);

/* Before handlers are called: these messages are being handled, and all are in hand. */
extern void sweep_crash_note_write(int32 queue_id, const int64 *message_ids, int count);

/* The one of them that is in hand from now on, by its index, or SWEEP_CRASH_NOTE_ALL. */
extern void sweep_crash_note_in_hand(int32 index);

/* They are no longer. */
extern void sweep_crash_note_clear(void);

/* Removes the note, when the process ends. */
extern void sweep_crash_note_close(void);

/* The notes of processes of this database, as a list of SweepCrashNote in the current context. */
extern List *sweep_crash_note_list(const char *kind);

/* Its messages are counted. */
extern void sweep_crash_note_remove(const SweepCrashNote *note);

#endif							/* SWEEP_CRASH_NOTE_H */
