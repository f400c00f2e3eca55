/*
 * consumer_note.h
 *		What a consumer is working on, written down where it outlives a crash of the server.
 */
#ifndef SWEEP_CONSUMER_NOTE_H
#define SWEEP_CONSUMER_NOTE_H

#include "nodes/pg_list.h"

typedef struct SweepConsumerNote
{
	char	   *path;
	int			slot;			/* of the process that wrote it */
	int32		queue_id;
	int			count;
	int64	   *message_ids;	/* that were in hand */
} SweepConsumerNote;

#define SWEEP_CONSUMER_NOTE_ALL (-1)

/* Opens the note of this process; "slot" is that of the consumer. */
extern void sweep_consumer_note_open(int slot);

/* Before handlers are called: these messages are being handled, and all are in hand. */
extern void sweep_consumer_note_write(int32 queue_id, const int64 *message_ids, int count);

/* The one of them that is in hand from now on, by its index, or SWEEP_CONSUMER_NOTE_ALL. */
extern void sweep_consumer_note_in_hand(int32 index);

/* They are no longer. */
extern void sweep_consumer_note_clear(void);

/* Removes the note, when the process ends. */
extern void sweep_consumer_note_close(void);

/* The notes of processes of this database, as a list of SweepConsumerNote in the current context. */
extern List *sweep_consumer_note_list(void);

/* Its messages are counted. */
extern void sweep_consumer_note_remove(const SweepConsumerNote *note);

#endif							/* SWEEP_CONSUMER_NOTE_H */
