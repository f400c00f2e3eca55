-- room: engine
-- A job that has the name of another role's earlier one: what runs of that one are still there neither act on the
-- new job nor show anything of it, nor the other way round.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS heirs CASCADE;
CREATE SCHEMA heirs;
GRANT USAGE, CREATE ON SCHEMA heirs TO PUBLIC;
CREATE ROLE regress_heirs_old LOGIN IN ROLE sweep_user;
CREATE ROLE regress_heirs_new LOGIN IN ROLE sweep_user;

SET ROLE regress_heirs_new;
CREATE FUNCTION heirs.step(sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT 0::bigint, NULL::jsonb, NULL::jsonb $$;
SELECT sweep.create_job('heirs child', step => 'heirs.step');
SELECT sweep.create_job('heirs', step => 'heirs.step', schedule => '@yearly', timezone => 'UTC', overlap => 'cancel_previous', on_start => '{"heirs child": "1 h"}');
RESET ROLE;
INSERT INTO sweep.run_history (run_id, job, run_as, trigger, due_at, status, stop_reason, finished_at, sqlstate, error)
	VALUES (1700000, 'heirs', 'regress_heirs_old', 'manual', '2000-01-01 00:00:00Z', 'failed', 'error', now(), '42P01', 'a secret');
CREATE VIEW heirs.runs AS SELECT job, run_as AS role, trigger, status, error FROM sweep.run_live WHERE job LIKE 'heirs%';

-- (in a transaction, so that the scheduler does not see these runs and end them)
BEGIN;
INSERT INTO sweep.run_live (job, run_as, trigger, due_at, status) VALUES ('heirs', 'regress_heirs_old', 'schedule', '2000-01-01 00:00:00Z', 'running')
	RETURNING run_id AS running \gset
INSERT INTO sweep.run_live (job, run_as, trigger, due_at) VALUES ('heirs', 'regress_heirs_old', 'schedule', '2000-01-01 00:00:00Z') RETURNING run_id AS waiting \gset
-- neither the state of the job nor its last error is that of the old one
SET ROLE regress_heirs_new;
SELECT name, state, last_status, last_error FROM sweep.jobs ORDER BY name;
RESET ROLE;
-- its moments are not kept from starting, and cancel no run of the old one
SELECT sweep._insert_scheduled(j, '2100-01-01 00:00:00Z', 'schedule', false) FROM sweep.job_definition j WHERE name = 'heirs';
SELECT * FROM heirs.runs ORDER BY role, status;
-- and a run of the new one may start, whatever waits or runs of the old one
INSERT INTO sweep.run_live (job, run_as, trigger, due_at, status, pid) VALUES ('heirs', 'regress_heirs_old', 'schedule', '2000-01-01 00:00:00Z', 'running', 1);
INSERT INTO sweep.run_live (job, run_as, trigger, due_at) VALUES ('heirs', 'regress_heirs_new', 'schedule', '2001-01-01 00:00:00Z');
SELECT job, run_as FROM sweep._startable_runs('2002-01-01 00:00:00Z') WHERE job = 'heirs';
-- (what waits as a child of the old one is no child of the new one)
INSERT INTO sweep.run_live (job, run_as, trigger, due_at) VALUES ('heirs child', 'regress_heirs_old', 'parent', '2100-01-01 00:00:00Z');
INSERT INTO sweep.run_live (job, run_as, trigger, due_at, status) VALUES ('heirs', 'regress_heirs_new', 'manual', '2000-01-01 00:00:00Z', 'running')
	RETURNING run_id AS parent \gset
SELECT sweep._start_hooks(:parent);
SELECT role, count(*) FROM heirs.runs WHERE job = 'heirs child' GROUP BY role ORDER BY role;
DELETE FROM sweep.run_live WHERE job = 'heirs child';
-- no child of the new one is queued by a run of the old one
SELECT sweep._start_hooks(:running);
SELECT count(*) FROM heirs.runs WHERE job = 'heirs child';
ROLLBACK;

BEGIN;
INSERT INTO sweep.run_live (job, run_as, trigger, due_at) VALUES ('heirs', 'regress_heirs_old', 'schedule', '2000-01-01 00:00:00Z') RETURNING run_id AS waiting \gset
-- what is wrong with the new one is not told to the old one
DROP FUNCTION heirs.step(sweep.batch);
SELECT sweep._fail_start(:waiting, 'error', '08006', 'an error of its own');
SELECT error FROM heirs.runs WHERE error IS NOT NULL;
ROLLBACK;

BEGIN;
-- items of the old one are not shown to the new one
SELECT sweep._quarantine('heirs', 'regress_heirs_old'::regrole, '"a secret"', '22000', 'a secret');
SELECT sweep._quarantine('heirs', 'regress_heirs_new'::regrole, '"an item"', '22000', 'an error');
SET ROLE regress_heirs_new;
SELECT job, item FROM sweep.quarantine;
SET ROLE regress_heirs_old;
SELECT job, item FROM sweep.quarantine;
ROLLBACK;

DELETE FROM sweep.run_live WHERE job LIKE 'heirs%';
DELETE FROM sweep.run_history WHERE job LIKE 'heirs%';
SELECT sweep.drop_job(name) FROM sweep.job WHERE name LIKE 'heirs%';
DROP SCHEMA heirs CASCADE;
DROP ROLE regress_heirs_old, regress_heirs_new;
