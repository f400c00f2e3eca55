-- room: base
-- sweep.try_lock and sweep.release_lock within one session; two sessions are test/specs/lock_race.spec.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
CREATE SCHEMA lock;
CREATE VIEW lock.locks AS SELECT mode, granted, count(*) FROM pg_locks
	WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND objsubid = 21335 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
	GROUP BY 1, 2;

-- taken, and visible as a lock of its own class
SELECT sweep.try_lock('lock a');
SELECT * FROM lock.locks;
SELECT sweep.release_lock('lock a');
SELECT * FROM lock.locks;

-- taken twice is given back twice
SELECT sweep.try_lock('lock a'), sweep.try_lock('lock a'), sweep.try_lock('lock b');
SELECT * FROM lock.locks;
SELECT sweep.release_lock('lock a');
SELECT * FROM lock.locks;
SELECT sweep.release_lock('lock a'), sweep.release_lock('lock b');
SELECT * FROM lock.locks;

-- what was not taken is not given back
SELECT sweep.release_lock('lock a');
\echo :SQLSTATE
SELECT sweep.release_lock('');

-- what gives back advisory locks leaves these alone; a session that is reset for its next client has none
SELECT count(*) FROM (SELECT sweep.try_lock('lock ' || n) FROM generate_series(1, 1000) AS n) AS taken;
SELECT sweep.try_lock('lock a');
SELECT pg_advisory_unlock_all();
SELECT sweep.release_lock('lock 1000'), sweep.release_lock('lock 1');
SELECT * FROM lock.locks;
DISCARD ALL;
SET client_min_messages = warning;
SELECT * FROM lock.locks;
SELECT sweep.release_lock('lock 2');

-- NULL is NULL, any text is a key
SELECT sweep.try_lock(NULL), sweep.release_lock(NULL);
SELECT sweep.try_lock(''), sweep.try_lock(repeat('long', 1000)), sweep.try_lock('ä');
SELECT * FROM lock.locks;
SELECT sweep.release_lock(''), sweep.release_lock(repeat('long', 1000)), sweep.release_lock('ä');

-- it is the session's: a rollback does not give it back
BEGIN;
SELECT sweep.try_lock('lock a'), sweep.try_lock('lock a');
ROLLBACK;
SELECT * FROM lock.locks;
BEGIN;
SELECT pg_advisory_unlock_all();
SELECT 1 / 0;
SELECT 1;
ROLLBACK;
SELECT * FROM lock.locks;
SELECT sweep.release_lock('lock a');
SELECT * FROM lock.locks;
SELECT sweep.release_lock('lock a');
SELECT * FROM lock.locks;
BEGIN;
SELECT sweep.try_lock('lock a');
SAVEPOINT s;
SELECT sweep.release_lock('lock a');
ROLLBACK TO s;
COMMIT;
SELECT * FROM lock.locks;

-- a step cannot give back the lock of its own run, nor keep it beyond
CREATE FUNCTION lock.step(b sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$
	SELECT ROW(0, NULL, jsonb_build_object('released', sweep.release_lock('lock job')))::sweep.progress
$$;
SELECT sweep.create_job('lock job', step => 'lock.step');
CALL sweep.run('lock job');
SELECT status, stop_reason, detail FROM sweep.runs WHERE job = 'lock job';
SELECT * FROM lock.locks;
-- a lock that the session has taken is not in the way of its own runs; here the step gives it back
SELECT sweep.try_lock('lock job');
CALL sweep.run('lock job');
SELECT status, stop_reason FROM sweep.runs WHERE job = 'lock job' ORDER BY run_id DESC LIMIT 1;
SELECT * FROM lock.locks;
SELECT sweep.release_lock('lock job');
-- and else it is still held afterwards
SELECT sweep.create_job('lock job 2', batch_sql => 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0', lock_key => 'lock shared');
SELECT sweep.try_lock('lock shared');
CALL sweep.run('lock job 2');
SELECT * FROM lock.locks;
SELECT sweep.release_lock('lock shared');
SELECT * FROM lock.locks;

-- a parallel worker takes none, which would end with it: a function that was declared to be safe there, and is not
CREATE FUNCTION lock.unsafe() RETURNS boolean LANGUAGE plpgsql PARALLEL SAFE AS $$ BEGIN RETURN sweep.try_lock('lock shared'); END $$;
CREATE TABLE lock.one_row AS SELECT 1 AS n;
BEGIN;
SET LOCAL parallel_setup_cost = 0;
SET LOCAL parallel_tuple_cost = 0;
SET LOCAL min_parallel_table_scan_size = 0;
SET LOCAL parallel_leader_participation = off;
\set SHOW_CONTEXT never
SELECT lock.unsafe() FROM lock.one_row WHERE n > 0;
ROLLBACK;

SELECT sweep.drop_job('lock job 2');
SELECT sweep.drop_job('lock job');
DELETE FROM sweep.run_live WHERE job LIKE 'lock job%';
DELETE FROM sweep.run_history WHERE job LIKE 'lock job%';
DROP SCHEMA lock CASCADE;
