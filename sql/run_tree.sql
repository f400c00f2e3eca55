-- room: engine
-- parent_run_id: which run has queued which, what sweep.wait waits for, and what sweep.jobs says of a divided job.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS run_tree CASCADE;
CREATE SCHEMA run_tree;
SET timezone = 'UTC';
SET intervalstyle = 'postgres';
CREATE FUNCTION run_tree.step(b sweep.batch) RETURNS sweep.progress LANGUAGE sql AS 'SELECT ROW(0, NULL, NULL)::sweep.progress';
RESET client_min_messages;

BEGIN;
SELECT setval(pg_get_serial_sequence('sweep.run_live', 'run_id'), 3300000, false);
SELECT sweep.create_job('run_tree', step => 'run_tree.step', buckets => 4, max_attempts => 2), sweep.create_job('run_tree child', step => 'run_tree.step'),
	sweep.create_job('run_tree parent', step => 'run_tree.step', on_start => '{"run_tree": "0", "run_tree child": "0"}', max_attempts => 2);
INSERT INTO sweep.bucket (job, bucket, since) SELECT 'run_tree', n, now() FROM generate_series(0, 3) AS n;
CREATE VIEW run_tree.runs AS SELECT run_id, job, trigger, attempt, shares_left, parent_run_id FROM sweep.run_live WHERE run_id >= 3300000 ORDER BY run_id;

-- ------------------------------------------------------------------ who has queued whom
-- a dispatcher, its shares, what follows them, and what follows the dispatcher itself
INSERT INTO sweep.run_live (job, trigger, due_at, started_at, pid, status, batches, rows) VALUES ('run_tree', 'schedule', now(), now(), pg_backend_pid(), 'running', 1, 1);
SAVEPOINT s;
SELECT shares_left FROM sweep._queue_shares(3300000, 'run_tree', '0', 4, 1, 4);
UPDATE sweep.run_live SET shares_left = 1 WHERE run_id = 3300000;
SELECT sweep._follow_share(3300001, false, 'drained', 1, 4, '0');
SELECT sweep._follow_share(3300000, true, 'max_batches', 0, 4, '0');
SELECT * FROM run_tree.runs;
-- a retry
UPDATE sweep.run_live SET status = 'failed', stop_reason = 'error', finished_at = now(), pid = 1 WHERE run_id = 3300001;
SELECT sweep._retry(3300001);
SELECT * FROM run_tree.runs WHERE trigger = 'retry';
ROLLBACK TO s;
-- a dispatcher that has a parent itself: what follows it belongs to its own dispatch
UPDATE sweep.run_live SET parent_run_id = 1, shares_left = 1 WHERE run_id = 3300000;
SELECT sweep._follow_share(3300000, true, 'drained', 0, 4, '0');
SELECT * FROM run_tree.runs;
ROLLBACK TO s;
-- children, divided or not
UPDATE sweep.run_live SET job = 'run_tree parent' WHERE run_id = 3300000;
SELECT sweep._start_hooks(3300000), sweep._queue_shares(3300000, 'run_tree', '0', 2, 10, 4) IS NOT NULL AS queued;
SELECT * FROM run_tree.runs;
ROLLBACK TO s;
DELETE FROM sweep.run_live WHERE run_id = 3300000;

-- ------------------------------------------------------------------ what a run and its shares have come to
CREATE FUNCTION run_tree.ended(id bigint, parent bigint, status text, stop_reason text, rows bigint, trigger text DEFAULT 'parent', job text DEFAULT 'run_tree') RETURNS void LANGUAGE sql AS $$
	INSERT INTO sweep.run_live (run_id, job, trigger, parent_run_id, due_at, started_at, finished_at, pid, status, stop_reason, rows, batches, error, shares_left) OVERRIDING SYSTEM VALUE
		VALUES (id, job, trigger, parent, now(), now() + interval '1 s' * (id % 100), CASE WHEN status NOT IN ('waiting', 'running') THEN now() + interval '1 min' + interval '1 s' * (id % 100) END,
			CASE WHEN status NOT IN ('waiting', 'running') THEN 1 END, status, stop_reason, rows, 1, CASE WHEN status = 'failed' THEN 'error of ' || id END, 0)
$$;
CREATE VIEW run_tree.waited AS SELECT status, stop_reason, batches, rows, error, ended, decisive FROM sweep._wait_outcome(current_user::regrole, 3300000);
CREATE VIEW run_tree.last AS SELECT last_run_id, last_status, last_stop_reason, last_started_at - now() AS start, last_rows, last_duration, last_error FROM sweep.jobs WHERE name = 'run_tree';
SELECT run_tree.ended(3300000, NULL, 'succeeded', 'drained', 10, 'schedule');
SELECT * FROM run_tree.waited;
SELECT * FROM run_tree.last;
-- shares, one that follows one of them, and one that found no bucket: as long as one of them runs or waits, it has not ended
SELECT run_tree.ended(3300001, 3300000, 'succeeded', 'drained', 20), run_tree.ended(3300002, 3300000, 'skipped', 'skipped', 0), run_tree.ended(3300003, 3300000, 'waiting', NULL, 0);
SELECT * FROM run_tree.waited;
SELECT * FROM run_tree.last;
UPDATE sweep.run_live SET status = 'succeeded', stop_reason = 'max_batches', rows = 30, finished_at = now() + interval '2 min', pid = 1 WHERE run_id = 3300003;
SELECT * FROM run_tree.waited;
SELECT * FROM run_tree.last;
-- what it has queued for another job, and the job's other runs, do not count
SELECT run_tree.ended(3300004, 3300000, 'failed', 'error', 40, 'parent', 'run_tree child'), run_tree.ended(3299999, NULL, 'failed', 'error', 1, 'manual');
SELECT * FROM run_tree.waited;
SELECT * FROM run_tree.last;
-- one share that failed, cancelled or lost decides, wherever it is
SAVEPOINT s;
SELECT run_tree.ended(3300005, 3300001, 'cancelled', 'cancelled', 1);
SELECT * FROM run_tree.waited;
SELECT last_status FROM run_tree.last;
SELECT run_tree.ended(3300006, 3300000, 'lost', 'lost', 1);
SELECT * FROM run_tree.waited;
SELECT last_status FROM run_tree.last;
SELECT run_tree.ended(3300007, 3300000, 'failed', 'error', 1);
SELECT * FROM run_tree.waited;
SELECT * FROM run_tree.last;
-- the same once some of it is history
SELECT sweep._archive_runs(false) > 0 AS archived;
SELECT run_tree.ended(3300008, 3300007, 'waiting', NULL, 0, 'retry');
SELECT * FROM run_tree.waited;
SELECT * FROM run_tree.last;
-- tried again with success: the run has failed, the job is well; what others have left undone still counts
UPDATE sweep.run_live SET status = 'succeeded', stop_reason = 'drained', rows = 2, finished_at = now() + interval '3 min', pid = 1 WHERE run_id = 3300008;
SELECT status, decisive FROM run_tree.waited;
SELECT * FROM run_tree.last;
DELETE FROM sweep.run_history WHERE run_id IN (3300005, 3300006);
SELECT * FROM run_tree.last;
ROLLBACK TO s;
-- divided by its parent: the shares are one dispatch, and the parent itself is no part of it
UPDATE sweep.run_live SET job = 'run_tree parent' WHERE run_id = 3300000;
SELECT * FROM run_tree.last;
SELECT * FROM run_tree.waited;
-- of a job that is not divided its last run, as ever
SELECT sweep.alter_job('run_tree', '{"buckets": null}');
SELECT * FROM run_tree.last;
-- who may not see the run is told so
CREATE ROLE regress_run_tree;
SELECT sweep._wait_outcome('regress_run_tree'::regrole, 3300000);
ROLLBACK;
DROP SCHEMA run_tree CASCADE;
