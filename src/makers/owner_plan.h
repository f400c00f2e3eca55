/*
 * owner_plan.h
 *		Statements on one table that are executed as its owner.
 */
#ifndef SWEEP_OWNER_PLAN_H
#define SWEEP_OWNER_PLAN_H

#include "storage/lockdefs.h"

#include "base/sql.h"

/*
 * Makes sure that a plan is one of that table, as the current user, its owner, right before it is executed; prepares it when it is NULL, or
 * not valid any more. The lock is the one that the statement takes; "anew" says that the transaction may not have those of the partitions yet.
 */
extern void sweep_owner_plan(SweepPlan **plan, const char *text, int count, Oid *types, Oid table, LOCKMODE lock, bool anew);

#endif							/* SWEEP_OWNER_PLAN_H */
