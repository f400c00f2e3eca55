/*
 * settings.h
 *		The settings of pg_sweep; doc/reference.md explains each.
 */
#ifndef SWEEP_SETTINGS_H
#define SWEEP_SETTINGS_H

typedef enum SweepLogBatches
{
	LOG_BATCHES_OFF,
	LOG_BATCHES_BATCHES,
	LOG_BATCHES_ITEMS,
} SweepLogBatches;

extern bool sweep_enabled;		/* off: no database has a scheduler */
extern bool sweep_start_paused; /* on: no database has a scheduler either */
extern char *sweep_databases;	/* names separated by commas; empty = all */
extern int	sweep_log_batches;	/* SweepLogBatches */
extern int	sweep_max_args_size;	/* kB */
extern int	sweep_max_consumers;
extern int	sweep_max_in_flight;	/* largest number of claimed messages */
extern int	sweep_max_queues;
extern int	sweep_max_running_jobs;
extern int	sweep_max_wait;		/* milliseconds; -1 = as long as callers say */
extern int	sweep_reserved_workers;
extern double sweep_max_share_per_database;
extern double sweep_max_share_per_role;
extern int	sweep_no_progress_after;	/* milliseconds; -1 = runs are not watched */
extern int	sweep_notify_interval;	/* milliseconds */
extern double sweep_notify_queue_limit;	/* a fraction */

/*
 * Defines the settings. Settings for the size of shared memory exist only when the library is loaded at server start.
 */
extern void sweep_settings_define(bool at_server_start);

/* Whether pg_sweep.databases allows pg_sweep to work in the database. */
extern bool sweep_settings_allow_database(const char *name);

#endif							/* SWEEP_SETTINGS_H */
