-- room: api
-- sweep.jobs, sweep.runs and sweep.running: each state that a job can be in, as an operator reads it.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS views CASCADE;
CREATE SCHEMA views;
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
SET intervalstyle = 'postgres';
CREATE FUNCTION views.step(sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT 0::bigint, NULL::jsonb, NULL::jsonb $$;

-- the columns that others rely on
SELECT c.relname, string_agg(a.attname || ' ' || format_type(a.atttypid, NULL), ', ' ORDER BY a.attnum) AS columns
	FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
	WHERE c.relnamespace = 'sweep'::regnamespace AND c.relname IN ('runs', 'running', 'jobs') GROUP BY c.relname ORDER BY c.relname \gx

BEGIN;
SELECT setval(pg_get_serial_sequence('sweep.run_live', 'run_id'), 1600000, false);
SELECT sweep.create_job('views', step => 'views.step', schedule => '@yearly', timezone => 'UTC', description => 'a word');
CREATE VIEW views.job AS SELECT state, last_run_id, last_status, last_stop_reason, last_started_at = now() AS last_started_at, last_rows, last_duration, last_error FROM sweep.jobs WHERE name = 'views';
CREATE FUNCTION views.ended(status text, stop_reason text, sqlstate text DEFAULT NULL, error text DEFAULT NULL) RETURNS void LANGUAGE sql AS $$
	INSERT INTO sweep.run_live (job, trigger, due_at, started_at, finished_at, pid, status, stop_reason, rows, sqlstate, error)
		VALUES ('views', 'schedule', now(), now(), now() + interval '61 s', 1, status, stop_reason, 10, sqlstate, error)
$$;

-- idle: never run yet
SELECT name, schedule, timezone, to_char(next_run, 'MM-DD HH24:MI') AS next_run, paused, state, last_run_id, last_status, run_as = current_user AS as_owner, description
	FROM sweep.jobs WHERE name = 'views';
-- idle, with each outcome of the last run; one that was skipped is none
SELECT views.ended('succeeded', 'max_rows');
SELECT * FROM views.job;
SELECT views.ended('skipped', 'skipped');
SELECT last_run_id, last_status FROM views.job;
SELECT views.ended('cancelled', 'cancelled');
SELECT last_run_id, last_status, last_stop_reason FROM views.job;
SELECT views.ended('failed', 'error', '22012', 'division by zero');
SELECT * FROM views.job;
-- the same once it is history
SELECT sweep._archive_runs(false) > 0 AS archived;
SELECT * FROM views.job;
-- a run that waits until later
INSERT INTO sweep.run_live (job, trigger, due_at) VALUES ('views', 'manual', '2100-01-01 00:00:00Z');
SELECT state, last_run_id FROM views.job;
-- broken by what its last run said: something does not exist, or may not be touched
SELECT views.ended('failed', 'error', '42P01', E'relation "a" does not exist\nHINT: Write names with their schema.');
SELECT state FROM views.job;
SELECT views.ended('failed', 'error', '42501', 'permission denied for table a');
SELECT state FROM views.job;
-- and no longer when a run went well
SELECT views.ended('succeeded', 'drained');
SELECT state FROM views.job;

-- failing: the last run failed, or was lost
SELECT views.ended('failed', 'error', '22012', 'division by zero');
SELECT state FROM views.job;
SELECT views.ended('lost', 'lost');
SELECT state FROM views.job;
-- nor is that forgotten with the role: until a run of the new one has ended, the state names the run, without the text of its error
CREATE ROLE regress_sweep_views_1 LOGIN;
CREATE ROLE regress_sweep_views_2 LOGIN;
GRANT USAGE ON SCHEMA views TO regress_sweep_views_1, regress_sweep_views_2;
SAVEPOINT owned;
SELECT views.ended('failed', 'error', '22012', 'secret');
ALTER FUNCTION views.step OWNER TO regress_sweep_views_1;
SELECT sweep.alter_job('views', '{"run_as": "regress_sweep_views_1"}');
SELECT state, last_status, regexp_replace(last_error, 'role ".*', 'role') AS last_error FROM views.job;
ALTER FUNCTION views.step OWNER TO regress_sweep_views_2;
SELECT sweep.alter_job('views', '{"run_as": "regress_sweep_views_2"}');
SELECT state, regexp_replace(last_error, 'role ".*', 'role') AS last_error FROM views.job;
INSERT INTO sweep.run_live (job, run_as, trigger, due_at, started_at, finished_at, pid, status, stop_reason)
	VALUES ('views', 'regress_sweep_views_2', 'schedule', now(), now(), now(), 1, 'succeeded', 'drained');
SELECT state, last_status, last_error FROM views.job;
-- what went well is nothing to say
ALTER FUNCTION views.step OWNER TO regress_sweep_views_1;
SELECT sweep.alter_job('views', '{"run_as": "regress_sweep_views_1"}');
SELECT state, last_status, last_error FROM views.job;
ROLLBACK TO owned;
-- not when it was cancelled
SELECT views.ended('cancelled', 'cancelled');
SELECT state FROM views.job;
-- paused by alter_job
SELECT sweep.alter_job('views', '{"paused": true}');
SELECT state, (SELECT paused FROM sweep.jobs WHERE name = 'views') FROM views.job;
SELECT sweep.alter_job('views', '{"paused": false}');

-- paused, by name and with all
SELECT sweep.pause('views');
SELECT state, (SELECT next_run FROM sweep.jobs WHERE name = 'views') FROM views.job;
SELECT sweep.resume('views'), sweep.pause_all();
SELECT state FROM views.job;
-- due, and no slot yet; held back by a pause it does not wait for one
INSERT INTO sweep.run_live (job, trigger, due_at) VALUES ('views', 'schedule', clock_timestamp() - interval '2 s');
SELECT state FROM views.job;
SELECT sweep.resume_all();
SELECT state FROM views.job;
-- running
UPDATE sweep.run_live SET status = 'running', started_at = now(), pid = 1 WHERE job = 'views' AND status = 'waiting' AND due_at < clock_timestamp();
SELECT state, last_status FROM views.job;
-- a pause lets it go on to its end
SELECT sweep.pause('views');
SELECT state FROM views.job;
SELECT sweep.resume('views'), sweep.pause_all();
SELECT state FROM views.job;
SELECT sweep.resume_all();
SELECT state FROM views.job;
-- broken is told before anything else
ALTER FUNCTION views.step(sweep.batch) RENAME TO renamed;
SELECT state FROM views.job;
ALTER FUNCTION views.renamed(sweep.batch) RENAME TO step;
SELECT state FROM views.job;
ROLLBACK;

-- each reason to be broken that needs no run to be seen
BEGIN;
CREATE ROLE regress_sweep_views LOGIN;
GRANT USAGE ON SCHEMA views TO regress_sweep_views;
SELECT sweep.create_job('views', step => 'views.step', schedule => '@yearly', timezone => 'UTC', run_as => 'regress_sweep_views');
REVOKE EXECUTE ON FUNCTION views.step(sweep.batch) FROM PUBLIC;
SELECT state FROM sweep.jobs WHERE name = 'views';
GRANT EXECUTE ON FUNCTION views.step(sweep.batch) TO PUBLIC;
SELECT state FROM sweep.jobs WHERE name = 'views';
REVOKE USAGE ON SCHEMA views FROM regress_sweep_views;
SELECT state FROM sweep.jobs WHERE name = 'views';
GRANT USAGE ON SCHEMA views TO regress_sweep_views;
SELECT current_database() AS database \gset
REVOKE CONNECT ON DATABASE :"database" FROM PUBLIC;
SELECT state FROM sweep.jobs WHERE name = 'views';
GRANT CONNECT ON DATABASE :"database" TO regress_sweep_views;
SELECT state FROM sweep.jobs WHERE name = 'views';
UPDATE sweep.job_definition SET timezone = 'Europe/Atlantis' WHERE name = 'views';
SELECT state FROM sweep.jobs WHERE name = 'views';
UPDATE sweep.job_definition SET timezone = 'UTC' WHERE name = 'views';
REVOKE CONNECT ON DATABASE :"database" FROM regress_sweep_views;
DROP OWNED BY regress_sweep_views;
DROP ROLE regress_sweep_views;
SELECT regexp_replace(state, '\d+', 'N') AS state FROM sweep.jobs WHERE name = 'views';
ROLLBACK;

-- sweep.running: a run as its own step sees it, and nothing afterwards
CREATE TABLE views.seen (phase text, batches bigint, rows bigint, batch_size int, estimated_rows bigint, fraction numeric, own_pid bool, began bool, deadline bool, last_batch bool, rate bool);
CREATE FUNCTION views.look(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO views.seen SELECT phase, batches, rows, batch_size, estimated_rows, fraction, pid = pg_backend_pid(), started_at <= clock_timestamp(), deadline > started_at + interval '59 min',
		last_batch_ms > 0, rows_per_second >= 0 FROM sweep.running WHERE run_id = b.run_id AND job = 'views look';
	RETURN ROW(CASE WHEN b.cursor = '2' THEN 0 ELSE 10 END, to_jsonb(coalesce(b.cursor::int, 0) + 1), NULL)::sweep.progress;
END
$$;
SELECT sweep.create_job('views look', step => 'views.look', batch_size => 10);
CALL sweep.run('views look');
-- once it is history there is a run to estimate from; limits bound the estimate
DO $$
BEGIN
	WHILE NOT EXISTS (SELECT FROM sweep.run_history WHERE job = 'views look') LOOP
		PERFORM sweep._archive_runs(false);
		COMMIT;
	END LOOP;
END
$$;
CALL sweep.run('views look');
SELECT sweep.alter_job('views look', '{"max_rows": 15, "stop_after": "1 h"}');
CALL sweep.run('views look');
TABLE views.seen;
SELECT * FROM sweep.running WHERE job = 'views look';

SELECT sweep.drop_job('views look');
DELETE FROM sweep.run_live WHERE job LIKE 'views%';
DELETE FROM sweep.run_history WHERE job LIKE 'views%';
DROP SCHEMA views CASCADE;
