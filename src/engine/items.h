/*
 * items.h
 *		One batch of a job that picks its items first.
 */
#ifndef SWEEP_ITEMS_H
#define SWEEP_ITEMS_H

#include "engine/run_state.h"

/*
 * Picks the next items and handles them; items that fail do not end the batch. The state of the run is then the state
 * after the batch, and run->reason says why the run ends, if it does.
 */
extern void sweep_items_execute(SweepRun *run);

/*
 * Removes items in quarantine from the picked items and returns how many are left; in a transaction. Items whose next
 * try is due are left in; *due is set when there are any.
 */
extern int	sweep_items_leave_out_quarantined(const SweepRun *run, Jsonb **items, int count, bool *due);

#endif							/* SWEEP_ITEMS_H */
