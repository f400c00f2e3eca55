/*
 * processes.h
 *		How many of the background processes that the server has a role may use, for runs and consumers together.
 */
#ifndef SWEEP_PROCESSES_H
#define SWEEP_PROCESSES_H

/* How many there can be of all roles, in use or free. */
extern int	sweep_processes_count(void);

/* How many more schedulers there may be: half of the processes that no run and no consumer has, at least one. */
extern int	sweep_processes_for_schedulers(void);

/*
 * How many more a role with a share may have: its share of them, and the last one that is free only when it has none. Whether
 * that one can be had the registration says. The caller has the lock of the runs (shared.h), for a claim alone, and not that of
 * the consumers.
 */
extern int	sweep_processes_room(Oid role);

/* How many more background runs there is room for, of this role in this database and not preferred. */
extern int	sweep_processes_room_for_runs(Oid role, bool unlimited);

#endif							/* SWEEP_PROCESSES_H */
