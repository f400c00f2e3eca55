/*
 * worker.h
 *		The life of the processes of pg_sweep: how they start, connect, wait and are woken.
 */
#ifndef SWEEP_WORKER_H
#define SWEEP_WORKER_H

#include "postmaster/bgworker.h"

/* Arguments of a worker, from the process that registers it; they travel in bgw_extra. */
typedef struct SweepWorkerArgs
{
	Oid			database;
	Oid			role;			/* runner: the role that it connects as */
	int			index;			/* of the entry of its database, or of its slot, in shared memory */
	uint64		generation;		/* of that entry */
	int64		run_id;			/* runner */
} SweepWorkerArgs;

/*
 * Registers a dynamic worker that is never restarted by the postmaster. False when there is no slot
 * left in max_worker_processes.
 */
extern bool sweep_worker_register(const char *type, const char *name, const char *entry_point,
								  const SweepWorkerArgs *args, BackgroundWorkerHandle **handle);
extern void sweep_worker_args(SweepWorkerArgs *args);

/* Sets the signal handlers; a process calls this before anything else. */
extern void sweep_worker_begin(void);

/* Sets whether a request to cancel interrupts this worker, which it does not at first. Its own timeouts interrupt it in any case. */
extern void sweep_worker_allow_cancel(bool allow);

/*
 * While it is on, the process ends soon after the postmaster has, also in the middle of a statement; to be
 * turned off before a long wait, which looks itself.
 */
extern void sweep_worker_watch_postmaster(bool on);

/* Connects as a role, with the settings of that role, and sets up the session. */
extern void sweep_worker_connect(Oid database, Oid role);

/* Connects as the bootstrap superuser: a process that executes nothing but the engine's own statements. */
extern void sweep_worker_connect_engine(Oid database);

/* A copy of the text in which bytes beyond ASCII are "?", for texts that are read in databases of other encodings. */
extern char *sweep_worker_ascii(const char *text);

/* Shows what the process does in pg_stat_activity, as ASCII: it is read in databases of other encodings. */
extern void sweep_worker_report_activity(const char *text);

/* Undoes what SQL of a user has set for the session, and that it has become another role; outside of a transaction. */
extern void sweep_worker_reset_session(void);

/* The same, and all else that it has left in the session, as DISCARD ALL does. Outside of any transaction. */
extern void sweep_worker_discard_session(void);

/* Sets a parameter for the session, with precedence over the settings of the role and the database; NULL resets it to these. */
extern void sweep_worker_set(const char *name, const char *value);

/* In a session that executes CALL, for the transaction in progress: what a worker sets for its session. */
extern void sweep_worker_set_local(void);

/* Has a scheduler look for work in this database when the transaction has committed. */
extern void sweep_worker_wake_at_commit(void);

/* Waits for the latch or so many milliseconds; answers interrupts. True when it has read the configuration again. */
extern bool sweep_worker_wait(long timeout_ms);

#endif							/* SWEEP_WORKER_H */
