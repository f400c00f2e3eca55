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
	REUSE_TAKEN,				/* the process got another run, and owns the slot again */
	REUSE_LEAVE,				/* the process has no run, and the slot is no longer its own */
} SweepReuse;

/* Whether there are more runs in this database than may be in progress. */
extern bool sweep_reuse_is_wanted(void);

/* Called when the definition of the run for an idle worker is written: lets the worker begin the run. */
extern void sweep_reuse_hand_over(SweepSlot *slot);

/* Makes one idle worker, of any role and database, leave at once, because another worker has found no room. */
extern void sweep_reuse_dismiss(void);

/* Whether this idle process has got another run. With time_over the process has waited long enough, and leaves if it has none. */
extern SweepReuse sweep_reuse_look(SweepSlot *slot, bool time_over);

/* Called when the process ends without a run; a run that it was claimed for meanwhile goes on waiting, for another process. */
extern void sweep_reuse_give_up(SweepSlot *slot);

/*
 * A number for the data of role and database that a process reads at login, with their settings. The number changes
 * when any of these changes, and is never 0. Uses a transaction of its own.
 */
extern uint64 sweep_reuse_login_stamp(void);

#endif							/* SWEEP_REUSE_H */
