/*
 * quota.c
 *		The share of a resource that one role or one database may use.
 *
 * Slots of runs, processes of consumers, claimed messages and queues in use are shared by the whole cluster, so one
 * role could take all of them. The file of each resource (shared.c, queue/lease.c,
 * queue/slot_pool.c) counts its use and asks here whether one more is allowed.
 *
 * Whether a role is limited is looked up in the catalogues. The answer is needed for every message that is sent, and
 * in places without catalogue access: under a lock, or in a commit. The last answer is therefore kept until a role or
 * a membership changes.
 */
#include "postgres.h"

#include "catalog/pg_authid.h"
#include "miscadmin.h"

#include "base/clock.h"
#include "base/quota.h"
#include "base/role.h"
#include "base/settings.h"

/* Time of a shortage before it is logged, and time between two such lines, in us. */
#define SAY_AFTER_US (10 * INT64CONST(1000000))
#define SAY_AGAIN_US (60 * INT64CONST(1000000))

static Oid	known_role = InvalidOid;
static bool known_unlimited = false;
static uint64 known_at = 0;		/* sweep_role_changes() at that look-up */

bool
sweep_quota_is_unlimited(Oid role)
{
	uint64		changes = sweep_role_changes();

	if (role == known_role && known_at == changes && OidIsValid(role))
		return known_unlimited;
	known_unlimited = superuser_arg(role) || sweep_role_is(role, "sweep_admin");
	known_role = role;
	/* The number is read before the look-up: if roles have changed meanwhile, the next call looks up again. */
	known_at = changes;
	return known_unlimited;
}

bool
sweep_quota_is_known_unlimited(Oid role)
{
	/* Processes of pg_sweep that act for no user are connected as this role. */
	return role == BOOTSTRAP_SUPERUSERID || (role == known_role && known_at == sweep_role_changes() && known_unlimited);
}

/* A share of a capacity, at least 1. */
static int
share_of(int capacity, double share)
{
	/* Floating point gives a little less than 29 for 0.29 of 100. */
	return Max((int) (capacity * share + 1e-6), 1);
}

int
sweep_quota_of_role(int capacity)
{
	return share_of(capacity, sweep_max_share_per_role);
}

SweepRefusal
sweep_quota_check(const SweepUse *use, int capacity, bool unlimited)
{
	int			role = sweep_quota_of_role(capacity);
	int			database = share_of(capacity, sweep_max_share_per_database);

	/* A share that is the whole capacity is not reported as a limit of the role. */
	if (!unlimited && role < capacity && use->of_role >= role)
		return REFUSED_ROLE;
	if (database < capacity && use->of_database >= database)
		return REFUSED_DATABASE;
	return use->all >= capacity ? REFUSED_ALL : REFUSED_NOT;
}

int
sweep_quota_room(const SweepUse *use, int capacity, bool unlimited)
{
	int			room = Min(capacity - use->all, share_of(capacity, sweep_max_share_per_database) - use->of_database);

	if (!unlimited)
		room = Min(room, sweep_quota_of_role(capacity) - use->of_role);
	return Max(room, 0);
}

const char *
sweep_quota_setting(SweepRefusal refusal, const char *capacity)
{
	switch (refusal)
	{
		case REFUSED_NOT:
			break;
		case REFUSED_ROLE:
			return "pg_sweep.max_share_per_role";
		case REFUSED_DATABASE:
			return "pg_sweep.max_share_per_database";
		case REFUSED_RESERVED:
			return "pg_sweep.reserved_workers";
		case REFUSED_ALL:
			return capacity;
		case REFUSED_ROLE_PROCESSES:
		case REFUSED_PROCESSES:
			return "max_worker_processes";
	}
	return NULL;
}

bool
sweep_quota_may_say(pg_atomic_uint64 *said_us, int64 since_us)
{
	uint64		now_us = (uint64) sweep_monotonic_us();
	uint64		last_us = pg_atomic_read_u64(said_us);

	return (int64) now_us - since_us >= SAY_AFTER_US && (last_us == 0 || now_us - last_us >= SAY_AGAIN_US) &&
		pg_atomic_compare_exchange_u64(said_us, &last_us, now_us);
}

void
sweep_quota_log_shortage(const SweepCapacity *capacity, SweepRefusal refusal, SweepShortage *shortage, const char *role_name)
{
	const char *setting = sweep_quota_setting(refusal, capacity->setting);
	bool		was_said = shortage->said;
	int			processes;

	if (refusal == REFUSED_NOT)
		*shortage = (SweepShortage) {0};
	else if (shortage->since_us == 0)
		shortage->since_us = sweep_monotonic_us();
	if (refusal != REFUSED_NOT)
		shortage->said = was_said || sweep_quota_may_say(capacity->said_us, shortage->since_us);
	if (shortage->said == was_said)
		return;
	processes = capacity->processes();
	if (refusal == REFUSED_NOT)
		ereport(LOG, (errmsg("pg_sweep %s no longer wait for a background worker", capacity->what)));
	else
		ereport(WARNING,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("pg_sweep %s are waiting for a background worker", capacity->what),
				 refusal == REFUSED_ROLE ?
				 errdetail("Role \"%s\" has its share of %s, %d of %d.", role_name ? role_name : "(dropped)", capacity->setting,
						   sweep_quota_of_role(capacity->count), capacity->count) :
				 refusal == REFUSED_DATABASE ?
				 errdetail("The database has its share of %s, %d of %d.", capacity->setting,
						   share_of(capacity->count, sweep_max_share_per_database), capacity->count) :
				 refusal == REFUSED_RESERVED ?
				 errdetail("What is left of %s, %d, is reserved for jobs of a priority above 0.", capacity->setting, capacity->count) :
				 refusal == REFUSED_ROLE_PROCESSES ?
				 errdetail("Role \"%s\" has its share: of max_worker_processes = %d, runs and consumers may have %d, those of a role %d, and the last one that is free is for a role that has none.",
						   role_name ? role_name : "(dropped)", max_worker_processes, processes, sweep_quota_of_role(processes)) :
				 refusal == REFUSED_PROCESSES ?
				 errdetail("All of max_worker_processes = %d are in use; parallel queries may use max_parallel_workers = %d of them.", max_worker_processes,
						   max_parallel_workers) :
				 errdetail("All of %s = %d are in use.", setting, capacity->count),
				 refusal == REFUSED_RESERVED ?
				 errhint("Lower %s, raise %s, or %s.", setting, capacity->setting, capacity->advice) :
				 refusal == REFUSED_PROCESSES || refusal == REFUSED_ROLE_PROCESSES ?
				 errhint("Raise %s, which needs a restart of the server, or %s.", setting, capacity->advice) :
				 errhint("Raise %s, or %s.", setting, capacity->advice)));
}
