/*
 * consumer_pool.c
 *		Starts and dismisses the processes of consumers.
 *
 * Called by the scheduler of a database in its tick. It compares the processes that are wanted, by
 * sweep._wanted_consumers(), with those in shared memory, and starts missing processes or dismisses surplus ones. The
 * reason of a difference does not matter: a consumer was created, paused or dropped, a process ended, or the
 * scheduler is new. If processes end soon after their start, the pauses before the next start grow.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/known.h"
#include "base/processes.h"
#include "base/settings.h"
#include "base/shared.h"
#include "base/sql.h"
#include "base/worker.h"
#include "process/consumer_pool.h"
#include "process/pool.h"

static SweepStatement wanted_consumers_sql = {
	.text = "SELECT consumer_id, queue, run_as, concurrency FROM sweep._wanted_consumers()"};
static SweepStatement forget_once_sql = {.text = "SELECT sweep._forget_once()"};

#define LONG_LIFE_US (INT64CONST(60) * 1000000)

/* A consumer that should have processes. */
typedef struct Wanted
{
	int32		consumer_id;
	char		queue[NAMEDATALEN];
	Oid			role;
	bool		unlimited;		/* see quota.h */
	char		role_name[NAMEDATALEN];
	int			concurrency;
	bool		listed;			/* sweep._wanted_consumers() returned it in this tick */
	long		pause_ms;
	int64		started_us;		/* monotonic: the last start */
	int64		next_us;		/* monotonic: no start before */
} Wanted;

StaticAssertDecl(offsetof(Wanted, consumer_id) == 0, "it is found by its first field");

static List *wanted = NIL;		/* of Wanted */
static long next_ms = -1;
static SweepPool pool = {NULL};

static bool is_listed(int32 consumer_id);
static void dismiss_unwanted(void);
static void start_missing(Wanted *consumer, SweepRefusal *refusal, const char **role_name);
static SweepRefusal start_process(const Wanted *consumer);

void
sweep_consumer_pool_read(const SweepDatabaseRecord *record)
{
	ListCell   *cell;
	uint64		count;

	foreach(cell, wanted)
		((Wanted *) lfirst(cell))->listed = false;
	count = sweep_sql_execute(&wanted_consumers_sql, NULL, NULL);
	for (uint64 i = 0; i < count; i++)
	{
		Wanted	   *consumer;
		const char *role_name;

		sweep_sql_row(i);
		consumer = sweep_known_find(&wanted, sweep_sql_int32(1), sizeof(Wanted), TopMemoryContext);
		strlcpy(consumer->queue, sweep_sql_text(2, CurrentMemoryContext), sizeof(consumer->queue));
		consumer->role = sweep_sql_oid(3);
		consumer->unlimited = sweep_quota_is_unlimited(consumer->role);
		role_name = GetUserNameFromId(consumer->role, true);
		strlcpy(consumer->role_name, role_name ? role_name : "", sizeof(consumer->role_name));
		consumer->concurrency = sweep_sql_int32(4);
		consumer->listed = true;
	}
	if (sweep_monotonic_us() >= record->minute_us)
		(void) sweep_sql_execute(&forget_once_sql, NULL, NULL);
}

void
sweep_consumer_pool_adjust(SweepDatabaseRecord *record)
{
	SweepCapacity capacity = {"consumers", sweep_max_consumers, "pg_sweep.max_consumers", "lower the concurrency of consumers", sweep_processes_count,
		&sweep_shared()->consumers_said_us};
	SweepRefusal refusal = REFUSED_NOT;
	const char *role_name = NULL;
	ListCell   *cell;

	next_ms = -1;
	sweep_pool_prepare(&pool, sweep_shared()->slot_count);
	dismiss_unwanted();
	foreach(cell, wanted)
		start_missing(lfirst(cell), &refusal, &role_name);
	/* While one is only not tried again yet, they still wait. */
	if (refusal != REFUSED_NOT || next_ms < 0)
		sweep_quota_log_shortage(&capacity, refusal, &record->consumers, role_name);
}

/* Adds no member, because the caller has the lock. */
static bool
is_listed(int32 consumer_id)
{
	ListCell   *cell;

	foreach(cell, wanted)
	{
		const Wanted *consumer = lfirst(cell);

		if (consumer->consumer_id == consumer_id)
			return consumer->listed;
	}
	return false;
}

static void
dismiss_unwanted(void)
{
	int			excess = -sweep_max_consumers;
	ListCell   *cell;

	sweep_shared_lock(LW_EXCLUSIVE);
	for (int i = 0; i < sweep_shared()->slot_count; i++)
	{
		SweepSlot  *slot = &sweep_shared()->slots[i];

		if (slot->state == SLOT_FREE || slot->consumer_id == 0 || slot->database != MyDatabaseId)
			continue;
		/* Its worker ended before it was attached, or never came up. */
		if (slot->state == SLOT_STARTING && sweep_pool_has_lost(&pool, i, slot->claimed_us))
			sweep_shared_unclaim(slot);
		else if (!is_listed(slot->consumer_id))
			sweep_shared_dismiss(MyDatabaseId, slot->consumer_id, 1);
	}
	/* If all databases together have more processes than they may, as many of this one leave. */
	for (int i = 0; i < sweep_shared()->slot_count; i++)
		excess += sweep_shared_has_consumer(&sweep_shared()->slots[i]);
	sweep_shared_dismiss(MyDatabaseId, -1, excess);
	sweep_shared_unlock();
	foreach(cell, wanted)
	{
		Wanted	   *consumer = lfirst(cell);

		if (consumer->listed)
			continue;
		wanted = foreach_delete_current(wanted, cell);
		pfree(consumer);
	}
}

static void
start_missing(Wanted *consumer, SweepRefusal *refusal, const char **role_name)
{
	int64		now_us = sweep_monotonic_us();
	int			processes = 0;

	sweep_shared_lock(LW_SHARED);
	for (int i = 0; i < sweep_shared()->slot_count; i++)
	{
		SweepSlot  *slot = &sweep_shared()->slots[i];

		processes += sweep_shared_has_consumer(slot) && slot->database == MyDatabaseId && slot->consumer_id == consumer->consumer_id;
	}
	sweep_shared_dismiss(MyDatabaseId, consumer->consumer_id, processes - consumer->concurrency);
	sweep_shared_unlock();
	if (processes >= consumer->concurrency)
		return;
	if (now_us >= consumer->next_us)
	{
		bool		soon = consumer->started_us != 0 && now_us - consumer->started_us < LONG_LIFE_US;

		consumer->pause_ms = soon ? sweep_pool_next_pause(consumer->pause_ms) : SWEEP_POOL_FIRST_PAUSE_MS / 2;
		consumer->started_us = now_us;
		consumer->next_us = now_us + consumer->pause_ms * INT64CONST(1000);
		while (processes < consumer->concurrency)
		{
			SweepRefusal refused = start_process(consumer);

			if (refused == REFUSED_NOT)
			{
				processes++;
				continue;
			}
			/* A process that could not be started does not count as one that ended soon. */
			consumer->pause_ms = 0;
			*refusal = refused;
			*role_name = consumer->role_name;
			break;
		}
	}
	if (processes < consumer->concurrency)
	{
		long		left_ms = (long) ((consumer->next_us - now_us) / 1000 + 1);

		next_ms = next_ms < 0 ? left_ms : Min(next_ms, left_ms);
	}
}

static SweepRefusal
start_process(const Wanted *consumer)
{
	SweepRefusal refusal = REFUSED_ROLE_PROCESSES;
	SweepWorkerArgs args = {.database = MyDatabaseId, .role = consumer->role, .run_id = consumer->consumer_id};
	SweepClaimant claimant = {.role = consumer->role, .unlimited = consumer->unlimited, .worker = true, .consumer_id = consumer->consumer_id, .job = consumer->queue};
	SweepSlot  *slot = NULL;
	char		name[BGW_MAXLEN];

	sweep_shared_lock(LW_EXCLUSIVE);
	if (consumer->unlimited || sweep_processes_room(consumer->role) > 0)
		slot = sweep_shared_claim(&claimant, &refusal);
	sweep_shared_unlock();
	if (slot == NULL)
		return refusal;
	slot->live.started_at = GetCurrentTimestamp();
	args.index = slot - sweep_shared()->slots;
	args.generation = slot->generation;
	snprintf(name, sizeof(name), "pg_sweep consumer %s", consumer->queue);
	if (sweep_pool_register(&pool, "pg_sweep consumer", name, "sweep_consumer_main", &args))
		return REFUSED_NOT;
	sweep_shared_lock(LW_EXCLUSIVE);
	sweep_shared_unclaim(slot);
	sweep_shared_unlock();
	return REFUSED_PROCESSES;
}

long
sweep_consumer_pool_pause(void)
{
	return next_ms;
}

/* The scheduler must not leave earlier, because it would lose the times of the last starts and of the next tries. */
long
sweep_consumer_pool_rest(void)
{
	int64		now_us = sweep_monotonic_us();
	long		rest_ms = next_ms >= 0 ? next_ms : PG_INT32_MAX;
	ListCell   *cell;

	if (sweep_shared_any_consumer(MyDatabaseId, true))
		rest_ms = Min(rest_ms, (long) (LONG_LIFE_US / 1000 - 1));
	foreach(cell, wanted)
	{
		const Wanted *consumer = lfirst(cell);

		if (consumer->concurrency == 0)
			rest_ms = Min(rest_ms, (long) (LONG_LIFE_US / 1000));
		else if (consumer->started_us != 0 && now_us - consumer->started_us < LONG_LIFE_US)
			rest_ms = Min(rest_ms, (long) ((consumer->started_us + LONG_LIFE_US - now_us) / 1000));
	}
	return rest_ms;
}
