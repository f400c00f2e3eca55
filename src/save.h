/*
 * save.h
 *		Writes how far a run is into its row, without SQL.
 */
#ifndef SWEEP_SAVE_H
#define SWEEP_SAVE_H

#include "run.h"

/*
 * Writes counters, cursor and detail of run->next into the row of a run that goes on, and notes where
 * that is now. False, with nothing written, when the row is not as expected: SQL then decides.
 */
extern bool sweep_save_progress(SweepRun *run);

#endif							/* SWEEP_SAVE_H */
