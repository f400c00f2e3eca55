/*
 * notifier.c
 *		The process that sends the notifications of the queues of a database.
 *
 * NOTIFY takes a lock for its commit that exists once per cluster, so in the commits of producers it
 * would have all of them wait for one another. They only set a flag in shared memory and wake this
 * process, once until it has looked. It sends one notification per queue and pg_sweep.notify_interval on
 * the channel "sweep.<queue>", without payload: it says "look", and a look takes all there is.
 *
 * One listener that stays in a transaction keeps the notification queue of the server from being emptied,
 * and when that is full, the commit of everybody who notifies fails. So nothing is sent while it is more
 * than pg_sweep.notify_queue_limit full; what was not sent is sent when there is room again.
 *
 * Registered by consumer_pool.c when there is a queue with notify. It connects as the owner of the server
 * and runs no SQL of a user; its commits do not wait for the disk.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "pgstat.h"
#include "storage/ipc.h"
#include "utils/array.h"
#include "utils/memutils.h"

#include "base/clock.h"
#include "base/consumer_shared.h"
#include "base/settings.h"
#include "base/txn.h"
#include "base/worker.h"
#include "process/known.h"
#include "process/notifier.h"
#include "queue/queue.h"

static SweepStatement notify_sql = {
	.text = "SELECT u.usage > $2, pg_catalog.count(CASE WHEN u.usage <= $2 AND q.name IS NOT NULL THEN pg_catalog.pg_notify('sweep.' || q.name, '')::pg_catalog.text END) "
		"FROM pg_catalog.pg_notification_queue_usage() AS u (usage) LEFT JOIN sweep.queue q ON q.queue_id = ANY ($1) AND q.notify GROUP BY u.usage",
	.types = {INT4ARRAYOID, FLOAT8OID}};

#define HEARTBEAT_MS 60000
#define FIRST_PAUSE_MS 100
#define LONGEST_PAUSE_MS 30000
#define FULL_PAUSE_MS 1000

/* A queue that has something to say, or has said it lately. */
typedef struct Channel
{
	int32		queue_id;
	int			slot;
	bool		pending_work;
	int64		sent_us;		/* monotonic: the last notification; 0 = none */
} Channel;

StaticAssertDecl(offsetof(Channel, queue_id) == 0, "it is found by its first field");

static int	slot_index;
static List *channels = NIL;	/* of Channel */
static MemoryContext turn_context;
static bool absent = false;
static bool full = false;
static long pause_ms = 0;

static void take_pending_work(void);
static int64 left_us(const Channel *channel, int64 now_us);
static long send_due(void);
static void mark_sent(int64 now_us);
static void notify_work(void *arg);
static void leave(int code, Datum arg);

void
sweep_notifier_main(Datum arg)
{
	SweepWorkerArgs args;
	SweepConsumerSlot *slot;

	sweep_worker_args(&args);
	slot_index = args.index;
	slot = sweep_consumer_shared_slot(args.index);
	if (!sweep_consumer_shared_attach(args.index, args.generation))
		proc_exit(0);
	before_shmem_exit(leave, 0);
	sweep_worker_begin();
	sweep_worker_connect_engine(args.database);
	sweep_worker_set("synchronous_commit", "off");
	sweep_worker_set("lock_timeout", "1s");
	sweep_worker_set("application_name", "pg_sweep notifier");
	turn_context = AllocSetContextCreate(TopMemoryContext, "pg_sweep turn", ALLOCSET_DEFAULT_SIZES);
	while (!absent && pg_atomic_read_u32(&slot->leave) == 0)
	{
		MemoryContextReset(turn_context);
		MemoryContextSwitchTo(turn_context);
		take_pending_work();
		pgstat_report_activity(STATE_IDLE, NULL);
		sweep_worker_wait(send_due());
	}
	proc_exit(0);
}

/*
 * The flags of the queues of this database. The flag of a queue that was announced a moment ago stays set:
 * while it is, its producers do not wake us, and there is nothing to be done before the interval is over.
 */
static void
take_pending_work(void)
{
	int32	   *queue_ids = palloc(sizeof(int32) * sweep_max_queues);
	int64		now_us = sweep_monotonic_us();

	sweep_queue_read_pending_work(queue_ids);
	for (int i = 0; i < sweep_max_queues; i++)
	{
		Channel    *channel;

		if (queue_ids[i] == 0)
			continue;
		channel = sweep_known_find(&channels, queue_ids[i], sizeof(Channel));
		channel->slot = i;
		channel->pending_work = true;
		if (left_us(channel, now_us) > 0)
			continue;
		/* Before the notification: a message that comes between the two needs another one. */
		sweep_queue_set_pending_work(i, queue_ids[i], false);
	}
}

/* How long until the queue may be announced again. */
static int64
left_us(const Channel *channel, int64 now_us)
{
	if (channel->sent_us == 0)
		return 0;
	return channel->sent_us + sweep_notify_interval * INT64CONST(1000) - now_us;
}

/* Sends what may be sent now; returns how long to wait for the rest. */
static long
send_due(void)
{
	int64		now_us = sweep_monotonic_us();
	Datum	   *elements = palloc(sizeof(Datum) * (list_length(channels) + 1));
	int			count = 0;
	int64		wait_us = HEARTBEAT_MS * INT64CONST(1000);
	ErrorData  *error = NULL;
	SweepTxnEnd end;
	Datum		queue_ids;
	ListCell   *cell;

	foreach(cell, channels)
	{
		Channel    *channel = lfirst(cell);

		if (channel->pending_work && left_us(channel, now_us) <= 0)
			elements[count++] = Int32GetDatum(channel->queue_id);
		else if (channel->pending_work)
			wait_us = Min(wait_us, left_us(channel, now_us));
	}
	if (count == 0)
		return (long) (wait_us / 1000 + 1);
	queue_ids = PointerGetDatum(construct_array(elements, count, INT4OID, sizeof(int32), true, TYPALIGN_INT));
	end = sweep_txn_execute(&(SweepTxnPolicy) {.error_context = turn_context}, notify_work, &queue_ids, &error);
	absent = end == TXN_ABSENT;
	if (end == TXN_FAILED)
	{
		if (pause_ms == 0)
			ereport(WARNING,
					(errcode(error->sqlerrcode),
					 errmsg("pg_sweep notifier could not notify: %s", error->message)));
		pause_ms = Min(Max(pause_ms * 2, FIRST_PAUSE_MS), LONGEST_PAUSE_MS);
		return pause_ms;
	}
	pause_ms = 0;
	if (full)
		return FULL_PAUSE_MS;
	mark_sent(now_us);
	return Min((long) (wait_us / 1000 + 1), sweep_notify_interval);
}

/* One that has had nothing to say for an interval is forgotten. */
static void
mark_sent(int64 now_us)
{
	ListCell   *cell;

	foreach(cell, channels)
	{
		Channel    *channel = lfirst(cell);

		if (left_us(channel, now_us) > 0)
			continue;
		if (channel->pending_work)
		{
			channel->pending_work = false;
			channel->sent_us = now_us;
			continue;
		}
		channels = foreach_delete_current(channels, cell);
		pfree(channel);
	}
}

static void
notify_work(void *arg)
{
	Datum		values[] = {*(Datum *) arg, Float8GetDatum(sweep_notify_queue_limit)};
	bool		was_full = full;

	(void) sweep_sql_execute(&notify_sql, values, NULL);
	sweep_sql_row(0);
	full = sweep_sql_bool(1);
	if (full && !was_full)
		ereport(WARNING,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("pg_sweep sends no notifications: the notification queue of the server is filling up"),
				 errdetail("A session that listens to some channel stays in a transaction."),
				 errhint("End the session that has executed LISTEN and whose transaction is the oldest.")));
	else if (was_full && !full)
		ereport(LOG, (errmsg("pg_sweep sends notifications again")));
}

/* Notifications that were not sent are left to the next notifier. */
static void
leave(int code, Datum arg)
{
	ListCell   *cell;

	foreach(cell, channels)
	{
		const Channel *channel = lfirst(cell);

		if (channel->pending_work)
			sweep_queue_set_pending_work(channel->slot, channel->queue_id, true);
	}
	sweep_consumer_shared_release(slot_index);
}
