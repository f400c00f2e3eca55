/*
 * role.h
 *		The rights to act for a role, and to SET ROLE to it.
 */
#ifndef SWEEP_ROLE_H
#define SWEEP_ROLE_H

#include "postgres.h"

/* The role of that name; InvalidOid when there is none. */
extern Oid	sweep_role_find(const char *name);

/*
 * Whether a role has the rights of another role (for example the owner of a queue), or is that role. False when the other role does
 * not exist.
 */
extern bool sweep_role_acts_for(Oid member, Oid role);

/* The same, by name. */
extern bool sweep_role_is(Oid member, const char *name);

/* Whether a role may see the jobs and runs of all roles. */
extern bool sweep_role_sees_all(Oid member);

/* A number that changes whenever roles, memberships or rights on databases may have changed; never 0. */
extern uint64 sweep_role_changes(void);

/* Whether a role is a member of sweep_user or sweep_admin. */
extern bool sweep_role_is_user(Oid role);

/* Why no process can work for a role, as a text for the state of its jobs and consumers; or NULL. "as_user": it must also be a sweep_user. */
extern const char *sweep_role_problem(Oid role, bool as_user);

/* Whether a role can SET ROLE to another role, or is that role; only such a role may choose code that is executed as the other one. */
extern bool sweep_role_can_become(Oid member, Oid role);

/* The owner of an object of that catalogue; InvalidOid when the object does not exist, or has no owner. */
extern Oid	sweep_role_owning(Oid class, Oid object);

#endif							/* SWEEP_ROLE_H */
