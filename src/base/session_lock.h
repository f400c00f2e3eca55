/*
 * session_lock.h
 *		Locks that a session takes by SQL.
 */
#ifndef SWEEP_SESSION_LOCK_H
#define SWEEP_SESSION_LOCK_H

/* Releases all session-level locks: advisory locks, and locks of pg_sweep. */
extern void sweep_session_lock_release_all(void);

/* Gives back the locks that the session has taken by sweep.try_lock, but not the lock of its run. */
extern void sweep_session_lock_release_taken(void);

#endif							/* SWEEP_SESSION_LOCK_H */
