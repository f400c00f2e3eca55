-- room: base
-- sweep.try_lease and sweep.release_lease within one session; two sessions are test/specs/lease.spec.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
CREATE SCHEMA lease;
CREATE VIEW lease.locks AS SELECT mode, granted, count(*) FROM pg_locks
	WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND objsubid = 21335 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
	GROUP BY 1, 2;

-- taken, and visible as a lock of its own class
SELECT sweep.try_lease('lease a');
SELECT * FROM lease.locks;
SELECT sweep.release_lease('lease a');
SELECT * FROM lease.locks;

-- taken twice is given back twice
SELECT sweep.try_lease('lease a'), sweep.try_lease('lease a'), sweep.try_lease('lease b');
SELECT * FROM lease.locks;
SELECT sweep.release_lease('lease a');
SELECT * FROM lease.locks;
SELECT sweep.release_lease('lease a'), sweep.release_lease('lease b');
SELECT * FROM lease.locks;

-- what was not taken is not given back
SELECT sweep.release_lease('lease a');
\echo :SQLSTATE
SELECT sweep.release_lease('');

-- NULL is NULL, any text is a key
SELECT sweep.try_lease(NULL), sweep.release_lease(NULL);
SELECT sweep.try_lease(''), sweep.try_lease(repeat('long', 1000)), sweep.try_lease('ä');
SELECT * FROM lease.locks;
SELECT sweep.release_lease(''), sweep.release_lease(repeat('long', 1000)), sweep.release_lease('ä');

-- it is the session's: a rollback does not give it back
BEGIN;
SELECT sweep.try_lease('lease a');
ROLLBACK;
SELECT * FROM lease.locks;
SELECT sweep.release_lease('lease a');
BEGIN;
SELECT sweep.try_lease('lease a');
SAVEPOINT s;
SELECT sweep.release_lease('lease a');
ROLLBACK TO s;
COMMIT;
SELECT * FROM lease.locks;

-- a step cannot give back the lease of its own run, nor keep it beyond
CREATE FUNCTION lease.step(b sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$
	SELECT ROW(0, NULL, jsonb_build_object('released', sweep.release_lease('lease job')))::sweep.progress
$$;
SELECT sweep.create_job('lease job', step => 'lease.step');
CALL sweep.run('lease job');
SELECT status, stop_reason, detail FROM sweep.runs WHERE job = 'lease job';
SELECT * FROM lease.locks;
-- a lease that the session has taken is not in the way of its own runs; here the step gives it back
SELECT sweep.try_lease('lease job');
CALL sweep.run('lease job');
SELECT status, stop_reason FROM sweep.runs WHERE job = 'lease job' ORDER BY run_id DESC LIMIT 1;
SELECT * FROM lease.locks;
SELECT sweep.release_lease('lease job');
-- and else it is still held afterwards
SELECT sweep.create_job('lease job 2', batch_sql => 'SELECT 1 WHERE false', lease_key => 'lease shared');
SELECT sweep.try_lease('lease shared');
CALL sweep.run('lease job 2');
SELECT * FROM lease.locks;
SELECT sweep.release_lease('lease shared');
SELECT * FROM lease.locks;

SELECT sweep.drop_job('lease job 2');
SELECT sweep.drop_job('lease job');
DELETE FROM sweep.run_live WHERE job LIKE 'lease job%';
DELETE FROM sweep.run_history WHERE job LIKE 'lease job%';
DROP SCHEMA lease CASCADE;
