/*
 * proof.h
 *		Keeps what a retention has proved when it has drained.
 */
#ifndef SWEEP_PROOF_H
#define SWEEP_PROOF_H

#include "base/sql.h"

/* For sweep.retentions, in this transaction; nothing when this process does not execute that run. */
extern void sweep_proof_keep(int64 run_id, Jsonb *proof);

#endif							/* SWEEP_PROOF_H */
