-- room: job
-- drop_job, pause, resume, pause_all, resume_all: what becomes of the job, its schedule and its runs.
-- In transactions that are rolled back, so that no scheduler takes part.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS pause CASCADE;
CREATE SCHEMA pause;
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
CREATE FUNCTION pause.step(sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT 0::bigint, NULL::jsonb, NULL::jsonb $$;
CREATE VIEW pause.state AS SELECT job, to_char(next_due, 'MM-DD HH24:MI') AS next_due, next_start IS NOT NULL AS starts, paused_at IS NOT NULL AS paused
	FROM sweep.job_state WHERE job LIKE 'pause%' ORDER BY job;
CREATE VIEW pause.runs AS SELECT job, trigger, status, stop_reason, finished_at IS NOT NULL AS finished
	FROM sweep.runs WHERE job LIKE 'pause%' ORDER BY run_id;
CREATE FUNCTION pause.setup() RETURNS void LANGUAGE sql AS $$
	SELECT setval(pg_get_serial_sequence('sweep.run_live', 'run_id'), 1500000, false);
	SELECT sweep.create_job('pause', step => 'pause.step', schedule => '@yearly', timezone => 'UTC'), sweep.create_job('pause other', step => 'pause.step', schedule => '@yearly', timezone => 'UTC'),
		sweep.create_job('pause unscheduled', step => 'pause.step'), sweep.create_job('pause created', step => 'pause.step', schedule => '@yearly', paused => true);
	INSERT INTO sweep.run_live (job, trigger, due_at, pid, status, started_at) VALUES
		('pause', 'schedule', now(), NULL, 'waiting', NULL), ('pause', 'catch_up', now(), NULL, 'waiting', NULL), ('pause', 'retry', now() + interval '1 h', NULL, 'waiting', NULL),
		('pause', 'manual', now(), NULL, 'waiting', NULL), ('pause', 'manual', now(), 1, 'waiting', NULL), ('pause', 'schedule', now(), 1, 'waiting', NULL),
		('pause', 'schedule', now(), 1, 'running', now()), ('pause other', 'schedule', now(), NULL, 'waiting', NULL);
$$;

-- pause: no next moment, what waits by schedule is taken back, what runs or was started by hand goes on
BEGIN;
SELECT pause.setup();
SELECT * FROM pause.state;
SELECT sweep.pause('pause');
SELECT * FROM pause.state;
SELECT * FROM pause.runs;
-- a second time: since the first one
UPDATE sweep.job_state SET paused_at = '2026-03-01 12:00:00Z' WHERE job = 'pause';
SELECT sweep.pause('pause');
SELECT paused_at FROM sweep.job_state WHERE job = 'pause';
SELECT state IN ('idle', 'waiting_for_slot') AS goes_on FROM sweep.jobs WHERE name = 'pause other';
-- resume: from now on; twice is once
SELECT sweep.resume('pause');
SELECT * FROM pause.state;
UPDATE sweep.job_state SET next_due = '2026-03-01 12:00:00Z' WHERE job = 'pause';
SELECT sweep.resume('pause');
SELECT next_due FROM sweep.job_state WHERE job = 'pause';
-- a job without a schedule, or created paused
SELECT sweep.pause('pause unscheduled'), sweep.pause('pause created');
SELECT * FROM pause.state WHERE paused;
SELECT sweep.resume('pause unscheduled'), sweep.resume('pause created');
SELECT * FROM pause.state;
ROLLBACK;

-- pause_all: nothing is due, each job keeps its own state; resume_all: jobs paused by name stay paused
BEGIN;
SELECT pause.setup();
SELECT sweep.pause('pause other');
SELECT sweep.pause_all();
SELECT * FROM pause.state;
SELECT name, state FROM sweep.jobs WHERE name LIKE 'pause %' ORDER BY name;
SELECT status, count(*) FROM pause.runs WHERE job = 'pause' GROUP BY status ORDER BY status;
SELECT sweep.resume_all();
SELECT * FROM pause.state;
SELECT name, state FROM sweep.jobs WHERE name LIKE 'pause %' ORDER BY name;
ROLLBACK;

-- drop_job: gone with its state, what waits is cancelled, the records stay
BEGIN;
SELECT pause.setup();
INSERT INTO sweep.run_history (run_id, job, trigger, attempt, due_at, finished_at, status, stop_reason, batches, rows, args, rescued, quarantined)
	VALUES (1500100, 'pause', 'schedule', 1, now(), now(), 'succeeded', 'drained', 1, 10, '{}', 0, 0);
SELECT sweep.drop_job('pause');
SELECT name FROM sweep.job WHERE name LIKE 'pause%' ORDER BY name;
SELECT job FROM pause.state;
SELECT * FROM pause.runs;
-- the name is free again
SELECT sweep.create_job('pause', step => 'pause.step', schedule => '@yearly', timezone => 'UTC');
SELECT * FROM pause.state WHERE job = 'pause';
ROLLBACK;

-- names that do not exist, or are none
SELECT sweep.drop_job('pause missing');
SELECT sweep.pause('pause missing');
SELECT sweep.resume('pause missing');
SELECT sweep.drop_job(NULL);
SELECT sweep.pause(NULL);
SELECT sweep.resume(NULL);

-- paused from within its own step: the run goes on to its end
CREATE FUNCTION pause.act(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
BEGIN
	IF b.cursor IS NULL THEN
		PERFORM sweep.pause('pause act');
	END IF;
	RETURN ROW(CASE WHEN b.cursor = '2' THEN 0 ELSE 1 END, to_jsonb(coalesce(b.cursor::int, 0) + 1), NULL)::sweep.progress;
END
$$;
SELECT sweep.create_job('pause act', step => 'pause.act');
CALL sweep.run('pause act');
SELECT status, stop_reason, batches FROM sweep.runs WHERE job = 'pause act';
SELECT paused FROM pause.state WHERE job = 'pause act';
SELECT sweep.drop_job('pause act');
DELETE FROM sweep.run_live WHERE job = 'pause act';
DELETE FROM sweep.run_history WHERE job = 'pause act';
DROP SCHEMA pause CASCADE;
