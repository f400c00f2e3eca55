-- room: engine
-- The call of a step: what kind of function it may be, and what becomes of it while its run is in progress.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS run_step CASCADE;
CREATE SCHEMA run_step;
SELECT setval(pg_get_serial_sequence('sweep.run_live', 'run_id'), 3200000, false);
CREATE VIEW run_step.last_run AS
	SELECT status, stop_reason AS stop, batches, rows, detail, sqlstate, split_part(error, E'\n', 1) AS error
		FROM sweep.runs WHERE job LIKE 'run\_step%' ORDER BY run_id DESC LIMIT 1;

-- languages and attributes
CREATE FUNCTION run_step.in_sql(b sweep.batch) RETURNS sweep.progress LANGUAGE sql STABLE STRICT AS $$
	SELECT ROW(2, NULL, jsonb_build_object('search_path', current_setting('search_path')))::sweep.progress
$$;
CREATE FUNCTION run_step.with_settings(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql SECURITY DEFINER SET search_path = run_step, pg_temp AS $$
BEGIN
	RETURN ROW(3::bigint, NULL::jsonb, jsonb_build_object('search_path', current_setting('search_path')));
END
$$;
CREATE FUNCTION run_step.as_record(b sweep.batch, OUT progress sweep.progress) LANGUAGE plpgsql AS $$
BEGIN
	progress.rows := 4;
	progress.detail := jsonb_build_object('size', b.size);
END
$$;
CREATE FUNCTION run_step.returns_null(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE FUNCTION run_step.returns_none(b sweep.batch) RETURNS sweep.progress LANGUAGE sql AS 'SELECT NULL::sweep.progress WHERE false';
SELECT sweep.create_job('run_step', step => 'run_step.in_sql', batch_size => 5, max_batches => 2);
CALL sweep.run('run_step');
SELECT * FROM run_step.last_run;
SELECT sweep.alter_job('run_step', '{"step": "run_step.with_settings"}');
CALL sweep.run('run_step');
SELECT * FROM run_step.last_run;
SELECT sweep.alter_job('run_step', '{"step": "run_step.as_record"}');
CALL sweep.run('run_step');
SELECT * FROM run_step.last_run;
SELECT sweep.alter_job('run_step', '{"step": "run_step.returns_null"}');
CALL sweep.run('run_step');
SELECT sweep.alter_job('run_step', '{"step": "run_step.returns_none"}');
CALL sweep.run('run_step');
SELECT * FROM run_step.last_run;

-- each call sees what the one before has committed, also one that takes the snapshot it is given
CREATE TABLE run_step.item (n int);
CREATE FUNCTION run_step.add() RETURNS int LANGUAGE sql VOLATILE AS 'INSERT INTO run_step.item VALUES (1) RETURNING n';
CREATE FUNCTION run_step.sees(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql STABLE AS $$
DECLARE
	added int := run_step.add();
BEGIN
	RETURN ROW(added::bigint, NULL::jsonb, jsonb_build_object('seen', jsonb_build_array((SELECT count(*) FROM run_step.item))));
END
$$;
SELECT sweep.alter_job('run_step', '{"step": "run_step.sees", "max_batches": 3}');
CALL sweep.run('run_step');
SELECT * FROM run_step.last_run;

-- it is counted like any function
SET track_functions = 'all';
CALL sweep.run('run_step');
SELECT pg_stat_force_next_flush();
SELECT calls FROM pg_stat_user_functions WHERE schemaname = 'run_step' AND funcname = 'sees';
RESET track_functions;

-- its second batch executes the args, which change it: the third is what it has become
CREATE FUNCTION run_step.make(body text DEFAULT 'first', result text DEFAULT 'sweep.progress') RETURNS void LANGUAGE plpgsql AS $make$
BEGIN
	EXECUTE format($$
		CREATE OR REPLACE FUNCTION run_step.step(b sweep.batch) RETURNS %s LANGUAGE plpgsql AS $step$
		BEGIN
			IF b.cursor = '1' THEN
				EXECUTE b.args ->> 'do';
			END IF;
			RETURN %s;
		END
		$step$ $$, result, CASE result WHEN 'int' THEN '1'
			ELSE format('ROW(1, to_jsonb(coalesce(b.cursor::int, 0) + 1), jsonb_build_object(''calls'', jsonb_build_array(%L)))::sweep.progress', body) END);
END
$make$;
SELECT run_step.make();
SELECT sweep.alter_job('run_step', '{"step": "run_step.step", "max_batches": 3}');
CALL sweep.run('run_step', '{"do": "SELECT run_step.make(''replaced'')"}');
SELECT * FROM run_step.last_run;
SELECT run_step.make();
CALL sweep.run('run_step', '{"do": "DROP FUNCTION run_step.step(sweep.batch); SELECT run_step.make(''another'')"}');
SELECT * FROM run_step.last_run;
SELECT run_step.make();
CALL sweep.run('run_step', '{"do": "ALTER FUNCTION run_step.step(sweep.batch) RENAME TO renamed"}');
SELECT * FROM run_step.last_run;
DROP FUNCTION run_step.renamed(sweep.batch);
SELECT run_step.make();
CALL sweep.run('run_step', '{"do": "ALTER SCHEMA run_step RENAME TO run_step_moved"}');
ALTER SCHEMA run_step_moved RENAME TO run_step;
SELECT * FROM run_step.last_run;
CALL sweep.run('run_step', '{"do": "DROP FUNCTION run_step.step(sweep.batch); SELECT run_step.make(''int'', ''int'')"}');
SELECT * FROM run_step.last_run;
DROP FUNCTION run_step.step(sweep.batch);
SELECT run_step.make();
CALL sweep.run('run_step', '{"do": "ALTER FUNCTION run_step.step(sweep.batch) SET search_path = run_step"}');
SELECT * FROM run_step.last_run;

-- the right to execute it is asked for in each batch
DROP ROLE IF EXISTS run_step_role;
CREATE ROLE run_step_role LOGIN IN ROLE sweep_user;
GRANT USAGE ON SCHEMA run_step TO run_step_role;
CREATE FUNCTION run_step.revoke() RETURNS void LANGUAGE sql SECURITY DEFINER AS
	'REVOKE EXECUTE ON FUNCTION run_step.step(sweep.batch) FROM PUBLIC, run_step_role';
SELECT sweep.alter_job('run_step', '{"run_as": "run_step_role"}');
SELECT current_user AS superuser \gset
\c - run_step_role
CALL sweep.run('run_step', '{"do": "SELECT run_step.revoke()"}');
\c - :superuser
SET client_min_messages = warning;
SELECT * FROM run_step.last_run;

-- it cannot end the transaction of its batch
SELECT sweep.alter_job('run_step', format('{"run_as": "%s"}', current_user)::jsonb);
CALL sweep.run('run_step', '{"do": "COMMIT"}');
CREATE FUNCTION run_step.commits(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
BEGIN
	COMMIT;
	RETURN ROW(1, NULL, NULL)::sweep.progress;
END
$$;
SELECT sweep.alter_job('run_step', '{"step": "run_step.commits"}');
CALL sweep.run('run_step');

SELECT sweep.drop_job(name) FROM sweep.job WHERE name LIKE 'run\_step%';
DELETE FROM sweep.run_live WHERE job LIKE 'run\_step%';
DELETE FROM sweep.run_history WHERE job LIKE 'run\_step%';
DROP SCHEMA run_step CASCADE;
DROP ROLE run_step_role;
