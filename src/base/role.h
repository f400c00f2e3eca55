/*
 * role.h
 *		The right to act for a role, and to become it.
 */
#ifndef SWEEP_ROLE_H
#define SWEEP_ROLE_H

#include "postgres.h"

/* The role of that name; InvalidOid when there is none. */
extern Oid	sweep_role_find(const char *name);

/*
 * Whether a role has the rights of another one, or is it: of the owner of a job or a queue, of sweep_admin. No role
 * has those of a role that does not exist.
 */
extern bool sweep_role_acts_for(Oid member, Oid role);

/* The same, by name. */
extern bool sweep_role_is(Oid member, const char *name);

/* Whether a role sees the jobs and runs of all. */
extern bool sweep_role_sees_all(Oid member);

/* Differs from what it was when roles, memberships or rights on databases may have changed since; never 0. */
extern uint64 sweep_role_changes(void);

/* Whether a role is a member of sweep_user or sweep_admin. */
extern bool sweep_role_is_user(Oid role);

/* Why no process works for a role, the state of its jobs and consumers; NULL when one does. "as_user": only while it is sweep_user. */
extern const char *sweep_role_problem(Oid role, bool as_user);

/* Whether a role could SET ROLE to another one, or is it: what runs as a role is chosen by these. */
extern bool sweep_role_can_become(Oid member, Oid role);

/* The owner of an object of that catalogue; InvalidOid when it does not exist, or has none. */
extern Oid	sweep_role_owning(Oid class, Oid object);

#endif							/* SWEEP_ROLE_H */
