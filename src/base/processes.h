/*
 * processes.h
 *		How many of the server's background processes a role may use, for runs and consumers together.
 */
#ifndef SWEEP_PROCESSES_H
#define SWEEP_PROCESSES_H

/* Number of processes that runs and consumers of all roles may have, in use or free. */
extern int	sweep_processes_count(void);

/* Number of further schedulers that may be started: schedulers may have half of the processes that no run and no consumer has, at least one. */
extern int	sweep_processes_for_schedulers(void);

/*
 * Number of further processes for a role that is limited: up to its share. It gets the last free process only if it has none.
 * Whether a process is really free, only the registration shows. The caller has the lock of shared.h, exclusive for
 * a claim.
 */
extern int	sweep_processes_room(Oid role);

/* Number of further background runs without preference for which this role has room in this database. */
extern int	sweep_processes_room_for_runs(Oid role, bool unlimited);

#endif							/* SWEEP_PROCESSES_H */
