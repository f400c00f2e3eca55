/*
 * lock.h
 *		Locks in classes of their own: for the right to run a job, for runs that are alive, for a database that pg_sweep must leave.
 */
#ifndef SWEEP_LOCK_H
#define SWEEP_LOCK_H

#include "storage/lock.h"

/* Fourth field of the lock tag, objsubid in pg_locks; SQL functions use 1 and 2. */
#define SWEEP_LOCK_JOB		21335
#define SWEEP_LOCK_RUN		21336	/* held while a run is alive */
#define SWEEP_LOCK_DATABASE 21337
#define SWEEP_LOCK_DISPATCH 21338	/* one dispatcher of a divided job at a time */
#define SWEEP_LOCK_SEARCH	21339	/* held while a process searches a queue, see queue/search.c, or counts all of them, see queue/statistics.c */
#define SWEEP_LOCK_KEYS		21340	/* held while a sender decides on keys, see queue/key.c */
#define SWEEP_LOCK_USE		21341	/* held while a process works with a queue, so that it is not dropped meanwhile */
#define SWEEP_LOCK_SUSPECTS	21342	/* held while a suspected message is handled, one of a role at a time, see consumer.c */
#define SWEEP_LOCK_ENDING	21343	/* held while a share of a divided job ends, one at a time, see engine/hooks.sql */

/* A lock and its mode: ExclusiveLock or ShareLock. */
typedef struct SweepLock
{
	LOCKTAG		tag;
	LOCKMODE	mode;
} SweepLock;

/*
 * The lock of a role for its jobs with that key; role and key are hashed under the secret of the server to 64 bits, classid and objid in
 * pg_locks. Shares of a divided job share it (ShareLock): they exclude other runs, but not each other.
 */
extern SweepLock sweep_lock_of_job(Oid role, const char *key, LOCKMODE mode);

/*
 * Takes a lock for this process without waiting; false when another process has it. A process may take a lock several times, and must
 * give it back as often. Code of users cannot release it.
 */
extern bool sweep_lock_acquire(const SweepLock *lock);
extern void sweep_lock_give_back(const SweepLock *lock);	/* no error if the process does not have it */
extern void sweep_lock_give_back_all(void);
extern bool sweep_lock_is_mine(const SweepLock *lock);

/* Whether sweep._lock_is_held() has returned true in this process since this function was last called. */
extern bool sweep_lock_has_seen_held(void);

/* Takes the lock of a divided job in a class, DISPATCH or ENDING, until the transaction ends. Does not wait; false when another process has it. */
extern bool sweep_lock_acquire_divided(uint16 lock_class, const char *job);

/*
 * Takes the lock of a run (RUN), or of a role (SUSPECTS), for this process. Does not wait; false when another process has it. These
 * classes differ from JOB, because sessions can take locks of that class (sweep.try_lock).
 */
extern bool sweep_lock_acquire_number(uint16 lock_class, int64 number);
extern void sweep_lock_give_back_number(uint16 lock_class, int64 number);

/*
 * Takes the lock of a queue until the transaction ends: ShareLock to work with the queue, ExclusiveLock to drop it. The result says
 * whether the transaction had it already, or, without "wait", that another transaction has it.
 */
extern LockAcquireResult sweep_lock_acquire_queue(int32 queue_id, LOCKMODE mode, bool wait);

/*
 * The first keeps schedulers out of a database until the transaction ends; the second returns whether any transaction has such a hold.
 */
extern void sweep_lock_hold_database(Oid database);
extern bool sweep_lock_database_is_held(Oid database);

/* Called when the library is loaded. */
extern void sweep_lock_draw_secret(void);

/* Hashes the number and the bytes; the hash is the same in all processes of a server that preloads the library, until the server restarts. */
extern uint64 sweep_lock_hash(uint64 first, const void *data, Size size);

#endif							/* SWEEP_LOCK_H */
