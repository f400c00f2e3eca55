/*
 * notify.c
 *		Sends the notifications of the queues of a database.
 *
 * Called by scheduler.c, first in a tick and while it rests. The commit of a NOTIFY takes a lock that exists once per cluster, so
 * NOTIFY in the commits of producers would make them all wait for one another. Producers therefore only set a flag in shared memory
 * and wake the scheduler, once until the flag is cleared, see SweepNews. At most one notification per queue and
 * pg_sweep.notify_interval is sent on the channel "sweep.<queue>". It has no payload: it tells listeners to claim messages.
 *
 * One listener that stays in a transaction keeps the notification queue of the server from being emptied, and when that queue is
 * full, the commit of each session that notifies fails. Nothing is sent while it is fuller than pg_sweep.notify_queue_limit; the
 * notifications are sent when there is room again.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/array.h"
#include "utils/memutils.h"

#include "base/clock.h"
#include "base/settings.h"
#include "base/shared.h"
#include "base/txn.h"
#include "base/worker.h"
#include "process/notify.h"
#include "queue/queue.h"

static SweepStatement notify_sql = {
	.text = "SELECT u.usage > $2, i.nth::pg_catalog.int4, coalesce(q.notify, false), "
	"CASE WHEN u.usage <= $2 AND q.notify THEN pg_catalog.pg_notify('sweep.' || q.name, '')::pg_catalog.text END "
	"FROM pg_catalog.pg_notification_queue_usage() AS u (usage) CROSS JOIN pg_catalog.unnest($1) WITH ORDINALITY AS i (id, nth) LEFT JOIN sweep.queue q ON q.queue_id = i.id",
	.types = {INT4ARRAYOID, FLOAT8OID}};

/* Time that a notification may wait for the lock of its commit, and for a table. */
#define LOCK_TIMEOUT "100ms"
#define FIRST_PAUSE_MS 100
#define LONGEST_PAUSE_MS 30000
#define FULL_PAUSE_MS 1000

static MemoryContext context = NULL;
static SweepQueueNews *taken = NULL;	/* being announced */
static int	taken_count = 0;
static bool full = false;
static long pause_ms = 0;		/* last one after a failure */
static int64 next_us = 0;		/* monotonic: not before */
static int64 sent_us = 0;		/* monotonic: the last notification; 0 = none */
static long rest_ms = PG_INT32_MAX;

static void send_news(void);
static void notify_work(void *arg);

long
sweep_notify_send(const char *lock_timeout)
{
	int64		now_us = sweep_monotonic_us();
	int64		wait_us = PG_INT32_MAX * INT64CONST(1000);

	if (context == NULL)
	{
		context = AllocSetContextCreate(TopMemoryContext, "pg_sweep notifications", ALLOCSET_SMALL_SIZES);
		taken = MemoryContextAlloc(TopMemoryContext, sizeof(*taken) * sweep_max_queues);
	}
	taken_count = now_us >= next_us ? sweep_queue_take_news(taken, &wait_us) : 0;
	if (taken_count > 0)
	{
		sweep_worker_set("lock_timeout", LOCK_TIMEOUT);
		send_news();
		sweep_worker_set("lock_timeout", lock_timeout);
	}
	if (sweep_notify_has_unsent())
		wait_us = Max(next_us - sweep_monotonic_us(), 0);
	rest_ms = (long) Min(wait_us / 1000 + 1, PG_INT32_MAX);
	return rest_ms;
}

static void
send_news(void)
{
	MemoryContext old = MemoryContextSwitchTo(context);
	ErrorData  *error = NULL;
	SweepTxnEnd end;

	MemoryContextReset(context);
	end = sweep_txn_execute(&(SweepTxnPolicy) {.error_context = context}, notify_work, NULL, &error);
	if (end == TXN_COMMITTED && !full)
	{
		for (int i = 0; i < taken_count; i++)
		{
			if (taken[i].state == NEWS_UNWANTED)
				continue;
			taken[i].state = NEWS_NONE;
			sent_us = sweep_monotonic_us();
		}
	}
	sweep_queue_settle_news(taken, taken_count);
	if (end == TXN_FAILED && pause_ms == 0)
		ereport(WARNING,
				(errcode(error->sqlerrcode),
				 errmsg("pg_sweep scheduler could not notify: %s", error->message)));
	pause_ms = end == TXN_FAILED ? Min(Max(pause_ms * 2, FIRST_PAUSE_MS), LONGEST_PAUSE_MS) : 0;
	next_us = sweep_monotonic_us() + (full ? FULL_PAUSE_MS : pause_ms) * INT64CONST(1000);
	MemoryContextSwitchTo(old);
}

static void
notify_work(void *arg)
{
	Datum	   *elements = palloc(sizeof(Datum) * taken_count);
	Datum		values[2] = {0, Float8GetDatum(sweep_notify_queue_limit)};
	bool		was_full = full;
	uint64		rows;

	for (int i = 0; i < taken_count; i++)
		elements[i] = Int32GetDatum(taken[i].queue_id);
	values[0] = PointerGetDatum(construct_array(elements, taken_count, INT4OID, sizeof(int32), true, TYPALIGN_INT));
	rows = sweep_sql_execute(&notify_sql, values, NULL);
	for (uint64 row = 0; row < rows; row++)
	{
		sweep_sql_row(row);
		full = sweep_sql_bool(1);
		if (!sweep_sql_bool(3))
			taken[sweep_sql_int32(2) - 1].state = NEWS_UNWANTED;
	}
	if (full && !was_full)
		ereport(WARNING,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("pg_sweep sends no notifications: the notification queue of the server is filling up"),
				 errdetail("A session that listens to some channel stays in a transaction."),
				 errhint("End the session that has executed LISTEN and whose transaction is the oldest.")));
	else if (was_full && !full)
		ereport(LOG, (errmsg("pg_sweep sends notifications again")));
}

bool
sweep_notify_has_unsent(void)
{
	return full || pause_ms > 0;
}

/* Messages often come in succession, so a scheduler that has just sent a notification stays for the next one. */
long
sweep_notify_rest(void)
{
	int64		left_us = sent_us == 0 ? 0 : sent_us + SWEEP_STAY_US - sweep_monotonic_us();

	return left_us > 0 ? Min(rest_ms, (long) (left_us / 1000)) : rest_ms;
}
