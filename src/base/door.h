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
	Oid			inside;			/* the user after the change */
	int			inside_context;
	int			nest_level;		/* of settings; 0 = none was opened */
	char	   *search_path;	/* NULL unless it is compared at the end */
	ErrorContextCallback *outer;	/* the context of errors before */
	ErrorContextCallback callback;	/* that of code of a user */
} SweepDoor;

/* Called after each of the four functions below: undoes all settings since. An error undoes them by itself. */
extern void sweep_door_leave(SweepDoor *door);

/* Called before code of a user is executed while code of the engine waits for it: as that role, in a security-restricted operation. */
extern void sweep_door_enter_user(SweepDoor *door, Oid role);

/*
 * The same before a statement of the engine about a table of another owner than the role of the job: as that owner and without row
 * security, as in PostgreSQL's checks of foreign keys; names are only looked up in pg_catalog.
 */
extern void sweep_door_enter_owner(SweepDoor *door, Oid owner);

/*
 * The same before a statement that changes such a table, executed like a cascade of PostgreSQL: triggers have the same rights as in a
 * cascade, and the settings of the session. The statement must be planned before, and all its names are qualified.
 */
extern void sweep_door_enter_cascade(SweepDoor *door, Oid owner);

/* Raises a caught error without the CONTEXT lines of the engine; an internal error keeps all lines. */
extern void sweep_door_raise_for_user(ErrorData *error);

/*
 * Called before code of the engine that a session has called: as the owner of the extension, with settings that do
 * not change the meaning of its statements.
 */
extern void sweep_door_enter_engine(SweepDoor *door, Oid owner);

/*
 * The same for a single constant statement, which calls no code of users and is executed in every batch: no cost if
 * the settings are right already. A SET LOCAL of the statement stays.
 */
extern void sweep_door_enter_statement(SweepDoor *door, Oid owner);
extern void sweep_door_leave_statement(const SweepDoor *door);

/* For a transaction of a session with only constant statements: pins the path once, instead of for each statement. */
extern void sweep_door_pin_path(void);

/*
 * Called around the scanning of a text of a user, within a transaction: literals are read as when the text was checked, whatever the
 * settings of the session are. The first returns the argument of the second.
 */
extern int	sweep_door_enter_literals(void);
extern void sweep_door_leave_literals(int nest_level);

/*
 * The state of the session that decides how its statements are executed and what they mean: role, search_path, row_security, the
 * formats of literals and timestamps, whether triggers fire. Code of other roles can change it. For example, PostgreSQL executes a
 * cascade as the owner of the referencing table, and a setting by a trigger of that table stays in the session that deletes.
 */
typedef struct SweepMeaning SweepMeaning;

/*
 * Notes the present state. In a session, with its role as keeps_for, it also notes temporary objects that other roles have made
 * before the run: these are not dropped.
 */
extern SweepMeaning *sweep_door_note_meaning(MemoryContext context, Oid keeps_for);

/*
 * Restores the noted state, and drops temporary objects of roles that cannot SET ROLE to "role", the role of the session, except noted
 * ones, because temporary objects come first in every search_path. Costs a few comparisons when nothing has changed.
 */
extern void sweep_door_put_back(const SweepMeaning *meaning, Oid role, GucAction action);

#endif							/* SWEEP_DOOR_H */
