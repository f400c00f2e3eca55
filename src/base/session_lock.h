/*
 * session_lock.h
 *		Locks that a session takes by SQL.
 */
#ifndef SWEEP_SESSION_LOCK_H
#define SWEEP_SESSION_LOCK_H

/* Releases all locks of the session but those of its transaction: advisory locks, and ours. */
extern void sweep_session_lock_release_all(void);

/* Gives back the locks that the session has by sweep.try_lock, and not the lock of its run. */
extern void sweep_session_lock_release_taken(void);

#endif							/* SWEEP_SESSION_LOCK_H */
