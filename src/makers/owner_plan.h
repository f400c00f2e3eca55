/*
 * owner_plan.h
 *		Statements on one table that are executed as its owner.
 */
#ifndef SWEEP_OWNER_PLAN_H
#define SWEEP_OWNER_PLAN_H

#include "storage/lockdefs.h"

#include "base/sql.h"

/*
 * To be called as the owner of the table right before a plan is executed: checks that the statement is on that table and no other, and
 * prepares it when the plan is NULL or not valid any more. "lock" is the lock that the statement takes; "anew": the transaction may not have
 * locked the partitions yet.
 */
extern void sweep_owner_plan(SweepPlan **plan, const char *text, int count, Oid *types, Oid table, LOCKMODE lock, bool anew);

#endif							/* SWEEP_OWNER_PLAN_H */
