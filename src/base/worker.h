/*
 * worker.h
 *		The life of the processes of pg_sweep: how they start, connect, wait and are woken.
 */
#ifndef SWEEP_WORKER_H
#define SWEEP_WORKER_H

#include "port/atomics.h"
#include "postmaster/bgworker.h"

/* Arguments of a worker, from the process that registers it; they travel in bgw_extra. */
typedef struct SweepWorkerArgs
{
	Oid			database;
	Oid			role;			/* runner: the role that it connects as */
	int			index;			/* of its entry or slot in shared memory */
	uint64		generation;		/* of that entry or slot */
	int64		run_id;			/* runner */
} SweepWorkerArgs;

/*
 * Registers a dynamic worker that is never restarted by the postmaster. False when max_worker_processes are in use. Without a handle,
 * while the server starts, a worker that the postmaster restarts.
 */
extern bool sweep_worker_register(const char *type, const char *name, const char *entry_point,
								  const SweepWorkerArgs *args, BackgroundWorkerHandle **handle);
extern void sweep_worker_args(SweepWorkerArgs *args);

/* Sets the signal handlers; a process calls this before anything else. */
extern void sweep_worker_begin(void);

/* Sets whether a request to cancel interrupts this worker; initially it does not. Its own timeouts always interrupt it. */
extern void sweep_worker_allow_cancel(bool allow);

/*
 * While this is on, the process ends soon after the postmaster, also in the middle of a statement. Switched off
 * before a long wait, which notices the end of the postmaster itself.
 */
extern void sweep_worker_watch_postmaster(bool on);

/* Connects as a role, with the settings of that role, and sets up the session. */
extern void sweep_worker_connect(Oid database, Oid role);

/* Connects as the bootstrap superuser; only for a process that executes nothing except the engine's own statements. */
extern void sweep_worker_connect_engine(Oid database);

/* A copy of the text in which each byte that is not ASCII is "?", for texts that are shown in databases with other encodings. */
extern char *sweep_worker_ascii(const char *text);

/* Sets the query of the process in pg_stat_activity, as ASCII, because databases with other encodings show it. */
extern void sweep_worker_report_activity(const char *text);

/* Resets settings and role that SQL of a user has changed for the session; outside of a transaction. */
extern void sweep_worker_reset_session(void);

/* The same, and discards all other session state, as DISCARD ALL does; outside of a transaction. */
extern void sweep_worker_discard_session(void);

/* Sets a parameter for the session, which overrides settings of the role and the database; NULL resets it to these. */
extern void sweep_worker_set(const char *name, const char *value);

/* In a session that executes CALL, sets for the current transaction the parameters that a worker sets for its session. */
extern void sweep_worker_set_local(void);

/* Has a scheduler look for work in this database when the transaction has committed. */
extern void sweep_worker_wake_at_commit(void);

/* Waits for the latch or so many milliseconds, and processes interrupts. True when it has reloaded the configuration. */
extern bool sweep_worker_wait(long timeout_ms);

/* Waits the whole time, although timers set the latch each second; only a flag that is not 0, or a reload, ends it early. */
extern void sweep_worker_pause(long pause_ms, pg_atomic_uint32 *ended);

#endif							/* SWEEP_WORKER_H */
