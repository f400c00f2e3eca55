/*
 * proof.h
 *		Keeps what a retention has proved when it has drained.
 */
#ifndef SWEEP_PROOF_H
#define SWEEP_PROOF_H

#include "utils/timestamp.h"

#include "base/sql.h"

/* When the oldest transaction in progress began that has written something, 0 = none. Asked before the proof: what that does not see has begun by then, or later. */
extern TimestampTz sweep_proof_open_since(void);

/* For sweep.retentions, in this transaction; nothing when this process does not execute that run. */
extern void sweep_proof_keep(int64 run_id, Jsonb *proof, TimestampTz open_since);

#endif							/* SWEEP_PROOF_H */
