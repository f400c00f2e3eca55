-- room: engine
-- The history of runs: moved there once they have ended, bounded by number and age.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
SET timezone = 'UTC';

-- in one transaction, in which no scheduler moves what this test looks at
BEGIN;
SELECT sweep._archive_runs(true) IS NOT NULL AS emptied;
DELETE FROM sweep.run_live WHERE finished_at IS NOT NULL;
SELECT setval(pg_get_serial_sequence('sweep.run_live', 'run_id'), 1400000, false);
CREATE FUNCTION pg_temp.end_runs(job text, status text, stop_reason text, n int, age interval DEFAULT '0') RETURNS void LANGUAGE sql AS $$
	INSERT INTO sweep.run_live (job, trigger, due_at, started_at, finished_at, status, stop_reason, args, batches, rows, cursor, detail, sqlstate, error, pid)
		SELECT job, 'schedule', t, t, t, status, stop_reason, '{"a": 1}', 1, 10, '1', '{"n": 1}', '00000', 'none', 1
		FROM generate_series(1, n), (SELECT clock_timestamp() - age AS t) AS moment
$$;
CREATE VIEW pg_temp.history AS
	SELECT job, status, count(*), min(run_id), max(run_id) FROM sweep.run_history WHERE run_id >= 1400000 GROUP BY job, status ORDER BY job, status;
SELECT setting::int AS per_job FROM pg_settings WHERE name = 'pg_sweep.history_per_job' \gset
SELECT setting::int AS minutes FROM pg_settings WHERE name = 'pg_sweep.history_max_age' \gset
SELECT :per_job AS history_per_job, :minutes AS history_max_age_in_minutes;

-- whole rows are moved, those that have not ended stay
SELECT pg_temp.end_runs('history', 'succeeded', 'drained', 1);
INSERT INTO sweep.run_live (job, trigger, due_at) VALUES ('history', 'schedule', '2100-01-01 00:00:00Z');
INSERT INTO sweep.run_live (job, trigger, due_at, status, pid) VALUES ('history', 'schedule', '2000-01-01 00:00:00Z', 'running', 1);
CREATE TEMP TABLE before AS SELECT * FROM sweep.runs WHERE job = 'history';
SELECT sweep._archive_runs(true), sweep._archive_runs(true);
SELECT run_id, status FROM sweep.run_live WHERE job = 'history' ORDER BY run_id;
SELECT * FROM pg_temp.history;
(TABLE before EXCEPT SELECT * FROM sweep.runs WHERE job = 'history') UNION ALL (SELECT * FROM sweep.runs WHERE job = 'history' EXCEPT TABLE before);

-- per job and outcome: the oldest go first
SELECT pg_temp.end_runs('history', 'succeeded', 'drained', :per_job), pg_temp.end_runs('history', 'failed', 'error', 3),
	pg_temp.end_runs('history other', 'succeeded', 'max_rows', :per_job + 20), pg_temp.end_runs('history', 'skipped', 'skipped', :per_job - 1);
SELECT sweep._archive_runs(true) FROM generate_series(1, 5);
SELECT * FROM pg_temp.history;
-- which does not write those that are kept
SELECT count(*) FROM sweep.run_history WHERE xmax <> 0;

-- more than a thousand at a time are left for the next time
SELECT pg_temp.end_runs('history', 'cancelled', 'cancelled', 1500);
SELECT sweep._archive_runs(true), (SELECT count(*) FROM sweep.run_live WHERE job = 'history' AND status = 'cancelled') AS left;
SELECT sweep._archive_runs(true), (SELECT count(*) FROM sweep.run_live WHERE job = 'history' AND status = 'cancelled') AS left;
SELECT * FROM pg_temp.history WHERE status = 'cancelled';

-- so are those after some megabytes: meanwhile the scheduler starts nothing
SELECT pg_temp.end_runs('history large', 'succeeded', 'drained', 10);
UPDATE sweep.run_live SET detail = jsonb_build_object('x', (SELECT string_agg(md5(n::text), '') FROM generate_series(1, 30000) AS n)) WHERE job = 'history large';
SELECT sweep._archive_runs(true);
SELECT count(*) BETWEEN 1 AND 9 AS some_are_left FROM sweep.run_live WHERE job = 'history large';
SELECT count(sweep._archive_runs(true)) FROM generate_series(1, 10);
SELECT * FROM pg_temp.history WHERE job = 'history large';
DELETE FROM sweep.run_history WHERE job = 'history large';

-- too old: whatever its job, also when no other run of it ends
SELECT pg_temp.end_runs('history old', 'failed', 'error', 1, make_interval(mins => :minutes) + interval '1 s'),
	pg_temp.end_runs('history young', 'failed', 'error', 1, make_interval(mins => :minutes) - interval '1 min');
SELECT sweep._archive_runs(true);
SELECT job, status, count FROM pg_temp.history WHERE job IN ('history old', 'history young');
UPDATE sweep.run_history SET finished_at = clock_timestamp() - make_interval(mins => :minutes) - interval '1 s' WHERE job = 'history';
SELECT pg_temp.end_runs('history young', 'failed', 'error', 1);
SELECT sweep._archive_runs(true);
SELECT job, status, count FROM pg_temp.history;

-- without the age only what has ended is looked at
UPDATE sweep.run_history SET finished_at = clock_timestamp() - make_interval(mins => :minutes) - interval '1 s' WHERE job = 'history young';
SELECT sweep._archive_runs(false), (SELECT count FROM pg_temp.history WHERE job = 'history young') AS kept;
SELECT sweep._archive_runs(true);
SELECT job, status, count FROM pg_temp.history;
-- per role, too: a job of the same name that belongs to another one, before or after, pushes nothing out
SELECT pg_temp.end_runs('history heir', 'succeeded', 'drained', 5);
UPDATE sweep.run_live SET run_as = 'history predecessor' WHERE job = 'history heir';
SELECT pg_temp.end_runs('history heir', 'succeeded', 'drained', :per_job + 3);
SELECT sweep._archive_runs(true), sweep._archive_runs(true);
SELECT run_as = current_user AS ours, count(*), min(run_id) = min(min(run_id)) OVER () AS oldest FROM sweep.run_history WHERE job = 'history heir' GROUP BY run_as ORDER BY ours;
SET LOCAL enable_seqscan = off;
SET LOCAL enable_bitmapscan = off;
EXPLAIN (COSTS off) SELECT run_id FROM sweep.run_history WHERE job = 'history heir' AND run_as = 'a' AND status = 'succeeded' ORDER BY run_id DESC OFFSET 10 LIMIT 1;
EXPLAIN (COSTS off) SELECT run_id FROM sweep.run_history WHERE job = 'history heir' AND run_as = 'a' AND status = 'succeeded' AND run_id <= 7 ORDER BY run_id DESC LIMIT 1000 FOR UPDATE SKIP LOCKED;
RESET enable_seqscan;
RESET enable_bitmapscan;
ROLLBACK;

-- what the state of a job remembers of its runs: the rows of the last one that drained, and the cursor of the last one that did a batch
BEGIN;
SELECT sweep.create_job('history', batch_sql => 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0');
SELECT setval(pg_get_serial_sequence('sweep.run_live', 'run_id'), 1450000, false);
CREATE FUNCTION pg_temp.remember(stop_reason text, batches int, rows bigint, cursor jsonb) RETURNS TABLE (drained_rows bigint, kept_cursor jsonb, of_runs jsonb) LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO sweep.run_live (job, trigger, due_at, started_at, finished_at, pid, begun, status, stop_reason, batches, rows, cursor)
		VALUES ('history', 'schedule', now(), now(), now(), 1, nextval('sweep.run_begun_seq'), CASE stop_reason WHEN 'error' THEN 'failed' WHEN 'skipped' THEN 'skipped' ELSE 'succeeded' END,
			stop_reason, batches, rows, cursor);
	of_runs := sweep._kept_cursor('history');
	PERFORM sweep._archive_runs(false);
	SELECT s.drained_rows, s.kept_cursor INTO remember.drained_rows, remember.kept_cursor FROM sweep.job_state s WHERE s.job = 'history';
	RETURN NEXT;
END
$$;
SELECT * FROM pg_temp.remember('max_rows', 1, 10, '1');
SELECT * FROM pg_temp.remember('drained', 1, 20, '2');
SELECT * FROM pg_temp.remember('max_batches', 1, 30, '3');
SELECT * FROM pg_temp.remember('error', 1, 40, '4');
SELECT * FROM pg_temp.remember('error', 0, 0, '5');
SELECT * FROM pg_temp.remember('skipped', 0, 0, NULL);
SELECT * FROM pg_temp.remember('drained', 1, 0, '6');
SELECT * FROM pg_temp.remember('stop_after', 1, 70, NULL);
ROLLBACK;
