/*
 * ask.h
 *		Has a scheduler look into a database.
 */
#ifndef SWEEP_ASK_H
#define SWEEP_ASK_H

#include "base/shared.h"

/*
 * Has a scheduler look for work in the database: the one that is there, or one that the launcher starts. To be called when the work that
 * it has to find is committed. Allocates nothing; takes no lock when this was asked already. Does nothing without shared memory.
 */
extern void sweep_ask(Oid database);

/* The same for notifications alone, without a tick of a scheduler that is there. */
extern void sweep_ask_to_notify(Oid database);

/*
 * The end of a prepared transaction cannot ask for itself. At PREPARE the first function notes that a transaction of this database has to
 * ask at its end; the second is called when a prepared transaction has ended, and asks if the database has such a note.
 */
extern void sweep_ask_note_prepared(void);
extern void sweep_ask_for_prepared(void);

#endif							/* SWEEP_ASK_H */
