-- room: engine
-- The functions of run_due.sql and run_end.sql that the scheduler calls. They take the clock as an argument.
-- Each block is rolled back, so no scheduler ever sees these jobs.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS due CASCADE;
CREATE SCHEMA due;
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
SET intervalstyle = 'postgres';
CREATE FUNCTION due.step(sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT 0::bigint, NULL::jsonb, NULL::jsonb $$;

-- A job that is due every minute, next at noon of a day gone by.
CREATE FUNCTION due.create_job(name text, overlap text DEFAULT 'skip', catch_up text DEFAULT 'once', schedule text DEFAULT '* * * * *')
	RETURNS void LANGUAGE sql AS $$
	SELECT setval(pg_get_serial_sequence('sweep.run_live', 'run_id'), 1200000, false);
	SELECT sweep.create_job(name, step => 'due.step', schedule => schedule, timezone => 'UTC', overlap => overlap, catch_up => catch_up);
	UPDATE sweep.job_state SET next_due = '2026-03-01 12:00:00Z', next_start = '2026-03-01 12:00:00Z' WHERE job = name;
$$;
CREATE VIEW due.runs AS
	SELECT run_id, job, trigger, attempt, due_at, status, stop_reason AS stop, detail FROM sweep.runs WHERE run_id BETWEEN 1200000 AND 1200200 ORDER BY run_id;
CREATE VIEW due.state AS
	SELECT job, next_due, next_start, broken FROM sweep.job_state WHERE job LIKE 'due%' ORDER BY job;

-- a microsecond before, exactly then, and not a second time
BEGIN;
SELECT due.create_job('due');
SELECT sweep._enqueue_due('2026-03-01 11:59:59.999999Z', 100);
SELECT * FROM due.runs;
SELECT sweep._enqueue_due('2026-03-01 12:00:00Z', 100);
SELECT * FROM due.runs;
SELECT * FROM due.state;
SELECT sweep._enqueue_due('2026-03-01 12:00:00Z', 100);
SELECT count(*) FROM due.runs;
SELECT sweep._next_wake(clock_timestamp());
SELECT run_id, job, run_as = current_user AS as_owner FROM sweep._startable_runs('2026-03-01 11:59:59.999999Z');
SELECT run_id, job, run_as = current_user AS as_owner FROM sweep._startable_runs('2026-03-01 12:00:00Z');
ROLLBACK;

-- several at once, in the order of their starts; one that cannot be scheduled is no hindrance
BEGIN;
SELECT due.create_job('due 1'), due.create_job('due 2'), due.create_job('due 3', schedule => 'every 30 seconds');
UPDATE sweep.job_state SET next_start = '2026-03-01 11:59:00Z', next_due = '2026-03-01 11:59:00Z' WHERE job = 'due 3';
UPDATE sweep.job_definition SET schedule = 'nonsense' WHERE name = 'due 1';
SELECT sweep._enqueue_due('2026-03-01 12:00:00Z', 100);
SELECT * FROM due.runs;
SELECT * FROM due.state;
-- as soon as it is mended it is due again
UPDATE sweep.job_definition SET schedule = '*/5 * * * *' WHERE name = 'due 1';
SELECT sweep._enqueue_due('2026-03-01 12:01:00Z', 100);
SELECT job, next_due, broken FROM due.state;
ROLLBACK;

-- so many at a time, the roles in turn: first the oldest moment of each
BEGIN;
CREATE ROLE regress_due_few LOGIN IN ROLE sweep_user;
SELECT count(due.create_job('due ' || n)) FROM generate_series(1, 7) AS n;
UPDATE sweep.job_definition SET run_as = 'regress_due_few' WHERE name IN ('due 6', 'due 7');
GRANT USAGE ON SCHEMA due TO regress_due_few;
UPDATE sweep.job_state SET next_start = '2026-03-01 11:00:00Z' WHERE job < 'due 6' AND job LIKE 'due%';
SELECT sweep._enqueue_due('2026-03-01 12:00:00Z', 3);
SELECT job FROM due.runs;
SELECT sweep._enqueue_due('2026-03-01 12:00:00Z', 3);
SELECT job FROM due.runs;
SELECT sweep._enqueue_due('2026-03-01 12:00:00Z', 3);
SELECT count(*) FROM due.runs;
ROLLBACK;

-- jitter: the start is late, the due moment is not
BEGIN;
SELECT due.create_job('due');
UPDATE sweep.job_state SET next_start = '2026-03-01 12:00:30Z' WHERE job = 'due';
UPDATE sweep.job_definition SET jitter = '40 s' WHERE name = 'due';
SELECT sweep._enqueue_due('2026-03-01 12:00:29.999999Z', 100);
SELECT sweep._enqueue_due('2026-03-01 12:00:30Z', 100);
SELECT * FROM due.runs;
SELECT next_due, next_start BETWEEN next_due AND next_due + interval '40 s' AS within FROM due.state;
ROLLBACK;

-- catch_up: up to a minute late is not missed
BEGIN;
SELECT due.create_job('due once'), due.create_job('due skip', catch_up => 'skip'), due.create_job('due all', catch_up => 'all');
SELECT sweep._enqueue_due('2026-03-01 12:00:59.999999Z', 100);
SELECT * FROM due.runs ORDER BY job, due_at;
SELECT * FROM due.state;
ROLLBACK;
BEGIN;
SELECT due.create_job('due once'), due.create_job('due skip', catch_up => 'skip'), due.create_job('due all', catch_up => 'all');
SELECT sweep._enqueue_due('2026-03-01 12:01:00.000001Z', 100);
SELECT job, trigger, due_at, status, stop FROM due.runs ORDER BY job, due_at;
SELECT * FROM due.state;
ROLLBACK;
-- an hour late, and more than anybody wants
BEGIN;
SELECT due.create_job('due once'), due.create_job('due skip', catch_up => 'skip'), due.create_job('due all', catch_up => 'all');
SELECT sweep._enqueue_due('2026-03-01 13:00:30Z', 100);
SELECT job, trigger, status, count(*), min(due_at), max(due_at) FROM due.runs GROUP BY job, trigger, status ORDER BY 1, 2, 3;
SELECT * FROM due.state;
ROLLBACK;
BEGIN;
SELECT due.create_job('due all', catch_up => 'all');
SELECT sweep._enqueue_due('2026-03-01 18:00:00Z', 100);
SELECT job, trigger, status, count(*), min(due_at), max(due_at) FROM due.runs GROUP BY job, trigger, status ORDER BY 1, 2, 3;
SELECT * FROM due.state;
-- they start one after the other
SELECT r.run_id, l.due_at FROM sweep._startable_runs('2026-03-01 18:00:00Z') r JOIN sweep.run_live l USING (run_id);
ROLLBACK;

-- overlap skip: a run that waits, of whatever cause but by hand, is in the way
BEGIN;
SELECT due.create_job('due');
SELECT sweep._enqueue_due('2026-03-01 12:00:00Z', 100), sweep._enqueue_due('2026-03-01 12:01:00Z', 100);
SELECT * FROM due.runs;
-- once it has ended it is not
UPDATE sweep.run_live SET status = 'succeeded', stop_reason = 'drained', finished_at = now() WHERE run_id = 1200000;
SELECT sweep._enqueue_due('2026-03-01 12:02:00Z', 100);
SELECT run_id, trigger, due_at, status FROM due.runs;
ROLLBACK;
BEGIN;
SELECT due.create_job('due');
INSERT INTO sweep.run_live (job, trigger, due_at, pid) VALUES ('due', 'manual', '2026-03-01 11:00:00Z', NULL), ('due', 'manual', '2026-03-01 11:00:00Z', 1);
INSERT INTO sweep.run_live (job, trigger, due_at, attempt) VALUES ('due', 'retry', '2026-03-01 12:00:00.000001Z', 2);
SELECT sweep._enqueue_due('2026-03-01 12:00:00Z', 100);
SELECT * FROM due.runs;
ROLLBACK;
BEGIN;
SELECT due.create_job('due');
INSERT INTO sweep.run_live (job, trigger, due_at, attempt) VALUES ('due', 'retry', '2026-03-01 12:00:00Z', 2);
SELECT sweep._enqueue_due('2026-03-01 12:00:00Z', 100);
SELECT * FROM due.runs;
ROLLBACK;
-- a run whose process is gone is not in the way
BEGIN;
SELECT due.create_job('due');
INSERT INTO sweep.run_live (job, trigger, due_at, started_at, status, pid) VALUES ('due', 'schedule', '2026-03-01 11:00:00Z', '2026-03-01 11:00:00Z', 'running', 1);
SELECT sweep._enqueue_due('2026-03-01 12:00:00Z', 100);
SELECT * FROM due.runs;
ROLLBACK;

-- after a crash the jobs that may be the reason begin 10 s apart, also when the first one has begun since the tick did
BEGIN;
SELECT due.create_job('due 1'), due.create_job('due 2');
UPDATE sweep.job_state SET crashes = 1, crashed_at = '2026-03-01 11:59:00Z' WHERE job LIKE 'due%';
INSERT INTO sweep.run_live (job, trigger, due_at, started_at, status, pid) VALUES ('due 1', 'schedule', '2026-03-01 12:00:00Z', '2026-03-01 12:00:00.02Z', 'running', 1);
INSERT INTO sweep.run_live (job, trigger, due_at) VALUES ('due 2', 'schedule', '2026-03-01 12:00:00Z');
SELECT at, (SELECT count(*) FROM sweep._startable_runs(at)) AS startable
	FROM unnest('{2026-03-01 12:00:00Z, 2026-03-01 12:00:10Z, 2026-03-01 12:00:10.03Z}'::timestamptz[]) AS at;
ROLLBACK;

-- queue_one: one waits, the next is skipped
BEGIN;
SELECT due.create_job('due', overlap => 'queue_one');
INSERT INTO sweep.run_live (job, trigger, due_at, started_at, status, pid) VALUES ('due', 'schedule', '2026-03-01 11:00:00Z', '2026-03-01 11:00:00Z', 'running', 1);
SELECT sweep._enqueue_due('2026-03-01 12:00:00Z', 100), sweep._enqueue_due('2026-03-01 12:01:00Z', 100);
SELECT * FROM due.runs;
-- the one that waits starts when the one that runs has ended
SELECT run_id FROM sweep._startable_runs('2026-03-01 12:02:00Z');
UPDATE sweep.run_live SET status = 'succeeded', stop_reason = 'drained', finished_at = now() WHERE run_id = 1200000;
SELECT run_id FROM sweep._startable_runs('2026-03-01 12:02:00Z');
ROLLBACK;

-- cancel_previous: the one that waits gives way to the later one
BEGIN;
SELECT due.create_job('due', overlap => 'cancel_previous');
SELECT sweep._enqueue_due('2026-03-01 12:00:00Z', 100), sweep._enqueue_due('2026-03-01 12:01:00Z', 100);
SELECT * FROM due.runs;
ROLLBACK;

-- which of those that wait may start: scheduled ones in turn, those by hand at once, none that has a process
BEGIN;
SELECT due.create_job('due'), due.create_job('due other');
INSERT INTO sweep.run_live (job, trigger, due_at, status, pid) VALUES
	('due', 'schedule', '2026-03-01 12:00:00Z', 'waiting', NULL), ('due', 'catch_up', '2026-03-01 11:00:00Z', 'waiting', NULL),
	('due', 'retry', '2026-03-01 12:00:00Z', 'waiting', NULL), ('due', 'manual', '2026-03-01 12:00:00Z', 'waiting', NULL),
	('due', 'manual', '2026-03-01 12:00:01Z', 'waiting', NULL), ('due', 'manual', '2026-03-01 12:00:00Z', 'waiting', 1),
	('due other', 'schedule', '2026-03-01 10:00:00Z', 'waiting', NULL), ('due no longer', 'schedule', '2026-03-01 10:00:00Z', 'waiting', NULL);
SELECT run_id, job, l.trigger, l.due_at FROM sweep._startable_runs('2026-03-01 12:00:00Z') JOIN sweep.run_live l USING (run_id, job);
UPDATE sweep.run_live SET status = 'running', pid = 1 WHERE run_id = 1200001;
SELECT run_id, job, l.trigger, l.due_at FROM sweep._startable_runs('2026-03-01 12:00:00Z') JOIN sweep.run_live l USING (run_id, job);
UPDATE sweep.run_live SET status = 'succeeded', stop_reason = 'drained', finished_at = now() WHERE run_id = 1200001;
SELECT run_id, job, l.trigger, l.due_at FROM sweep._startable_runs('2026-03-01 12:00:00Z') JOIN sweep.run_live l USING (run_id, job);
-- a pause holds back what is scheduled and its retries, not what was started by hand; a copy starts nothing at all
SAVEPOINT running;
UPDATE sweep.job_state SET paused_at = now() WHERE job = 'due';
SELECT run_id, job, l.trigger FROM sweep._startable_runs('2026-03-01 12:00:00Z') JOIN sweep.run_live l USING (run_id, job);
ROLLBACK TO running;
SELECT sweep.pause_all();
SELECT run_id, job, l.trigger FROM sweep._startable_runs('2026-03-01 12:00:00Z') JOIN sweep.run_live l USING (run_id, job);
DELETE FROM sweep.control;
SELECT run_id, job, l.trigger FROM sweep._startable_runs('2026-03-01 12:00:00Z') JOIN sweep.run_live l USING (run_id, job);
UPDATE sweep.job_state SET database = 1, all_paused_at = NULL;
SELECT run_id, job, l.trigger FROM sweep._startable_runs('2026-03-01 12:00:00Z') JOIN sweep.run_live l USING (run_id, job);
ROLLBACK TO running;
-- a worker that never came up ends the run; not one that has begun
SELECT sweep._fail_start(1200000, 'error', '08006', 'no worker'), sweep._fail_start(1200001, 'error', '08006', 'no worker');
SELECT run_id, status, stop_reason, sqlstate, error, finished_at IS NOT NULL AS finished FROM sweep.runs WHERE run_id IN (1200000, 1200001) ORDER BY run_id;
ROLLBACK;

-- many runs that were started wait for one lock: one of them is listed, and they hide no other job of their role; shares run side by side
BEGIN;
SELECT due.create_job('due'), due.create_job('due other'), due.create_job('due later'), due.create_job('due divided');
UPDATE sweep.job_definition SET lock_key = 'due' WHERE name = 'due other';
UPDATE sweep.job_definition SET buckets = 4 WHERE name = 'due divided';
INSERT INTO sweep.run_live (job, trigger, due_at) SELECT 'due', 'manual', timestamptz '2026-03-01 11:00:00Z' + interval '1 ms' * n
	FROM generate_series(1, current_setting('pg_sweep.max_running_jobs')::int + 20) AS n;
INSERT INTO sweep.run_live (job, trigger, due_at) VALUES ('due other', 'manual', '2026-03-01 11:30:00Z'), ('due other', 'schedule', '2026-03-01 11:30:00Z'),
	('due later', 'manual', '2026-03-01 11:40:00Z'), ('due later', 'retry', '2026-03-01 11:50:00Z'),
	('due divided', 'manual', '2026-03-01 11:45:00Z'), ('due divided', 'parent', '2026-03-01 11:46:00Z');
SELECT job, l.trigger, l.due_at FROM sweep._startable_runs('2026-03-01 12:00:00Z') JOIN sweep.run_live l USING (run_id, job) ORDER BY l.due_at, l.run_id;
ROLLBACK;

-- paused, by pause or alter_job, or all paused: nothing is due
BEGIN;
SELECT due.create_job('due'), due.create_job('due paused'), due.create_job('due altered');
SELECT sweep.alter_job('due altered', '{"paused": true}'), sweep.pause('due paused');
SELECT * FROM due.state;
SELECT sweep._enqueue_due('2026-03-01 12:00:00Z', 100);
SELECT job FROM due.runs;
SELECT sweep.pause_all();
SELECT sweep._enqueue_due('2026-03-01 12:01:00Z', 100), sweep._next_wake(clock_timestamp());
-- either mark is enough: that of the job, or that of all, which concerns a job that has been created since
SELECT due.create_job('due since');
SELECT job, all_paused_at IS NOT NULL AS marked FROM sweep.job_state WHERE job LIKE 'due%' ORDER BY job;
SELECT sweep._enqueue_due('2026-03-01 12:01:00Z', 100), sweep._next_wake(clock_timestamp()), string_agg(DISTINCT state, ', ') FROM sweep.jobs WHERE name LIKE 'due%';
DELETE FROM sweep.job_state WHERE job = 'due since';
DELETE FROM sweep.control;
SELECT sweep._enqueue_due('2026-03-01 12:01:00Z', 100), sweep._next_wake(clock_timestamp()), string_agg(DISTINCT state, ', ') FROM sweep.jobs WHERE name LIKE 'due%';
SELECT count(*) FROM due.runs;
SELECT sweep.resume_all();
-- what passed meanwhile is not caught up
SELECT job, next_due > now() AS ahead FROM due.state;
ROLLBACK;

-- a copy of the database is not at home, nor is one in another cluster, nor what does not know, until somebody says so
BEGIN;
SELECT due.create_job('due'), due.create_job('due reboot', schedule => '@reboot');
UPDATE sweep.job_state SET boot = boot - interval '1 day' WHERE job = 'due reboot';
INSERT INTO sweep.run_live (job, trigger, due_at) VALUES ('due', 'manual', '2026-03-01 11:00:00Z'), ('due', 'schedule', '2026-03-01 11:00:00Z');
CREATE FUNCTION due.started() RETURNS TABLE (enqueued int, startable bigint, wake timestamptz, states text) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM sweep._enqueue_reboot();
	enqueued := sweep._enqueue_due('2026-03-01 12:00:00Z', 100) + (SELECT count(*) FROM sweep.run_live WHERE job = 'due reboot');
	startable := (SELECT count(*) FROM sweep._startable_runs('2026-03-01 12:00:00Z'));
	wake := sweep._next_wake(clock_timestamp());
	states := (SELECT string_agg(DISTINCT state, ', ') FROM sweep.jobs WHERE name LIKE 'due%');
	RETURN NEXT;
END
$$;
SAVEPOINT home;
UPDATE sweep.job_state SET system_identifier = system_identifier + 1 WHERE job LIKE 'due%';
SELECT * FROM due.started();
SELECT sweep.start('due');
ROLLBACK TO home;
UPDATE sweep.job_state SET database = 1 WHERE job LIKE 'due%';
SELECT * FROM due.started();
-- pause_all does not say so; what is created there is at home there
SELECT sweep.pause_all();
SELECT * FROM due.started();
SELECT due.create_job('due another');
DELETE FROM sweep.control;
SELECT job FROM sweep.job_state s WHERE job LIKE 'due%' AND sweep._is_home(s.system_identifier, s.database);
-- a dump of a version that did not know: the columns are not in it
UPDATE sweep.job_state SET system_identifier = DEFAULT, database = DEFAULT, all_paused_at = NULL WHERE job LIKE 'due%';
SELECT * FROM due.started();
-- what was queued in the original is not started by resume_all
SELECT sweep.resume_all();
SELECT count(*) AS jobs, bool_and(sweep._is_home(s.system_identifier, s.database)) AS home, bool_and(next_due > now() OR next_due IS NULL) AS ahead
	FROM sweep.job_state s WHERE job LIKE 'due%';
SELECT trigger, status FROM sweep.run_live WHERE job = 'due';
ROLLBACK;

-- a broken job: told once, no run, on it goes; it heals by itself
BEGIN;
SELECT due.create_job('due');
ALTER FUNCTION due.step(sweep.batch) RENAME TO step_renamed;
SELECT sweep._enqueue_due('2026-03-01 12:00:00Z', 100);
SELECT sweep._enqueue_due('2026-03-01 12:01:00Z', 100);
SELECT * FROM due.state;
SELECT state FROM sweep.jobs WHERE name = 'due';
ALTER FUNCTION due.step_renamed(sweep.batch) RENAME TO step;
SELECT sweep._enqueue_due('2026-03-01 12:02:00Z', 100);
SELECT * FROM due.state;
SELECT * FROM due.runs;
-- broken since it was queued: it starts nevertheless, and its run says why it cannot
ALTER FUNCTION due.step(sweep.batch) RENAME TO step_renamed;
SELECT run_id FROM sweep._startable_runs('2026-03-01 12:02:00Z');
ROLLBACK;

-- a zone this server does not know: broken, looked at again
BEGIN;
SELECT due.create_job('due');
UPDATE sweep.job_definition SET timezone = 'Europe/Atlantis' WHERE name = 'due';
SELECT sweep._enqueue_due('2026-03-01 12:00:00Z', 100);
SELECT * FROM due.state;
SELECT state FROM sweep.jobs WHERE name = 'due';
UPDATE sweep.job_definition SET timezone = 'Europe/Berlin' WHERE name = 'due';
SELECT sweep._enqueue_due('2026-03-01 12:01:00Z', 100);
SELECT * FROM due.state;
ROLLBACK;

-- @reboot: once for each start of the server, not for the one the job was created in
BEGIN;
SELECT due.create_job('due', schedule => '@reboot'), due.create_job('due paused', schedule => '@reboot'), due.create_job('due altered', schedule => '@reboot');
SELECT sweep.alter_job('due altered', '{"paused": true}'), sweep.pause('due paused');
SELECT sweep._enqueue_reboot();
SELECT count(*) FROM due.runs;
UPDATE sweep.job_state SET boot = boot - interval '1 day' WHERE job LIKE 'due%';
SELECT sweep._enqueue_reboot();
SELECT sweep._enqueue_reboot();
SELECT job, trigger, status FROM due.runs;
ROLLBACK;

-- one that cannot be read, or queued, keeps the others from nothing
BEGIN;
SELECT due.create_job('due'), due.create_job('due reboot', schedule => '@reboot'), due.create_job('due refused', schedule => '@reboot');
UPDATE sweep.job_definition SET schedule = 'nonsense' WHERE name = 'due';
UPDATE sweep.job_state SET boot = boot - interval '1 day' WHERE job LIKE 'due%';
CREATE FUNCTION due.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not this one'; END $$;
CREATE TRIGGER refuse BEFORE INSERT ON sweep.run_live FOR EACH ROW WHEN (NEW.job = 'due refused') EXECUTE FUNCTION due.refuse();
SELECT sweep._enqueue_reboot();
SELECT job, trigger, status FROM due.runs;
SELECT job, broken FROM due.state;
ROLLBACK;

-- errors of the server, and of tables that all share, end the tick; a row that is damaged leaves its job for a minute. Neither marks the job broken
BEGIN;
SELECT due.create_job('due'), due.create_job('due reboot', schedule => '@reboot');
UPDATE sweep.job_state SET boot = boot - interval '1 day' WHERE job = 'due reboot';
CREATE FUNCTION due.raise() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'raised' USING ERRCODE = current_setting('due.sqlstate'); END $$;
CREATE TRIGGER raise BEFORE INSERT ON sweep.run_live FOR EACH ROW EXECUTE FUNCTION due.raise();
CREATE FUNCTION due.outcome(sqlstate text, statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	outcome text := 'returned';
BEGIN
	BEGIN
		PERFORM set_config('due.sqlstate', sqlstate, true);
		EXECUTE statement;
		SELECT coalesce(min(broken), 'not broken') INTO outcome FROM sweep.job_state WHERE job LIKE 'due%';
		RAISE SQLSTATE 'DUE00';
	EXCEPTION WHEN SQLSTATE 'DUE00' THEN
		RETURN outcome;
	WHEN OTHERS THEN
		RETURN 'tick ended';
	END;
END
$$;
SET LOCAL client_min_messages = error;
SELECT s, due.outcome(s, $$SELECT sweep._enqueue_due('2026-03-01 12:00:00Z', 100)$$) AS due, due.outcome(s, 'SELECT sweep._enqueue_reboot()') AS reboot
	FROM unnest(ARRAY['53100', '53200', '53400', '57P01', '58030', '58P01', '40001', '40P01', '55P03', 'XX001', 'XX002', 'P0001', '22003']) AS s;
ROLLBACK;

-- a clock that was set back: what is due too late is brought forward; one that cannot be read any more keeps the others from nothing
BEGIN;
SELECT due.create_job('due 1 zone'), due.create_job('due 2 schedule'), due.create_job('due 3 late'), due.create_job('due 4 in time');
UPDATE sweep.job_definition SET timezone = 'Europe/Atlantis' WHERE name = 'due 1 zone';
UPDATE sweep.job_definition SET schedule = 'nonsense' WHERE name = 'due 2 schedule';
UPDATE sweep.job_state SET next_due = '2100-01-01 12:00:00Z', next_start = '2100-01-01 12:00:00Z' WHERE job LIKE 'due%';
UPDATE sweep.job_state SET next_due = '2026-03-01 12:01:00Z', next_start = '2026-03-01 12:01:10Z' WHERE job = 'due 4 in time';
SELECT sweep._mend_clock('2026-03-01 12:00:00Z', '0');
SELECT * FROM due.state;
ROLLBACK;

-- a clock that was set back: a fixed moment that has run does not run again, whatever became of the run; one that has not does
BEGIN;
CREATE FUNCTION due.tick(VARIADIC at timestamptz[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	moment timestamptz;
	before timestamptz;
BEGIN
	FOREACH moment IN ARRAY at LOOP
		PERFORM sweep._mend_clock(moment, greatest(before - moment, interval '0')), sweep._enqueue_due(moment, 100);
		before := moment;
		-- the runs end at once; the newest is in the live table
		UPDATE sweep.run_live SET status = 'succeeded', stop_reason = 'drained', finished_at = now(), pid = 1 WHERE status = 'waiting';
		WITH ended AS (DELETE FROM sweep.run_live WHERE run_id < (SELECT max(run_id) FROM sweep.run_live) RETURNING *)
			INSERT INTO sweep.run_history SELECT * FROM ended;
	END LOOP;
END
$$;
CREATE VIEW due.moments AS SELECT job, array_agg(to_char(due_at AT TIME ZONE 'UTC', 'DD HH24:MI') ORDER BY run_id) AS due FROM due.runs GROUP BY job ORDER BY job;
SAVEPOINT begun;
SELECT due.create_job('due daily', schedule => '0 12 * * *'), due.create_job('due list', schedule => '0,20,40 11,12 * * *'),
	due.create_job('due skip', schedule => '0,20,40 11,12 * * *', catch_up => 'skip'), due.create_job('due all', schedule => '0,20,40 11,12 * * *', catch_up => 'all');
UPDATE sweep.job_state SET next_due = '2026-03-01 11:00:00Z', next_start = '2026-03-01 11:00:00Z' WHERE job IN ('due list', 'due skip', 'due all');
SELECT due.tick('2026-03-01 11:00:00Z', '2026-03-01 11:30:00Z', '2026-03-01 12:00:00Z', '2026-03-01 12:00:01Z',
	'2026-03-01 11:59:59Z', '2026-03-01 12:00:00Z', '2026-03-01 12:00:01Z', '2026-03-01 10:30:00Z', '2026-03-01 11:00:00Z', '2026-03-01 11:20:00Z',
	'2026-03-01 11:40:00Z', '2026-03-01 12:00:00Z', '2026-03-01 12:20:00Z');
SELECT * FROM due.moments;
SELECT job, next_due, broken FROM due.state;
ROLLBACK TO begun;
-- a repeating schedule goes by the new clock at once, so does an interval, but for the moment that ran last
SELECT due.create_job('due minutely'), due.create_job('due hourly', schedule => 'every 1 hour'), due.create_job('due half', schedule => 'every 30 minutes');
SELECT due.tick('2026-03-01 11:59:00Z', '2026-03-01 12:00:00Z', '2026-03-01 12:00:02Z', '2026-03-01 11:59:59Z', '2026-03-01 12:00:00Z', '2026-03-01 12:00:02Z',
	'2026-03-01 11:20:00Z', '2026-03-01 11:21:00Z', '2026-03-01 11:30:00Z', '2026-03-01 12:00:00Z', '2026-03-01 13:00:00Z');
SELECT * FROM due.moments;
ROLLBACK TO begun;
-- a clock that stood in a far year for two moments stops no job; one that was wrong by more than three hours: all by the new clock
SELECT due.create_job('due daily', schedule => '0 12 * * *'), due.create_job('due minutely'), due.create_job('due hourly', schedule => 'every 1 hour');
SELECT due.tick('2026-03-01 11:59:00Z', '2099-03-01 12:00:00Z', '2099-03-02 12:00:00Z', '2026-03-01 11:59:30Z', '2026-03-01 12:00:00Z', '2026-03-01 12:01:00Z',
	'2026-03-01 16:00:00Z', '2026-03-01 11:59:59Z', '2026-03-01 12:00:00Z', '2026-03-01 12:00:02Z', '2026-03-01 12:00:01Z', '2026-03-01 12:00:02Z');
SELECT * FROM due.moments;
ROLLBACK TO begun;
-- nor does a far moment that a process finds which has not seen the step
SELECT due.create_job('due daily', schedule => '0 12 * * *');
UPDATE sweep.job_state SET last_due = '2099-03-01 12:00:00Z' WHERE job LIKE 'due%';
SELECT due.tick('2026-03-01 12:00:00Z');
SELECT * FROM due.moments;
ROLLBACK TO begun;
-- broken jobs go by the new clock as well: they would heal much later
SELECT due.create_job('due role'), due.create_job('due zone');
UPDATE sweep.job_state SET next_due = '2099-03-01 12:00:00Z', next_start = '2099-03-01 12:00:00Z', broken = 'no such role' WHERE job = 'due role';
UPDATE sweep.job_state SET next_due = NULL, next_start = '2099-03-01 12:00:00Z', broken = 'no such zone' WHERE job = 'due zone';
SELECT due.tick('2026-03-01 12:00:00Z');
SELECT job, next_due FROM due.state;
ROLLBACK;

-- when to look again: the earliest of the next starts and the waiting runs that are due later
BEGIN;
SELECT due.create_job('due');
UPDATE sweep.job_state SET next_start = '2100-01-02 00:00:00Z' WHERE job = 'due';
SELECT sweep._next_wake(clock_timestamp());
INSERT INTO sweep.run_live (job, trigger, due_at) VALUES ('due', 'manual', '2100-01-01 00:00:00Z'), ('due', 'manual', '2000-01-01 00:00:00Z');
SELECT sweep._next_wake(clock_timestamp());
-- number 37 of the issue: what fell due after the scheduler has listed what may start
SELECT sweep._next_wake('1999-12-31 23:59:59Z'), sweep._next_wake('2000-01-01 00:00:00Z');
DELETE FROM sweep.run_live WHERE job = 'due';
UPDATE sweep.job_state SET next_start = NULL WHERE job = 'due';
SELECT sweep._next_wake(clock_timestamp());
ROLLBACK;

-- runs that are not due yet are not read: that many of them would be 500 blocks
BEGIN;
SELECT due.create_job('due late');
INSERT INTO sweep.run_live (job, trigger, due_at) SELECT 'due late', 'manual', '2100-01-01 00:00:00Z' FROM generate_series(1, 20000);
ANALYZE sweep.run_live;
CREATE FUNCTION pg_temp.blocks(statement text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) ' || statement INTO plan;
	RETURN (plan #>> '{0,Plan,Shared Hit Blocks}')::bigint + (plan #>> '{0,Plan,Shared Read Blocks}')::bigint;
END
$$;
-- the first time the catalogue is read for it
SELECT statement, pg_temp.blocks(statement) > 0 AS read, pg_temp.blocks(statement) < 200 AS cheap FROM unnest(ARRAY[
	'SELECT sweep._startable_runs(now())', 'SELECT sweep._mark_lost()', 'SELECT sweep._next_wake(now())', 'SELECT sweep._archive_runs(false)',
	'SELECT sweep._insert_scheduled(j, now(), $$schedule$$, false) FROM sweep.job_definition j WHERE name = $$due late$$',
	'SELECT sweep._kept_cursor($$due late$$)']) AS statement;
ROLLBACK;

-- a run in progress, seen from its own step: its lock is held
CREATE FUNCTION due.overlap(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
DECLARE
	j sweep.job_definition;
BEGIN
	SELECT * INTO j FROM sweep.job_definition WHERE name = 'due ' || (b.args ->> 'overlap');
	PERFORM sweep._insert_scheduled(j, '2100-01-01 00:00:00Z', 'schedule', false);
	RETURN ROW(CASE WHEN b.cursor IS NULL THEN 1 ELSE 0 END, '1', NULL)::sweep.progress;
END
$$;
SELECT setval(pg_get_serial_sequence('sweep.run_live', 'run_id'), 1200100, false);
SELECT sweep.create_job('due ' || o, step => 'due.overlap', args => jsonb_build_object('overlap', o), overlap => o)
	FROM unnest(ARRAY['skip', 'queue_one']) AS o;
CALL sweep.run('due skip');
CALL sweep.run('due queue_one');
SELECT run_id, job, trigger, due_at > now() AS ahead, status, stop, detail FROM due.runs;
SELECT sweep.drop_job('due ' || o) FROM unnest(ARRAY['skip', 'queue_one']) AS o;
-- what waited went with the job
SELECT job, status, stop_reason, finished_at IS NOT NULL AS finished FROM sweep.runs WHERE run_id BETWEEN 1200100 AND 1200200 AND due_at > now() ORDER BY run_id;

DELETE FROM sweep.run_live WHERE job LIKE 'due%';
DELETE FROM sweep.run_history WHERE job LIKE 'due%';
DROP SCHEMA due CASCADE;
