/*
 * due.c
 *		Queues what is due, and lists what may start.
 *
 * Called by scheduler.c in a tick. SQL functions decide which jobs are due. One role can have thousands of jobs that are
 * due at the same moment. To let runs of other roles start meanwhile, the jobs are queued in transactions of a
 * bounded size, the roles in turn, and for a bounded time; the rest is left to the next tick.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_database.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "engine/definition.h"
#include "process/due.h"

static SweepStatement startable_runs_sql = {
	.text = "SELECT s.run_id, s.expected_rows, r.place, j.name, o.role, j.priority, s.run_id = ANY ($2), " SWEEP_DEFINITION_OF_RUN
		/* Each run is found by its key, however many wait. */
		" FROM sweep._startable_runs($1) AS s CROSS JOIN LATERAL (SELECT l.ctid AS place, l.job, l.run_as, l.args, l.shares_left, l.bucket, l.trigger, l.due_at "
		"FROM sweep.run_live l WHERE l.run_id = s.run_id AND l.status = 'waiting' OFFSET 0) AS r "
		"JOIN sweep.job_definition j ON j.name = r.job AND j.run_as = r.run_as CROSS JOIN LATERAL (SELECT sweep._role_oid(j.run_as) AS role OFFSET 0) AS o "
		"ORDER BY j.priority DESC, pg_catalog.row_number() OVER (PARTITION BY j.run_as, s.run_id = ANY ($2) ORDER BY j.priority DESC, r.due_at, s.run_id), "
		"coalesce(o.role > $3, false) DESC, o.role NULLS FIRST",
	.types = {TIMESTAMPTZOID, INT8ARRAYOID, OIDOID}};
SweepStatement sweep_took_long_sql = {
	.text = "SELECT coalesce((SELECT h.finished_at - h.started_at > interval '1 min' FROM sweep.run_history h WHERE h.job = $1 AND h.status <> 'skipped' "
		"ORDER BY h.run_id DESC LIMIT 1), false)",
	.types = {TEXTOID}};
SweepStatement sweep_next_wake_sql = {
	.text = "SELECT (extract(epoch FROM sweep._next_wake($1) - $1) * 1000000)::bigint",
	.types = {TIMESTAMPTZOID}};
static SweepStatement mark_lost_sql = {.text = "SELECT sweep._mark_lost()"};
static SweepStatement enqueue_due_sql = {
	.text = "SELECT sweep._enqueue_due($1, $2)",
	.types = {TIMESTAMPTZOID, INT4OID}};
static SweepStatement mend_clock_sql = {
	.text = "SELECT sweep._mend_clock($1, $2 * interval '1 us')",
	.types = {TIMESTAMPTZOID, INT8OID}};
static SweepStatement reboot_sql = {
	.text = "SELECT r.booted, CASE WHEN r.booted THEN sweep._warn_of_foreign_grants() END FROM sweep._enqueue_reboot() AS r (booted)"};

/* Jobs that are queued in a transaction, and the time for which a tick queues them. */
#define QUEUE_AT_ONCE 100
#define QUEUE_US INT64CONST(50000)

/* Backward step of the clock after which moments are compared with it at once instead of once a minute, in us. */
#define STEP_US INT64CONST(1000000)

static SweepDatabaseRecord *record;
static bool booting = false;	/* the transaction queues the @reboot jobs */
static TimestampTz moment;
static SweepDue queued;
static int64 back_us;			/* by which the clock was set back since the last comparison */
static bool mends;				/* the next transaction compares moments with the clock */

static Datum started_runs(void);
static void lost_work(void *arg);
static void due_work(void *arg);

bool
sweep_due_is_open(void)
{
	HeapTuple	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(MyDatabaseId));
	Form_pg_database form = HeapTupleIsValid(tuple) ? (Form_pg_database) GETSTRUCT(tuple) : NULL;
	bool		open = form != NULL && form->datallowconn && !form->datistemplate;

	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	if (!open)
		sweep_shared_wake_launcher(true);
	return open;
}

/*
 * When fewer processes are free than runs are due, a role with a long backlog of old runs would otherwise start all of them before those of
 * any other role. Among runs of one priority, roles therefore take turns: first the first run of each role, in the order of their
 * OIDs, beginning after the role whose run was started last, then the second runs. Runs of one role keep their order.
 */
uint64
sweep_due_list(TimestampTz now, Oid last_role)
{
	Datum		values[] = {TimestampTzGetDatum(now), started_runs(), ObjectIdGetDatum(last_role)};

	return sweep_sql_execute(&startable_runs_sql, values, NULL);
}

bool
sweep_due_queue(TimestampTz now, bool (*transact) (SweepWork work), SweepDatabaseRecord *database, SweepDue *due)
{
	int64		now_us = sweep_monotonic_us();
	int64		ahead_us = GetCurrentTimestamp() - now_us;
	bool		done;

	moment = now;
	record = database;
	queued = (SweepDue) {false, false};
	back_us = record->ahead_us == 0 ? 0 : Max(record->ahead_us - ahead_us, 0);
	mends = back_us > STEP_US || now_us >= record->minute_us;
	done = transact(lost_work);
	record->booted |= done && booting;
	/* The first transaction has to compare the clock, however long the one before has taken. */
	for (bool first = true; done && queued.more && (first || sweep_monotonic_us() < now_us + QUEUE_US); first = false)
	{
		done = transact(due_work);
		if (done)
			record->ahead_us = ahead_us;
		mends = false;
	}
	*due = queued;
	return done;
}

/* Runs that had a slot before the list is read. */
static Datum
started_runs(void)
{
	const SweepShared *shared = sweep_shared();
	Datum	   *runs = palloc(sizeof(Datum) * shared->slot_count);
	int			count = 0;

	sweep_shared_lock(LW_SHARED);
	for (int i = 0; i < shared->slot_count; i++)
	{
		if (sweep_shared_has_run(&shared->slots[i]))
			runs[count++] = Int64GetDatum(shared->slots[i].run_id);
	}
	sweep_shared_unlock();
	return PointerGetDatum(construct_array(runs, count, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

static void
lost_work(void *arg)
{
	if (!record->booted)
	{
		(void) sweep_sql_execute(&reboot_sql, NULL, NULL);
		queued.news = true;
		booting = sweep_sql_bool(1);
	}
	(void) sweep_sql_execute(&mark_lost_sql, NULL, NULL);
	queued.news |= sweep_sql_int32(1) > 0;
	queued.more = true;
}

static void
due_work(void *arg)
{
	Datum		values[] = {TimestampTzGetDatum(moment), Int32GetDatum(QUEUE_AT_ONCE)};
	Datum		clock[] = {TimestampTzGetDatum(GetCurrentTimestamp()), Int64GetDatum(back_us)};

	/* Before due jobs are queued, so that jobs have their new moments when the clock was set back. */
	if (mends)
		(void) sweep_sql_execute(&mend_clock_sql, clock, NULL);
	queued.more = false;
	(void) sweep_sql_execute(&enqueue_due_sql, values, NULL);
	queued.news |= sweep_sql_int32(1) > 0;
	queued.more = sweep_sql_int32(1) >= QUEUE_AT_ONCE;
}
