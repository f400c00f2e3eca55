/*
 * ask.h
 *		Asks for a scheduler in a database.
 */
#ifndef SWEEP_ASK_H
#define SWEEP_ASK_H

#include "base/shared.h"

/*
 * Makes a scheduler look for work in the database: the existing one, or one that the launcher starts. Called after the commit of the
 * work that it has to find. Allocates nothing; takes no lock if a scheduler was asked for already. Does nothing without shared memory.
 */
extern void sweep_ask(Oid database);

/* The same only for notifications: an existing scheduler sends them without a tick. */
extern void sweep_ask_to_notify(Oid database);

/*
 * COMMIT PREPARED calls no callback that could ask. At PREPARE the first function notes that a transaction of this database has to ask at
 * its end; the second is called when a prepared transaction has ended, and asks if the database has such a note.
 */
extern void sweep_ask_note_prepared(void);
extern void sweep_ask_for_prepared(void);

#endif							/* SWEEP_ASK_H */
