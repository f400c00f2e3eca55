/*
 * quota.h
 *		How much of what all share one role or one database may use.
 */
#ifndef SWEEP_QUOTA_H
#define SWEEP_QUOTA_H

#include "port/atomics.h"

/* The limit that keeps a role from using more. */
typedef enum SweepRefusal
{
	REFUSED_NOT,
	REFUSED_ROLE,				/* the role has its share */
	REFUSED_DATABASE,			/* the database has its share */
	REFUSED_RESERVED,			/* what is left is for those with a priority */
	REFUSED_ALL,				/* everything is in use */
	REFUSED_ROLE_PROCESSES,		/* the role has its share of the processes that there are */
	REFUSED_PROCESSES,			/* max_worker_processes are in use */
} SweepRefusal;

/* How much of a capacity is in use. */
typedef struct SweepUse
{
	int			of_role;
	int			of_database;
	int			all;
} SweepUse;

/* Superusers and members of sweep_admin have no share of a role: theirs is everything. In a transaction. */
extern bool sweep_quota_is_unlimited(Oid role);

/* The same for the role that was asked about last, false for others; needs no transaction, looks nothing up. */
extern bool sweep_quota_is_known_unlimited(Oid role);

/* Whether one more is refused, and why: the narrowest limit that is reached. */
extern SweepRefusal sweep_quota_check(const SweepUse *use, int capacity, bool unlimited);

/* The share of a role with one, at least 1. */
extern int	sweep_quota_of_role(int capacity);

/* How many more there may be. */
extern int	sweep_quota_room(const SweepUse *use, int capacity, bool unlimited);

/* A shared resource, for messages: "runs" that wait, how many there may be, and what says so. */
typedef struct SweepCapacity
{
	const char *what;
	int			count;
	const char *setting;
	const char *advice;			/* what to do else than to raise a setting */
	int			(*processes) (void);	/* that runs and consumers may have */
	pg_atomic_uint64 *said_us;	/* monotonic: last line in the log of any database that says that they wait; 0 = none */
} SweepCapacity;

/* Since when a database waits for such a resource. */
typedef struct SweepShortage
{
	int64		since_us;		/* monotonic; 0 = for nothing */
	bool		said;			/* in the log */
} SweepShortage;

/*
 * One line in the log when they have waited for ten seconds, and one when they no longer wait after that: of all databases
 * together once a minute. The role is the one that was refused.
 */
extern void sweep_quota_log_shortage(const SweepCapacity *capacity, SweepRefusal refusal, SweepShortage *shortage, const char *role_name);

/* Whether a line that says so may be logged now, once a minute; counts it. */
extern bool sweep_quota_may_say(pg_atomic_uint64 *said_us, int64 since_us);

/* The setting to change; that of the capacity is given. NULL when nothing was refused. */
extern const char *sweep_quota_setting(SweepRefusal refusal, const char *capacity);

#endif							/* SWEEP_QUOTA_H */
