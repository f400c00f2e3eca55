/*
 * held_lock.h
 *		Locks that a process has until it gives them back, whatever code of users does meanwhile.
 */
#ifndef SWEEP_HELD_LOCK_H
#define SWEEP_HELD_LOCK_H

#include "storage/lock.h"

/* Tries to take it, once more if the process has it. False when another process has it. */
extern bool sweep_held_lock_acquire(const LOCKTAG *tag, LOCKMODE mode);

/* Gives it back once. No error if the process does not have it. */
extern void sweep_held_lock_give_back(const LOCKTAG *tag, LOCKMODE mode);
extern void sweep_held_lock_give_back_all(void);

extern bool sweep_held_lock_is_mine(const LOCKTAG *tag, LOCKMODE mode);

/* Whether any process, this one included, has it or is trying to take it. */
extern bool sweep_held_lock_is_wanted(const LOCKTAG *tag);

#endif							/* SWEEP_HELD_LOCK_H */
