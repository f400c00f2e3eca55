/*
 * crash_note.h
 *		Notes of the messages or run that a process works on, in files that survive a crash of the server.
 */
#ifndef SWEEP_CRASH_NOTE_H
#define SWEEP_CRASH_NOTE_H

#include "base/sql.h"

#define NOTE_OF_CONSUMER ""
#define NOTE_OF_RUN "run."

/* Opens the note of this process in its slot. Kind: NOTE_OF_CONSUMER or NOTE_OF_RUN; the note of a run has the run_id as its only message. */
extern void sweep_crash_note_open(const char *kind, int slot);

/* Called before a handler: notes that these messages are being handled from now on, and no others. */
extern void sweep_crash_note_write(int32 queue_id, const int64 *message_ids, int count);

/* Notes that no message is being handled any more. */
extern void sweep_crash_note_clear(void);

/* Removes the note, when the process ends. */
extern void sweep_crash_note_close(void);

/*
 * Called by the scheduler: counts what was being handled when the server went down, in a transaction of its own, unless *counted says that this was done
 * since the server has started. False when the transaction has failed.
 */
extern bool sweep_crash_note_count(const char *kind, bool (*transact) (SweepWork work), bool *counted);

#endif							/* SWEEP_CRASH_NOTE_H */
