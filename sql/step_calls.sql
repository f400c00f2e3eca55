-- room: makers
-- Steps that are called by hand with what no job would give them, and args that name what is of other roles: nothing of a run or of a table
-- of another role is told, no view fails, and neither the server nor its scheduler stops.
\set SHOW_CONTEXT never
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
CREATE ROLE regress_sweep_victim LOGIN IN ROLE sweep_user;
CREATE ROLE regress_sweep_mallory LOGIN IN ROLE sweep_user;
CREATE SCHEMA step_victim AUTHORIZATION regress_sweep_victim;
CREATE SCHEMA step_mal AUTHORIZATION regress_sweep_mallory;
SELECT current_user AS superuser \gset

\c - regress_sweep_victim
SET client_min_messages = warning;
CREATE TABLE step_victim.person (id int PRIMARY KEY, born date) WITH (autovacuum_enabled = off);
INSERT INTO step_victim.person SELECT n, '1980-05-17' FROM generate_series(1, 900) AS n;
CREATE INDEX ON step_victim.person (born);
ANALYZE step_victim.person;
CREATE TABLE step_victim.copy (LIKE step_victim.person INCLUDING ALL);

-- ---------------------------------------------------------------- args that are no object
\c - regress_sweep_mallory
SET client_min_messages = warning;
CREATE TABLE step_mal.t (id int PRIMARY KEY, at timestamptz);
CREATE INDEX ON step_mal.t (at);
-- In an array that is long enough, what would be the names of an object is behind its end.
SELECT ('[' || repeat('null,', 4000000) || '"statement"' || repeat(',null', 3999999) || ']')::jsonb AS args INTO TEMP odd;
SELECT sweep.retention_step(ROW(10, NULL, args, now(), NULL, NULL, NULL, 1)::sweep.batch) FROM odd;
SELECT sweep.update_step(ROW(10, NULL, args, now(), NULL, NULL, NULL, 1)::sweep.batch) FROM unnest('{[],"\"statement\"","[\"statement\"]",1}'::jsonb[]) AS args;
SELECT sweep.partitions_step(ROW(10, '[1]', '[1]', now(), NULL, NULL, NULL, 1)::sweep.batch);

-- ---------------------------------------------------------------- the range of another role's run
\c - :superuser
SET client_min_messages = warning;
BEGIN;
INSERT INTO sweep.run_live (run_id, job, run_as, trigger, due_at, started_at, pid, status, bucket) OVERRIDING SYSTEM VALUE VALUES (1600000, 'step calls', 'regress_sweep_victim', 'manual', now(), now(), 1, 'running', 0);
INSERT INTO sweep.bucket (job, bucket, since, state, run_id, pid, range, cursor) VALUES ('step calls', 0, now(), 'occupied', 1600000, 1, '{"by": ["id"], "upto": ["a secret key"]}', '{"most": ["a secret key"]}');
SET LOCAL ROLE regress_sweep_mallory;
SELECT p.rows, p.cursor - 'ordering' AS cursor FROM sweep.delete_step(ROW(1, NULL, '{"target": "step_mal.t", "condition": "true", "key": ["id"], "serves": false}', now(), 0, 1, NULL, 1600000)::sweep.batch) AS p;
ROLLBACK;

-- ---------------------------------------------------------------- statistics of a table that the role of the job may not read
\c - regress_sweep_mallory
SET client_min_messages = warning;
SELECT sweep.create_job('step calls', step => 'sweep.retention_step', args => '{"target": "step_victim.person", "age_column": "born", "keep": "1 day"}', paused => true);
SELECT overdue_rows FROM sweep.retentions;
\c - regress_sweep_victim
SET client_min_messages = warning;
GRANT USAGE ON SCHEMA step_victim TO regress_sweep_mallory;
GRANT SELECT (born) ON step_victim.person TO regress_sweep_mallory;
\c - regress_sweep_mallory
SELECT overdue_rows FROM sweep.retentions;
\c - regress_sweep_victim
ALTER TABLE step_victim.person ENABLE ROW LEVEL SECURITY;
\c - regress_sweep_mallory
SELECT overdue_rows FROM sweep.retentions;
SELECT sweep.drop_job('step calls');
\c - regress_sweep_victim
SET client_min_messages = warning;
ALTER TABLE step_victim.person DISABLE ROW LEVEL SECURITY;
REVOKE USAGE ON SCHEMA step_victim FROM regress_sweep_mallory;

-- ---------------------------------------------------------------- a proof with a value that is none
\c - regress_sweep_mallory
SET client_min_messages = warning;
CREATE FUNCTION step_mal.step(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
BEGIN
	b.cursor := '{"late": "abc"}';
	RETURN sweep.retention_step(b);
END $$;
SELECT sweep.create_job('step calls', step => 'step_mal.step', args => '{"target": "step_mal.t", "age_column": "at", "keep": "1 day", "cascade": "batched", "timezone": "UTC"}');
CALL sweep.run('step calls');
SELECT sweep.alter_job('step calls', '{"step": "sweep.retention_step"}');
SELECT job, complete_to IS NULL AS unproved, late_rows, scope FROM sweep.retentions;
SELECT sweep.drop_job('step calls');

-- ---------------------------------------------------------------- a name that another role's copy is to have
SELECT sweep.create_job('step calls', step => 'sweep.copy_step', args => '{"changes": "step_victim.person_sweep_changes"}', paused => true);
\c - regress_sweep_victim
SET client_min_messages = warning;
SELECT sweep.create_copy('step_victim.person', 'step_victim.copy', with_changes => true, paused => true, name => 'step calls copy');
SELECT sweep.drop_job('step calls copy');

-- ---------------------------------------------------------------- a job that goes with its history, and was altered to take a table along
\c - regress_sweep_mallory
SET client_min_messages = warning;
SELECT sweep.drop_job('step calls');
CREATE TABLE step_mal.changes (id int);
CREATE VIEW step_mal.keeps AS SELECT * FROM step_mal.changes;
SELECT run_id FROM sweep.delete('step_mal.t', 'true', name => 'step calls') \gset
CALL sweep.wait(:run_id);
SELECT sweep.alter_job('step calls', '{"args": {"changes": "step_mal.changes"}}');
SELECT sweep.alter_job('step calls', '{"step": "sweep.copy_step"}');
\c - :superuser
SET client_min_messages = warning;
-- moved to the history by the scheduler
DO $$ BEGIN WHILE EXISTS (SELECT FROM sweep.run_live WHERE job = 'step calls') LOOP END LOOP; END $$;
BEGIN;
DELETE FROM sweep.run_history WHERE job = 'step calls';
SELECT sweep._drop_jobs_without_history();
SELECT name FROM sweep.job WHERE name = 'step calls';
ROLLBACK;
DROP VIEW step_mal.keeps;
SELECT sweep.drop_job('step calls');
DELETE FROM sweep.run_history WHERE job LIKE 'step calls%';
DROP SCHEMA step_victim, step_mal CASCADE;
DROP OWNED BY regress_sweep_victim, regress_sweep_mallory;
DROP ROLE regress_sweep_victim, regress_sweep_mallory;
