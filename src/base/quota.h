/*
 * quota.h
 *		The share of a resource that one role or one database may use.
 */
#ifndef SWEEP_QUOTA_H
#define SWEEP_QUOTA_H

#include "port/atomics.h"

/* The limit that keeps a role from using more. */
typedef enum SweepRefusal
{
	REFUSED_NOT,
	REFUSED_ROLE,				/* the role uses its whole share */
	REFUSED_DATABASE,			/* the database uses its whole share */
	REFUSED_RESERVED,			/* the rest is reserved for jobs of a priority above 0 */
	REFUSED_ALL,				/* everything is in use */
	REFUSED_ROLE_PROCESSES,		/* the role uses its whole share of the processes for runs and consumers */
	REFUSED_PROCESSES,			/* max_worker_processes are in use */
} SweepRefusal;

/* How much of a capacity is in use. */
typedef struct SweepUse
{
	int			of_role;
	int			of_database;
	int			all;
} SweepUse;

/* Whether the role is not limited to a share: a superuser or a member of sweep_admin. Only in a transaction. */
extern bool sweep_quota_is_unlimited(Oid role);

/* The same for the role of the last call of the function above, false for others; needs no transaction, looks nothing up. */
extern bool sweep_quota_is_known_unlimited(Oid role);

/* Whether one more use is refused: the narrowest limit that is reached, or REFUSED_NOT. */
extern SweepRefusal sweep_quota_check(const SweepUse *use, int capacity, bool unlimited);

/* The share of a limited role, at least 1. */
extern int	sweep_quota_of_role(int capacity);

/* Number of uses that are still possible. */
extern int	sweep_quota_room(const SweepUse *use, int capacity, bool unlimited);

/* A shared resource, as messages in the log describe it. */
typedef struct SweepCapacity
{
	const char *what;			/* its users: "runs", "consumers" */
	int			count;			/* how much of it there is */
	const char *setting;		/* the setting with that number */
	const char *advice;			/* an alternative to raising the setting */
	int			(*processes) (void);	/* number of processes that runs and consumers may have */
	pg_atomic_uint64 *said_us;	/* monotonic: last log line about a shortage, of any database; 0 = none */
} SweepCapacity;

/* A database that waits for such a resource. */
typedef struct SweepShortage
{
	int64		since_us;		/* monotonic; 0 = it does not wait */
	bool		said;			/* the log has a line about it */
} SweepShortage;

/*
 * Logs one line when users of the resource have waited for ten seconds, and another one when they no longer wait after that. All
 * databases together log the first line once a minute at most. "role_name" is the role that was refused.
 */
extern void sweep_quota_log_shortage(const SweepCapacity *capacity, SweepRefusal refusal, SweepShortage *shortage, const char *role_name);

/* Whether a line about a shortage since then may be logged now, at most one a minute; if so, notes the time of the line. */
extern bool sweep_quota_may_say(pg_atomic_uint64 *said_us, int64 since_us);

/* The setting to raise, given the setting of the capacity; NULL when nothing was refused. */
extern const char *sweep_quota_setting(SweepRefusal refusal, const char *capacity);

#endif							/* SWEEP_QUOTA_H */
