/*
 * items.h
 *		One batch of a job that picks its items first.
 */
#ifndef SWEEP_ITEMS_H
#define SWEEP_ITEMS_H

#include "engine/run_state.h"

/*
 * Picks the next items and has them handled, whatever some of them do: the state of the run is then that
 * after the batch, and run->reason says why the run ends, if it does.
 */
extern void sweep_items_execute(SweepRun *run);

/*
 * Takes items in quarantine out of those picked and returns how many are left; in a transaction. *due is
 * set when some of the left ones are in quarantine, and it is time to try them again.
 */
extern int	sweep_items_leave_out_quarantined(const SweepRun *run, Jsonb **items, int count, bool *due);

#endif							/* SWEEP_ITEMS_H */
