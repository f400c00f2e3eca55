/*
 * statements.c
 *		The texts of the constant statements, executed by sql.c.
 *
 * All names are qualified or in pg_catalog: they run under that search_path alone. Whatever is a rule
 * rather than a look-up is a function of the install script.
 */
#include "postgres.h"

#include "catalog/pg_type.h"

#include "base/job_settings.h"
#include "base/statements.h"

/* What a run needs to know of its job, read by definition.c: for a run that waits, and for a job by its name. */
#define JOB_COLUMN(kind, member, column) ", " column
#define COLUMN_OF_RUN(kind, member, column, by_name) ", " column
#define COLUMN_BY_NAME(kind, member, column, by_name) ", " by_name
#define DEFINITION_OF_RUN "j.name" SWEEP_JOB_SETTINGS(JOB_COLUMN) SWEEP_RUN_SETTINGS(COLUMN_OF_RUN)
#define DEFINITION_BY_NAME "j.name" SWEEP_JOB_SETTINGS(JOB_COLUMN) SWEEP_RUN_SETTINGS(COLUMN_BY_NAME)

/* What a run writes into its row. */
#define RUN_COLUMNS \
	"batches = $3, rows = $4, cursor = $5, detail = $6, status = coalesce($7, 'running'), stop_reason = $8, " \
	"finished_at = CASE WHEN $8 IS NOT NULL THEN pg_catalog.clock_timestamp() END, sqlstate = $9, error = $10, rescued = $11, quarantined = $12, " \
	"braked_ms = $13"
#define RUN_TYPES \
	{TIDOID, INT8OID, INT4OID, INT8OID, JSONBOID, JSONBOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, INT8OID, INT8OID, INT8OID}

static const SweepStatementText statements[] = {
	[SWEEP_SQL_READ_RUN] = {
		"SELECT " DEFINITION_OF_RUN
		" FROM sweep.run_live r JOIN sweep.job_definition j ON j.name = r.job AND j.run_as = r.run_as WHERE r.run_id = $1 AND r.status = 'waiting'",
	1, {INT8OID}},
	[SWEEP_SQL_READ_JOB] = {
		"SELECT " DEFINITION_BY_NAME " FROM sweep.job_definition j WHERE j.name = $1",
	2, {TEXTOID, JSONBOID}},
	[SWEEP_SQL_INSERT_RUN] = {
		"INSERT INTO sweep.run_live (job, args, trigger, due_at, pid, run_as) "
		"VALUES ($1, $2, 'manual', pg_catalog.clock_timestamp(), $3, sweep._role_name($4)) "
		"RETURNING run_id, ctid, (SELECT s.drained_rows FROM sweep.job_state s WHERE s.job = $1)",
	4, {TEXTOID, JSONBOID, INT4OID, OIDOID}},
	[SWEEP_SQL_LOCK_RUN] = {"SELECT sweep._lock_waiting_run($1)", 1, {INT8OID}},
	[SWEEP_SQL_START_RUN] = {
		"UPDATE sweep.run_live AS r SET status = 'running', started_at = pg_catalog.clock_timestamp(), pid = $2, bucket = $3, shares_left = $4, "
		"begun = pg_catalog.nextval('sweep.run_begun_seq') "
		"WHERE r.run_id = $1 AND r.status = 'waiting' AND sweep._role_oid(r.run_as) = $5 RETURNING r.ctid",
	5, {INT8OID, INT4OID, INT4OID, INT4OID, OIDOID}},
	[SWEEP_SQL_KEPT_CURSOR] = {"SELECT sweep._kept_cursor($1)", 1, {TEXTOID}},
	[SWEEP_SQL_HAS_QUARANTINE] = {"SELECT FROM sweep.quarantined_item q WHERE q.job = $1 LIMIT 1", 1, {TEXTOID}},
	[SWEEP_SQL_SAVE_RUN] = {
		"UPDATE sweep.run_live SET " RUN_COLUMNS " WHERE ctid = $1 AND run_id = $2 RETURNING ctid",
	13, RUN_TYPES},
	[SWEEP_SQL_SAVE_RUN_BY_KEY] = {
		"UPDATE sweep.run_live SET " RUN_COLUMNS " WHERE ($1 IS NOT NULL) AND run_id = $2 AND status = 'running' "
		"AND pid = pg_catalog.pg_backend_pid() RETURNING ctid",
	13, RUN_TYPES},
	[SWEEP_SQL_FIND_QUARANTINED] = {
		"SELECT u.n::int, q.next_try > pg_catalog.clock_timestamp() FROM pg_catalog.unnest($2) WITH ORDINALITY AS u (item, n) "
		"JOIN sweep.quarantined_item q ON q.job = $1 AND q.item_hash = pg_catalog.md5(u.item::pg_catalog.text)",
	2, {TEXTOID, JSONBARRAYOID}},
	[SWEEP_SQL_QUARANTINE] = {"SELECT sweep._quarantine($1, $2, $3, $4, $5)", 5, {TEXTOID, OIDOID, JSONBOID, TEXTOID, TEXTOID}},
	[SWEEP_SQL_UNQUARANTINE] = {
		"DELETE FROM sweep.quarantined_item WHERE job = $1 AND item_hash IN (SELECT pg_catalog.md5(u.item::pg_catalog.text) FROM pg_catalog.unnest($2) AS u (item)) "
		"AND EXISTS (SELECT FROM sweep.job_definition j WHERE j.name = $1 AND sweep._role_oid(j.run_as) = $3)",
	3, {TEXTOID, JSONBARRAYOID, OIDOID}},
	[SWEEP_SQL_SKIP_RUN] = {
		"UPDATE sweep.run_live SET status = 'skipped', stop_reason = 'skipped', started_at = pg_catalog.clock_timestamp(), "
		"finished_at = pg_catalog.clock_timestamp(), pid = $2, detail = pg_catalog.jsonb_build_object('reason', 'lock_held', 'holder_pid', "
		"(SELECT l.pid FROM pg_catalog.pg_locks l WHERE l.locktype = 'advisory' AND l.granted AND l.database = $3 "
		"AND l.classid = $4 AND l.objid = $5 AND l.objsubid = $6 LIMIT 1)) WHERE run_id = $1 AND status = 'waiting' RETURNING detail ->> 'holder_pid'",
	6, {INT8OID, INT4OID, OIDOID, OIDOID, OIDOID, INT2OID}},
	[SWEEP_SQL_START_HOOKS] = {"SELECT sweep._start_hooks($1)", 1, {INT8OID}},
	[SWEEP_SQL_FOLLOW_END] = {"SELECT sweep._follow_end($1)", 1, {INT8OID}},
	[SWEEP_SQL_NOTE_UNREPLICATED] = {"SELECT sweep._note_unreplicated($1)", 1, {INT8OID}},
	[SWEEP_SQL_SKIP_SHARE] = {
		"UPDATE sweep.run_live SET status = 'skipped', stop_reason = 'skipped', started_at = pg_catalog.clock_timestamp(), "
		"finished_at = pg_catalog.clock_timestamp(), pid = $2, detail = $3, bucket = NULL WHERE run_id = $1 AND status = 'waiting'",
	3, {INT8OID, INT4OID, JSONBOID}},
	[SWEEP_SQL_DIVIDED_CHILDREN] = {
		"SELECT name, bucket_store, bucket_recovery, bucket_key, buckets_function, args, delay FROM sweep._divided_children($1, $2)",
	2, {INT8OID, OIDOID}},
	[SWEEP_SQL_QUEUE_SHARES] = {
		"SELECT shares_left, wanted FROM sweep._queue_shares($1, $2, $3::interval, $4, $5, $6)",
	6, {INT8OID, TEXTOID, TEXTOID, INT4OID, INT4OID, INT4OID}},
	[SWEEP_SQL_FOLLOW_SHARE] = {
		"SELECT sweep._follow_share($1, $6, $2, $3, $4, $5::pg_catalog.float8 * interval '1 us')", 6, {INT8OID, TEXTOID, INT4OID, INT4OID, INT8OID, BOOLOID}},
	[SWEEP_SQL_START_FOLLOWER] = {
		"UPDATE sweep.run_live SET due_at = pg_catalog.clock_timestamp() WHERE run_id = $1 AND sweep._lock_waiting_run($1)", 1, {INT8OID}},
	[SWEEP_SQL_COUNT_BUCKETS] = {
		"SELECT j.buckets FROM sweep.job_definition j WHERE j.name = $1 AND j.bucket_store = $2 AND j.bucket_key = $3", 3, {TEXTOID, TEXTOID, TEXTOID}},
	[SWEEP_SQL_MAINTAIN_BUCKETS] = {
		"SELECT available, occupied, stale, missing, claimable "
		"FROM sweep._maintain_buckets($1, $2, $3::pg_catalog.float8 * interval '1 us', pg_catalog.clock_timestamp())",
	3, {TEXTOID, INT4OID, INT8OID}},
	[SWEEP_SQL_CLAIM_BUCKET] = {"SELECT sweep._claim_bucket($1, $2, $3, $4, $5)", 5, {TEXTOID, INT4OID, INT8OID, INT4OID, INT4OID}},
	[SWEEP_SQL_LOCK_BUCKET] = {
		"SELECT FROM sweep.bucket b WHERE b.job = $1 AND b.bucket = $2 AND b.run_id = $3 FOR SHARE", 3, {TEXTOID, INT4OID, INT8OID}},
	[SWEEP_SQL_RELEASE_BUCKET] = {"SELECT sweep._release_bucket($1, $2, $3, $4)", 4, {TEXTOID, INT4OID, INT8OID, INT4OID}},
	[SWEEP_SQL_RUN_OUTCOME] = {
		"SELECT job, status, stop_reason, batches, rows, error, ended, decisive, reason FROM sweep._wait_outcome($1, $2)",
	2, {OIDOID, INT8OID}},
	[SWEEP_SQL_MARK_LOST] = {"SELECT sweep._mark_lost()", 0, {0}},
	[SWEEP_SQL_ENQUEUE_DUE] = {"SELECT sweep._enqueue_due($1, $2)", 2, {TIMESTAMPTZOID, INT4OID}},
	[SWEEP_SQL_MEND_CLOCK] = {"SELECT sweep._mend_clock($1, $2 * interval '1 us')", 2, {TIMESTAMPTZOID, INT8OID}},
	[SWEEP_SQL_REBOOT] = {
		"SELECT r.booted, CASE WHEN r.booted THEN sweep._warn_of_foreign_grants() END FROM sweep._enqueue_reboot() AS r (booted)", 0, {0}},
	[SWEEP_SQL_COUNT_RUN_CRASHES] = {"SELECT sweep._count_run_crashes($1)", 1, {TEXTARRAYOID}},
	[SWEEP_SQL_STARTABLE_RUNS] = {
		"SELECT s.run_id, s.expected_rows, r.place, j.name, sweep._role_oid(j.run_as), j.priority, " DEFINITION_OF_RUN
		/* Each by its key, however many wait. */
		" FROM sweep._startable_runs($1) AS s CROSS JOIN LATERAL (SELECT l.ctid AS place, l.job, l.run_as, l.args, l.shares_left, l.bucket, l.trigger, l.due_at "
		"FROM sweep.run_live l WHERE l.run_id = s.run_id AND l.status = 'waiting' OFFSET 0) AS r "
		"JOIN sweep.job_definition j ON j.name = r.job AND j.run_as = r.run_as ORDER BY j.priority DESC, r.due_at, s.run_id",
	1, {TIMESTAMPTZOID}},
	[SWEEP_SQL_NEXT_WAKE] = {
		"SELECT (extract(epoch FROM sweep._next_wake($1) - $1) * 1000000)::bigint", 1, {TIMESTAMPTZOID}},
	[SWEEP_SQL_FAIL_START] = {"SELECT sweep._fail_start($1, $2, $3, $4)", 4, {INT8OID, TEXTOID, TEXTOID, TEXTOID}},
	[SWEEP_SQL_ARCHIVE] = {
		"SELECT sweep._mark_lost(), sweep._archive_runs($1), CASE WHEN $1 THEN sweep._cancel_orphans('infinity') END", 1, {BOOLOID}},
	[SWEEP_SQL_READ_QUEUE] = {
		"SELECT q.queue_id, sweep._role_oid(q.owner), q.visibility, q.max_attempts, "
		"CASE q.backoff WHEN 'sidekiq' THEN NULL WHEN 'none' THEN interval '0' ELSE q.backoff::interval END, q.keep_done, "
		"CASE q.key_policy WHEN 'while_queued' THEN 0 WHEN 'while_queued_or_running' THEN 1 ELSE 2 END, "
		"ARRAY(SELECT r.oid FROM pg_catalog.pg_roles r WHERE r.rolname = ANY (q.senders)), "
		"ARRAY(SELECT r.oid FROM pg_catalog.pg_roles r WHERE r.rolname = ANY (q.consumers)) FROM sweep.queue q WHERE q.name = $1",
	1, {TEXTOID}},
	[SWEEP_SQL_QUEUE_NAME] = {"SELECT q.name FROM sweep.queue q WHERE q.queue_id = $1", 1, {INT4OID}},
	[SWEEP_SQL_FIND_QUEUE] = {"SELECT sweep._find_queue($1, $2, $3)", 3, {OIDOID, TEXTOID, TEXTOID}},
	[SWEEP_SQL_RETRY_MESSAGE] = {
		"UPDATE sweep.queue_message m SET lane = $4, due_at = $5, attempts = $6, error = $7 "
		"WHERE m.queue_id = $1 AND m.lane = $2 AND m.message_id = $3",
	7, {INT4OID, INT2OID, INT8OID, INT2OID, TIMESTAMPTZOID, INT2OID, JSONBOID}},
	[SWEEP_SQL_BURY_MESSAGE] = {
		"WITH m AS (DELETE FROM sweep.queue_message m WHERE m.queue_id = $1 AND m.lane = $2 AND m.message_id = $3 RETURNING m.*) "
		"INSERT INTO sweep.queue_dead (message_id, queue_id, priority, key, headers, payload, attempts, sent_at, error) "
		"SELECT m.message_id, m.queue_id, $4, m.key, m.headers, m.payload, $5, m.sent_at, coalesce($6, m.error) FROM m",
	6, {INT4OID, INT2OID, INT8OID, INT2OID, INT2OID, JSONBOID}},
	[SWEEP_SQL_KEEP_DONE] = {
		"INSERT INTO sweep.queue_done (message_id, queue_id, key, headers, payload, attempts, sent_at) VALUES ($1, $2, $3, $4, $5, $6, $7)",
	7, {INT8OID, INT4OID, TEXTOID, JSONBOID, JSONBOID, INT2OID, TIMESTAMPTZOID}},
	[SWEEP_SQL_PRUNE_DONE] = {
		"WITH gone AS (DELETE FROM sweep.queue_done d WHERE d.ctid = ANY (ARRAY(SELECT o.ctid FROM sweep.queue_done o "
		"WHERE o.queue_id = $1 AND o.done_at < $2 AND o.done_at >= $3 ORDER BY o.done_at LIMIT 1000 FOR UPDATE SKIP LOCKED)) "
		"RETURNING d.done_at) SELECT pg_catalog.count(*), pg_catalog.min(g.done_at) FROM gone g",
	3, {INT4OID, TIMESTAMPTZOID, TIMESTAMPTZOID}},
	[SWEEP_SQL_PREPARED_XIDS] = {
		"SELECT p.transaction::pg_catalog.text::bigint FROM pg_catalog.pg_prepared_xacts p WHERE p.database = pg_catalog.current_database()", 0, {0}},
	[SWEEP_SQL_LOCK_ROLES] = {
		"SELECT $2 AS role UNION SELECT sweep._role_oid(j.run_as) FROM sweep.job_definition j WHERE j.lock_key = $1 "
		"AND sweep._role_oid(j.run_as) IS NOT NULL AND sweep._may_act_on($2, j.run_as, true) ORDER BY role",
	2, {TEXTOID, OIDOID}},
	[SWEEP_SQL_READ_CONSUMER] = {
		"SELECT c.queue_id, q.name, c.batch, CASE WHEN sweep._handler_problem(c.handler) IS NULL "
		"THEN (sweep._find_handlers(c.handler))[1]::pg_catalog.oid END, "
		"EXISTS (SELECT FROM sweep.consumer_crash x WHERE x.queue_id = c.queue_id), "
		"'sweep.queue_message'::pg_catalog.regclass::pg_catalog.oid, q.visibility "
		"FROM sweep.consumer c JOIN sweep.queue q USING (queue_id) WHERE c.consumer_id = $1",
	1, {INT4OID}},
	[SWEEP_SQL_CONSUMER_IS_MEANT] = {
		"SELECT FROM sweep.consumer c WHERE c.consumer_id = $1 AND c.paused_at IS NULL", 1, {INT4OID}},
	[SWEEP_SQL_CONSUMER_PROBLEM] = {
		"SELECT sweep._consumer_problem(c) FROM sweep.consumer c "
		"WHERE c.consumer_id = $1 AND $2 = ANY (sweep._find_handlers(c.handler)::pg_catalog.oid[])", 2, {INT4OID, OIDOID}},
	[SWEEP_SQL_FIND_CRASHES] = {
		"SELECT message_id, crashes FROM sweep.consumer_crash WHERE queue_id = $1 AND message_id = ANY ($2)",
	2, {INT4OID, INT8ARRAYOID}},
	[SWEEP_SQL_FORGET_CRASHES] = {
		"DELETE FROM sweep.consumer_crash WHERE queue_id = $1 AND message_id = ANY ($2)", 2, {INT4OID, INT8ARRAYOID}},
	[SWEEP_SQL_WANTED_CONSUMERS] = {"SELECT consumer_id, queue, run_as, concurrency FROM sweep._wanted_consumers()", 0, {0}},
	[SWEEP_SQL_COUNT_CRASH] = {"SELECT sweep._count_crash($1, $2)", 2, {INT4OID, INT8ARRAYOID}},
	/* None that only the transaction of the caller sees. */
	[SWEEP_SQL_ADD_MEMBER] = {"SELECT sweep._add_member($1) FROM pg_catalog.pg_roles r WHERE r.oid = $1", 1, {OIDOID}},
	[SWEEP_SQL_FORGET_ONCE] = {"SELECT sweep._forget_once()", 0, {0}},
	[SWEEP_SQL_NOTIFY] = {
		"SELECT u.usage > $2, pg_catalog.count(CASE WHEN u.usage <= $2 AND q.name IS NOT NULL THEN pg_catalog.pg_notify('sweep.' || q.name, '')::pg_catalog.text END) "
		"FROM pg_catalog.pg_notification_queue_usage() AS u (usage) LEFT JOIN sweep.queue q ON q.queue_id = ANY ($1) AND q.notify GROUP BY u.usage",
	2, {INT4ARRAYOID, FLOAT8OID}},
	[SWEEP_SQL_REFERENCE_QUERIES] = {
		"SELECT depth, relation, types, first_column, statement FROM sweep._reference_queries($1, $2)", 2, {OIDOID, OIDOID}},
	[SWEEP_SQL_RANGE_STATEMENTS] = {
		"SELECT prologue, edge, rest, before, work, pick, epilogue, key, part, next_part, counter, rest_counter, checked, restarts, parts "
		"FROM sweep._range_statements($1, $2, $3, $4, $5, $6, $7)",
	7, {TEXTOID, JSONBOID, BOOLOID, OIDOID, TIMESTAMPTZOID, TEXTOID, TEXTOID}},
};

StaticAssertDecl(lengthof(statements) == SWEEP_STATEMENT_COUNT, "every statement has a text");

const SweepStatementText *
sweep_statement_text(SweepStatement statement)
{
	return &statements[statement];
}
