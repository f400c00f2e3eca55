/*
 * reuse.h
 *		One worker for several runs of a role.
 */
#ifndef SWEEP_REUSE_H
#define SWEEP_REUSE_H

#include "base/shared.h"

typedef enum SweepReuse
{
	REUSE_NOT_YET,
	REUSE_TAKEN,				/* there is another run for this process, and the slot is its own again */
	REUSE_LEAVE,				/* there is none; the slot belongs to another process */
} SweepReuse;

/* Whether there are more runs in this database than may be in progress. */
extern bool sweep_reuse_is_wanted(void);

/* The definition of the run that an idle worker was claimed for is written: it may begin. */
extern void sweep_reuse_hand_over(SweepSlot *slot);

/* Has one that is idle, of whatever role and database, leave at once: another worker has found no room. */
extern void sweep_reuse_dismiss(void);

/* Whether this process, which is idle, has got another run. With time_over it has waited long enough. */
extern SweepReuse sweep_reuse_look(SweepSlot *slot, bool time_over);

/* The process ends and has no run; one that it was claimed for meanwhile waits on, for another process. */
extern void sweep_reuse_give_up(SweepSlot *slot);

/*
 * A number for the role, the database and their settings as this process has read them when it logged in. The number is
 * another one once any of these has changed, and never 0. Has a transaction of its own.
 */
extern uint64 sweep_reuse_login_stamp(void);

#endif							/* SWEEP_REUSE_H */
