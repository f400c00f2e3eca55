/*
 * door.h
 *		Changes of identity: into code of a user and back, into code of the engine and back.
 */
#ifndef SWEEP_DOOR_H
#define SWEEP_DOOR_H

#include "postgres.h"

#include "utils/guc.h"

/* The identity before a change of it. */
typedef struct SweepDoor
{
	Oid			user;
	int			security_context;
	Oid			inside;			/* the user behind the door */
	int			inside_context;
	int			nest_level;		/* of settings; 0 = none was opened */
	char	   *search_path;	/* NULL unless it is compared at the end */
} SweepDoor;

/*
 * Does work in which code of a user is executed while code of the engine waits for it: as that role, in a
 * security-restricted operation. Whatever it has set is undone. Raises what the work raises.
 */
extern void sweep_door_visit_user(Oid role, void (*work) (void *arg), void *arg);

/*
 * The same around a statement of the engine about a table of another owner than the role of the job: as that owner, as PostgreSQL
 * asks the table for a foreign key, without row security; names are looked up in pg_catalog alone.
 */
extern void sweep_door_visit_owner(Oid owner, void (*work) (void *arg), void *arg);

/*
 * Around a statement that changes such a table, as that owner, as a cascade of PostgreSQL changes it: its triggers may do what they may do
 * there, and find the settings of the session. The statement is planned before, and all its names are qualified.
 */
extern void sweep_door_cascade(Oid owner, void (*work) (void *arg), void *arg);

/* Raises what was caught without the lines of CONTEXT that are not of such code; an internal error keeps all. */
extern void sweep_door_raise_for_user(ErrorData *error);

/*
 * Around code of the engine that a session has called: as the owner of the extension, under settings that
 * do not change the meaning of its statements. Whatever it has set is undone at the end.
 */
extern void sweep_door_enter_engine(SweepDoor *door, Oid owner);
extern void sweep_door_leave_engine(SweepDoor *door);

/*
 * The same around a single constant statement, which calls no code of users and is executed in every batch:
 * costs nothing where the settings are right already. A SET LOCAL of the statement stays.
 */
extern void sweep_door_enter_statement(SweepDoor *door, Oid owner);
extern void sweep_door_leave_statement(const SweepDoor *door);

/*
 * Around the scanning of a text of a user, within a transaction: a literal ends where it has ended when the text was checked,
 * whatever the settings of the session are. Enter returns what leave wants.
 */
extern int	sweep_door_enter_literals(void);
extern void sweep_door_leave_literals(int nest_level);

/*
 * As whom the session executes statements, and what their text means: role, search_path, row_security, how literals are read
 * and moments written, whether triggers fire. Code of other roles changes that: PostgreSQL executes a cascade as the owner of the table
 * that refers to another one, and a setting by a trigger of that table stays in the session that deletes.
 */
typedef struct SweepMeaning SweepMeaning;

/*
 * Notes what is in force now. In a session, with its role as keeps_for, also the temporary objects that were made as another role
 * before the run: those are the session's own affair.
 */
extern SweepMeaning *sweep_door_note_meaning(MemoryContext context, Oid keeps_for);

/*
 * Sets what differs from the note, and drops temporary objects, which come first in every path, of roles that could not become
 * this one, whose session it is, but for those of the note. Costs a few comparisons where nothing differs and there are none.
 */
extern void sweep_door_put_back(const SweepMeaning *meaning, Oid role, GucAction action);

#endif							/* SWEEP_DOOR_H */
