-- room: engine
-- Runs whose process is gone are lost; what failed or was lost is tried again, later each time.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS lost CASCADE;
CREATE SCHEMA lost;
SET timezone = 'UTC';
SET intervalstyle = 'postgres';
CREATE FUNCTION lost.step(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
BEGIN
	-- looked at from within a run: it is alive
	PERFORM sweep._mark_lost();
	IF b.args ? 'fail' THEN
		RAISE EXCEPTION 'as asked';
	END IF;
	RETURN ROW(0, NULL, jsonb_build_object('alive', sweep._run_is_alive(b.run_id)))::sweep.progress;
END
$$;

-- rolled back, so that no scheduler takes part
BEGIN;
SELECT sweep.create_job('lost', step => 'lost.step', max_attempts => 3);
SELECT setval(pg_get_serial_sequence('sweep.run_live', 'run_id'), 1300000, false);
INSERT INTO sweep.run_live (job, trigger, due_at, started_at, status, pid, attempt, batches, rows, args) VALUES
	('lost', 'schedule', '2026-03-01 12:00:00Z', '2026-03-01 12:00:00Z', 'running', 1, 1, 3, 30, '{"a": 1}'),
	('lost', 'retry', '2026-03-01 12:00:00Z', '2026-03-01 12:00:00Z', 'running', 1, 3, 0, 0, '{}'),
	('lost', 'manual', '2026-03-01 12:00:00Z', NULL, 'waiting', 1, 1, 0, 0, '{}'),
	('lost', 'schedule', '2026-03-01 12:00:00Z', NULL, 'waiting', NULL, 1, 0, 0, '{}'),
	('lost job dropped', 'schedule', '2026-03-01 12:00:00Z', '2026-03-01 12:00:00Z', 'running', 1, 1, 0, 0, '{}');
INSERT INTO sweep.run_live (job, trigger, due_at, started_at, finished_at, status, stop_reason, pid) VALUES
	('lost', 'schedule', '2026-03-01 12:00:00Z', '2026-03-01 12:00:00Z', '2026-03-01 12:00:01Z', 'succeeded', 'drained', 1);
SELECT sweep._mark_lost();
SELECT run_id, job, trigger, attempt, status, stop_reason, finished_at IS NOT NULL AS finished, batches, rows, args, pid
	FROM sweep.runs WHERE run_id BETWEEN 1300000 AND 1300005 ORDER BY run_id;
-- the retry of each that has one left, and none of a job that is gone
SELECT job, trigger, attempt, status, stop_reason, batches, rows, args, pid FROM sweep.runs WHERE run_id > 1300005 AND job LIKE 'lost%' ORDER BY args;
SELECT sweep._mark_lost();
ROLLBACK;

-- what is alive is not lost
SELECT setval(pg_get_serial_sequence('sweep.run_live', 'run_id'), 1300100, false);
SELECT sweep.create_job('lost', step => 'lost.step');
CALL sweep.run('lost');
SELECT run_id, status, detail, sweep._run_is_alive(run_id) FROM sweep.runs WHERE job = 'lost';

-- a run that failed is tried again while it may
CALL sweep.run('lost', '{"fail": true}');
SELECT count(*) FROM sweep.runs WHERE job = 'lost' AND trigger = 'retry';
SELECT sweep.alter_job('lost', '{"max_attempts": 2}');
CALL sweep.run('lost', '{"fail": true}');
SELECT trigger, attempt, status, args, due_at - now() BETWEEN interval '10 s' AND interval '1 min' AS later, pid FROM sweep.runs WHERE job = 'lost' AND trigger = 'retry';
-- not one that was cancelled: pausing takes back what is scheduled
SELECT sweep.pause('lost');
SELECT trigger, attempt, status, stop_reason FROM sweep.runs WHERE job = 'lost' AND trigger = 'retry';
SELECT sweep.drop_job('lost');
DELETE FROM sweep.run_live WHERE job = 'lost';
DELETE FROM sweep.run_history WHERE job = 'lost';

-- the backoff: attempt^4 + 15 s and up to 10 s times the next attempt at random
BEGIN;
SELECT setval(pg_get_serial_sequence('sweep.run_live', 'run_id'), 1300200, false);
SELECT sweep.create_job('lost', step => 'lost.step', max_attempts => 25);
INSERT INTO sweep.run_live (job, trigger, due_at, status, stop_reason, attempt)
	SELECT 'lost', 'schedule', now(), 'failed', 'error', attempt FROM generate_series(1, 24) AS attempt, generate_series(1, 20);
SELECT count(sweep._retry(run_id)) FROM sweep.run_live WHERE job = 'lost' AND status = 'failed';
SELECT attempt - 1 AS failed_attempt, count(*), bool_and(due_at >= now() + interval '1 s' * ((attempt - 1) ^ 4 + 15)) AS not_before,
	bool_and(due_at < clock_timestamp() + interval '1 s' * ((attempt - 1) ^ 4 + 15 + 10 * attempt)) AS not_after,
	count(DISTINCT due_at) > 1 AS scattered
	FROM sweep.run_live WHERE job = 'lost' AND trigger = 'retry' GROUP BY attempt HAVING attempt IN (2, 3, 10, 25) ORDER BY attempt;
-- the last attempt, and what did not fail, are not tried again
DELETE FROM sweep.run_live WHERE job = 'lost';
INSERT INTO sweep.run_live (job, trigger, due_at, status, stop_reason, attempt) VALUES ('lost', 'retry', now(), 'failed', 'error', 25),
	('lost', 'schedule', now(), 'succeeded', 'drained', 1), ('lost', 'schedule', now(), 'cancelled', 'cancelled', 1),
	('lost', 'schedule', now(), 'skipped', 'skipped', 1), ('lost', 'schedule', now(), 'running', NULL, 1);
SELECT count(sweep._retry(run_id)) FROM sweep.run_live WHERE job = 'lost';
SELECT count(*) FROM sweep.run_live WHERE job = 'lost' AND status = 'waiting';
ROLLBACK;
DROP SCHEMA lost CASCADE;
