-- room: api
-- No number or moment of one role, however large, takes a view from the others: sums saturate, and what has no length is shown without one.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep_gitlab CASCADE;
DROP SCHEMA IF EXISTS extremes CASCADE;
CREATE SCHEMA extremes;
SET timezone = 'UTC';
SET intervalstyle = 'postgres';

-- a run counts no further than a bigint does; a number of its detail for which there is no sum stays as it is
CREATE FUNCTION extremes.step(b sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$
	SELECT ROW(CASE WHEN coalesce(b.cursor::int, 0) < 4 THEN 9223372036854775807 ELSE 0 END, to_jsonb(coalesce(b.cursor::int, 0) + 1),
		jsonb_build_object('most', 9e131071, 'least', -9e131071, 'rows', 9223372036854775807))::sweep.progress
$$;
SELECT sweep.create_job('extremes', step => 'extremes.step', estimate => 'SELECT 1e300::float8');
CALL sweep.run('extremes');
SELECT status, batches, rows, (detail -> 'most')::numeric = 9e131071 AS most, (detail -> 'least')::numeric = -9e131071 AS least, detail -> 'rows' AS sum FROM sweep.runs WHERE job = 'extremes';

-- shares of a divided job, which all have counted as far, at any time
SELECT sweep.create_job('extremes divided', step => 'extremes.step', buckets => 2);
CREATE FUNCTION extremes.look(started timestamptz, finished timestamptz) RETURNS TABLE (name text, state text, last_rows bigint, last_duration interval) LANGUAGE sql AS $$
	-- In this order: a scheduler may just be moving a run to the history.
	DELETE FROM sweep.run_live WHERE job LIKE 'extremes%';
	DELETE FROM sweep.run_history WHERE job LIKE 'extremes%';
	INSERT INTO sweep.run_live (run_id, job, trigger, due_at, started_at, finished_at, pid, parent_run_id, status, stop_reason, rows, rescued, quarantined, braked_ms, batches, attempt, hook_depth, bucket, shares_left)
		OVERRIDING SYSTEM VALUE SELECT 1500000 + n, 'extremes divided', 'manual', finished, started, finished, 1, nullif(1500000, 1500000 + n), 'succeeded', 'drained',
			9223372036854775807, 9223372036854775807, 9223372036854775807, 9223372036854775807, 2147483647, 2147483647, 2147483647, 2147483647, 2147483647 FROM generate_series(0, 3) AS n;
	INSERT INTO sweep.run_history SELECT (jsonb_populate_record(r, '{"run_id": 1500009, "job": "extremes"}')).* FROM sweep.run_live r WHERE run_id = 1500003;
	SELECT name, state, last_rows, last_duration FROM sweep.jobs WHERE name LIKE 'extremes%' ORDER BY name
$$;
-- moved to the history by the scheduler, which would meet what is deleted
DO $$ BEGIN WHILE EXISTS (SELECT FROM sweep.run_live WHERE job = 'extremes') LOOP END LOOP; END $$;
BEGIN;
SELECT at.*, look.* FROM unnest('{2026-01-01 00:00Z,-infinity,infinity,2026-01-01 00:00Z,4714-11-24 BC 00:00Z,2000-01-01 00:00Z}'::timestamptz[],
	'{2026-01-01 00:01Z,infinity,-infinity,infinity,294276-12-31 23:59:59.999999Z,294276-12-31 23:59:59.999999Z}'::timestamptz[]) AS at (started, finished),
	extremes.look(started, finished);
-- what else reads them: who waits for such a run, and what follows a share
SELECT batches, rows, ended FROM sweep._wait_outcome((SELECT oid FROM pg_roles WHERE rolname = current_user), 1500000);
SELECT sweep._follow_share(1500003, false, 'max_batches', 0, 2, '0') IS NOT NULL AS followed;
SELECT count(*) FROM sweep.runs WHERE job LIKE 'extremes%';
ROLLBACK;

-- statistics, which the owner of a table can store since version 18
CREATE TABLE extremes.aged (id int PRIMARY KEY, at timestamptz NOT NULL);
CREATE INDEX ON extremes.aged (at);
INSERT INTO extremes.aged SELECT n, now() - n * interval '1 day' FROM generate_series(1, 100) AS n;
ANALYZE extremes.aged;
SELECT sweep.create_retention('extremes.aged', 'at', '0', name => 'extremes', schedule => '@yearly', paused => true, replace => true);
BEGIN;
UPDATE pg_class SET reltuples = '3e38' WHERE oid = 'extremes.aged'::regclass;
SELECT overdue_rows FROM sweep.retentions WHERE job = 'extremes';
UPDATE pg_class SET reltuples = 'NaN' WHERE oid = 'extremes.aged'::regclass;
SELECT overdue_rows FROM sweep.retentions WHERE job = 'extremes';
UPDATE pg_class SET reltuples = 'Infinity' WHERE oid = 'extremes.aged'::regclass;
UPDATE pg_statistic SET stanullfrac = '-Infinity' WHERE starelid = 'extremes.aged'::regclass;
SELECT overdue_rows FROM sweep.retentions WHERE job = 'extremes';
UPDATE pg_statistic SET stanullfrac = '3e38' WHERE starelid = 'extremes.aged'::regclass;
SELECT overdue_rows FROM sweep.retentions WHERE job = 'extremes';
ROLLBACK;
SELECT overdue_rows FROM sweep.retentions WHERE job = 'extremes';

-- queues and consumers
SELECT sweep.create_queue('extremes');
INSERT INTO sweep.queue_message (queue_id, sent_at, payload) SELECT queue_id, at, '1' FROM sweep.queue, unnest('{infinity,-infinity,4714-11-24 BC 00:00Z,294276-12-31 23:59:59.999999Z}'::timestamptz[]) AS at WHERE name = 'extremes';
INSERT INTO sweep.queue_message (queue_id, lane, sent_at, due_at, payload) SELECT queue_id, 100, at, at, '1' FROM sweep.queue, unnest('{infinity,-infinity,4714-11-24 BC 00:00Z,294276-12-31 23:59:59.999999Z}'::timestamptz[]) AS at WHERE name = 'extremes';
SELECT queue, depth, ready + delayed AS waiting, oldest_age >= '0' AS age FROM sweep.queues WHERE queue = 'extremes';
BEGIN;
INSERT INTO sweep.consumer (queue_id, handler, run_as, concurrency, batch) SELECT queue_id, E'no"such', 'no such role', 1000, 10000 FROM sweep.queue WHERE name = 'extremes';
UPDATE sweep.queue SET visibility = '178000000 years', max_attempts = 32767, keep_done = '178000000 years', backoff = '178000000 years', owner = 'no such role' WHERE name = 'extremes';
SELECT queue, depth FROM sweep.queues WHERE queue = 'extremes';
SELECT queue, state FROM sweep.consumers WHERE queue = 'extremes';
ROLLBACK;
SELECT sweep.drop_queue('extremes');

-- a job with the most that there is of everything, whose names resolve to nothing
BEGIN;
UPDATE sweep.job_definition SET schedule = '@yearly', timezone = '', max_rows = 9223372036854775807, batch_size = 2147483647, max_batches = 2147483647, stop_after = '178000000 years', timeout = '178000000 years',
	pause = '-178000000 years', priority = 2147483647, buckets = 2147483647, jitter = '178000000 years', step = '"', pick = 'a.b.c.d', run_as = repeat('x', 1024), bucket_recovery = '-178000000 years', max_attempts = 2147483647
	WHERE name = 'extremes';
UPDATE sweep.job_state SET next_due = 'infinity', next_start = '-infinity', paused_at = 'infinity', drained_rows = -1 WHERE job = 'extremes';
INSERT INTO sweep.bucket (job, bucket, state, run_id, pid, since) VALUES ('extremes', 2147483647, 'occupied', 9223372036854775807, -1, '-infinity');
INSERT INTO sweep.quarantined_item (job, item, item_hash, sqlstate, message, attempts, first_at, last_at, next_try) VALUES ('extremes', '9e131071', '', '', '', 2147483647, '-infinity', 'infinity', 'infinity');
SELECT name, next_run, left(state, 30) AS state FROM sweep.jobs WHERE name LIKE 'extremes%' ORDER BY name;
SELECT max_rows, jitter FROM sweep.job WHERE name = 'extremes';
SELECT bucket, holder, since FROM sweep.buckets WHERE job = 'extremes';
SELECT length(item::text), attempts, next_try FROM sweep.quarantine WHERE job = 'extremes';
UPDATE sweep.job_definition SET run_as = current_user, step = repeat('"', 1024), schedule = repeat('* ', 512) WHERE name = 'extremes';
SELECT name, left(state, 30) AS state FROM sweep.jobs WHERE name LIKE 'extremes%' ORDER BY name;
UPDATE sweep.job_definition SET step = NULL, pick = NULL, sql = 'SELECT 1' WHERE name = 'extremes';
SELECT name, left(state, 30) AS state FROM sweep.jobs WHERE name LIKE 'extremes%' ORDER BY name;
ROLLBACK;
SELECT sweep.drop_job('extremes'), sweep.drop_job('extremes divided');
DELETE FROM sweep.run_live WHERE job LIKE 'extremes%';
DELETE FROM sweep.run_history WHERE job LIKE 'extremes%';
DROP SCHEMA extremes CASCADE;
