-- room: engine
-- The settings of a job: what is refused when it is created, and with which settings its code is executed in a session.
-- In the background they are in test/t/role_settings.pl.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS run_settings CASCADE;
CREATE SCHEMA run_settings;
SELECT setval(pg_get_serial_sequence('sweep.run_live', 'run_id'), 4800000, false);
CREATE ROLE regress_sweep_settings LOGIN IN ROLE sweep_user;
GRANT USAGE ON SCHEMA run_settings TO regress_sweep_settings;

-- Reports what it is executed with.
CREATE FUNCTION run_settings.step(b sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$
	SELECT (b.cursor IS NULL)::int::bigint, '1'::jsonb, jsonb_object_agg(s.name, current_setting(s.name, true))
		FROM unnest(ARRAY['search_path', 'work_mem', 'jit', 'enable_seqscan', 'statement_timeout', 'lock_timeout', 'synchronous_commit', 'run_settings.own']) AS s (name)
$$;
CREATE VIEW run_settings.last_run AS
	SELECT status, batches, detail, sqlstate, split_part(error, E'\n', 1) AS error FROM sweep.runs WHERE job LIKE 'run\_settings%' ORDER BY run_id DESC LIMIT 1;
CREATE FUNCTION run_settings.refuse(settings text, role text DEFAULT 'regress_sweep_settings') RETURNS TABLE (code text, error text, detail text, hint text) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM sweep.create_job('refused', step => 'run_settings.step', settings => refuse.settings::jsonb, run_as => role::regrole);
	RAISE EXCEPTION 'accepted';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, error = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	RETURN NEXT;
END
$$;

-- ------------------------------------------------------------------ what is refused
\pset format unaligned
SELECT s.settings, r.* FROM (VALUES
	-- the form
	('null'), ('[]'), ('"work_mem"'), ('{"work_mem": null}'), ('{"work_mem": {"of": 1}}'), ('{"search_path": ["a", "b"]}'),
	-- names and values
	('{"work_memory": "1MB"}'), ('{"": "1"}'), ('{"work_mem": "much"}'), ('{"work_mem": "1h"}'), ('{"enable_seqscan": 2}'), ('{"search_path": "a,,b"}'), ('{"TimeZone": "Nowhere"}'),
	('{"default_tablespace": "regress_no_such_tablespace"}'), ('{"pg_sweep.nothing": 1}'),
	-- what the role may not SET
	('{"log_statement": "none"}'), ('{"session_replication_role": "replica"}'), ('{"pg_sweep.no_progress_after": -1}'), ('{"shared_buffers": "1GB"}'), ('{"fsync": "off"}'), ('{"is_superuser": "on"}'),
	('{"session_preload_libraries": "x"}'), ('{"log_connections": "on"}'),
	-- what is not the job's
	('{"role": "sweep_admin"}'), ('{"ROLE": "none"}'), ('{"Session_Authorization": "sweep_admin"}'), ('{"transaction_isolation": "serializable"}'), ('{"default_transaction_read_only": "on"}'),
	('{"transaction_timeout": "1s"}'), ('{"exit_on_error": true}'), ('{"application_name": "x"}'), ('{"client_encoding": "LATIN1"}')) AS s (settings), run_settings.refuse(s.settings) AS r;
SELECT r.error FROM run_settings.refuse(format('{"run_settings.own": "%s"}', repeat('x', 17000))) AS r;
\pset format aligned
-- a superuser may more; and so may who was granted it, from PostgreSQL 15 on
SELECT r.error FROM run_settings.refuse('{"log_statement": "none", "session_replication_role": "replica"}', current_user) AS r;
GRANT SET ON PARAMETER log_statement TO regress_sweep_settings;
SELECT r.error FROM run_settings.refuse('{"log_statement": "none"}') AS r;
-- nothing of it was set, nor is there a job
SELECT current_setting('log_statement') = reset_val AS unchanged, (SELECT count(*) FROM sweep.job WHERE name = 'refused') AS jobs FROM pg_settings WHERE name = 'log_statement';
-- the same when it is altered; the role counts that it gets
SELECT sweep.create_job('run_settings', step => 'run_settings.step', settings => '{"session_replication_role": "replica"}');
SELECT sweep.alter_job('run_settings', '{"run_as": "regress_sweep_settings"}');
SELECT sweep.alter_job('run_settings', '{"settings": {"work_mem": "much"}}');
SELECT sweep.alter_job('run_settings', '{"settings": null}');
-- who could not be the role does not say with which settings its code is executed
SELECT sweep.create_job('run_settings other', step => 'run_settings.step');
GRANT sweep_admin TO regress_sweep_settings;
SET ROLE regress_sweep_settings;
SELECT sweep.alter_job('run_settings other', '{"settings": {"search_path": "pg_temp"}}');
RESET ROLE;
REVOKE sweep_admin FROM regress_sweep_settings;

-- ------------------------------------------------------------------ under CALL: those of the session, then the job's, until it ends
SET search_path = run_settings, public;
SET work_mem = '7MB';
SET jit = on;
SET lock_timeout = '9s';
SELECT sweep.alter_job('run_settings', '{"settings": {}}');
CALL sweep.run('run_settings');
SELECT * FROM last_run;
SELECT sweep.alter_job('run_settings', '{"settings": {"search_path": "pg_catalog, run_settings", "WORK_MEM": 8192, "jit": true, "enable_seqscan": false, "lock_timeout": "2s", "statement_timeout": "1h",
	"synchronous_commit": "local", "run_settings.own": "mine"}}');
CALL sweep.run('run_settings');
SELECT status, batches, detail FROM last_run;
SELECT current_setting('search_path') AS path, current_setting('work_mem') AS work_mem, current_setting('jit') AS jit, current_setting('enable_seqscan') AS seqscan,
	current_setting('lock_timeout') AS lock_timeout, current_setting('statement_timeout') AS statement_timeout, current_setting('run_settings.own', true) AS own;
-- so does a preview
CREATE FUNCTION run_settings.tell(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$ BEGIN RAISE WARNING 'work_mem is %, search_path is %', current_setting('work_mem'), current_setting('search_path'); RETURN ROW(0, NULL, NULL)::sweep.progress; END $$;
SELECT sweep.alter_job('run_settings', '{"step": "run_settings.tell"}');
SELECT rows FROM sweep.preview('run_settings');
SELECT current_setting('search_path') AS path, current_setting('work_mem') AS work_mem;
-- a run that fails, and one whose settings have become wrong since, is recorded; the session has its own again
CREATE FUNCTION run_settings.fail(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'with %', current_setting('work_mem'); END $$;
SELECT sweep.alter_job('run_settings', '{"step": "run_settings.fail"}');
CALL sweep.run('run_settings');
SELECT status, sqlstate, error FROM last_run;
UPDATE sweep.job_definition SET settings = '{"work_memory": "1MB"}' WHERE name = 'run_settings';
CALL sweep.run('run_settings');
SELECT status, sqlstate, error FROM last_run;
SELECT current_setting('search_path') AS path, current_setting('work_mem') AS work_mem;
RESET ALL;
SET client_min_messages = warning;

-- ------------------------------------------------------------------ names in a batch_sql are looked up as a run will
CREATE TABLE run_settings.item (id int);
CREATE TEMP TABLE item (other int);
SET search_path = run_settings;
SELECT sweep.create_job('run_settings path', batch_sql => 'DELETE FROM item WHERE id < $1');
SELECT sweep.create_job('run_settings path', settings => '{"Search_Path": "run_settings"}', batch_sql => 'DELETE FROM item WHERE id < $1');
SELECT sweep.alter_job('run_settings path', '{"settings": {}}');
RESET search_path;
ALTER ROLE regress_sweep_settings SET search_path = run_settings;
SELECT sweep.alter_job('run_settings path', '{"settings": {}, "run_as": "regress_sweep_settings"}');
ALTER ROLE regress_sweep_settings IN DATABASE :"DBNAME" SET search_path = pg_catalog;
SELECT sweep.alter_job('run_settings path', '{"batch_sql": "DELETE FROM item WHERE id <= $1"}');
ALTER ROLE regress_sweep_settings RESET ALL;
ALTER ROLE regress_sweep_settings IN DATABASE :"DBNAME" RESET ALL;
SELECT settings FROM sweep.job WHERE name = 'run_settings path';

SELECT count(sweep.drop_job(name)) FROM sweep.job WHERE name LIKE 'run\_settings%';
DELETE FROM sweep.run_live WHERE job LIKE 'run\_settings%';
DELETE FROM sweep.run_history WHERE job LIKE 'run\_settings%';
DROP SCHEMA run_settings CASCADE;
DROP OWNED BY regress_sweep_settings;
DROP ROLE regress_sweep_settings;
