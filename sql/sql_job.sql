-- room: job
-- Jobs with sql: what is refused when they are created or changed, and what cannot be done with them. What they do is in
-- test/t/sql_jobs.pl.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS sql_job CASCADE;
CREATE SCHEMA sql_job;
CREATE ROLE regress_sweep_sql_job LOGIN IN ROLE sweep_user;
CREATE FUNCTION sql_job.step(sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT 0::bigint, NULL::jsonb, NULL::jsonb $$;
CREATE FUNCTION sql_job.pick(sweep.batch) RETURNS SETOF jsonb LANGUAGE sql AS $$ SELECT NULL::jsonb WHERE false $$;
GRANT USAGE ON SCHEMA sql_job TO regress_sweep_sql_job;

-- Tries each of some statements; what it says when it refuses.
CREATE FUNCTION sql_job.refuse(VARIADIC statements text[]) RETURNS TABLE (statement text, state text, message text, detail text, hint text)
	LANGUAGE plpgsql
AS $$
BEGIN
	FOREACH statement IN ARRAY statements LOOP
		BEGIN
			EXECUTE statement;
			message := 'not refused';
		EXCEPTION WHEN OTHERS THEN
			GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
		END;
		RETURN NEXT;
	END LOOP;
END
$$;
\pset format unaligned
\pset tuples_only on
\pset recordsep '\n\n'
\pset fieldsep '\n'

-- exactly one of sql, batch_sql and step
SELECT * FROM sql_job.refuse(
	$$SELECT sweep.create_job('refused')$$,
	$$SELECT sweep.create_job('refused', NULL, 'SELECT 1', 'DELETE FROM pg_class WHERE $1 = 1')$$,
	$$SELECT sweep.create_job('refused', NULL, 'SELECT 1', step => 'sql_job.step')$$);

-- what is not executed again and again has no batches
SELECT * FROM sql_job.refuse(VARIADIC ARRAY(SELECT format($$SELECT sweep.create_job('refused', NULL, 'SELECT 1', %s)$$, s) FROM unnest(ARRAY[
	$$max_batches => 1$$, $$max_rows => 1$$, $$stop_after => '1 min'$$, $$cursor => 'drain'$$, $$args => '{"a": 1}'$$, $$pick => 'sql_job.pick'$$,
	$$rescue => 'sql_job.rescue'$$, $$transaction => 'row'$$, $$flush => 'batch'$$, $$buckets => 4$$]) AS s));

-- a statement or a function in the place of another
SELECT * FROM sql_job.refuse(
	$$SELECT sweep.create_job('refused', 'VACUUM sql_job.t')$$,
	$$SELECT sweep.create_job('refused', 'refresh materialized view sql_job.m')$$,
	$$SELECT sweep.create_job('refused', '@daily', 'sql_job.step')$$,
	$$SELECT sweep.create_job('refused', batch_sql => 'VACUUM sql_job.t')$$,
	$$SELECT sweep.create_job('refused', batch_sql => 'DELETE FROM sql_job.t')$$);

-- what there must be
SELECT * FROM sql_job.refuse(
	$$SELECT sweep.create_job('refused', NULL, '')$$,
	$$SELECT sweep.create_job('refused', NULL, ' ; -- nothing ')$$,
	$$SELECT sweep.create_job('refused', NULL, repeat('SELECT 1;', 120000))$$);

-- syntax, and what needs a client: the position is one in the text of the job
\pset recordsep '\n'
SELECT sweep.create_job('refused', NULL, 'VACUUM sql_job.t; VACUM sql_job.u');
SELECT sweep.create_job('refused', NULL, 'SELECT ''ä''; SELECT (1');
SELECT sweep.create_job('refused', NULL, '\copy t FROM x');
SELECT sweep.create_job('refused', NULL, 'SELECT ''ä''; COPY sql_job.t FROM STDIN; SELECT 1');
SELECT sweep.create_job('refused', NULL, 'COPY (SELECT 1) TO STDOUT');
SELECT sweep.create_job('refused', NULL, 'SELECT 1; LISTEN news');

-- a transaction block must end
SELECT sweep.create_job('refused', NULL, 'BEGIN; INSERT INTO sql_job.t VALUES (1)');
SELECT sweep.create_job('refused', NULL, 'BEGIN; COMMIT; SELECT 1; START TRANSACTION');
SELECT sweep.create_job('refused', NULL, 'BEGIN; COMMIT AND CHAIN; SELECT 1');
SELECT sweep.create_job('refused', NULL, 'BEGIN; SAVEPOINT a; ROLLBACK TO a');

-- none of that has left anything; and what is allowed
SELECT count(*) FROM sweep.job WHERE name = 'refused';
BEGIN;
SELECT sweep.create_job('allowed 1', '0 3 * * *', 'VACUUM ANALYZE sql_job.nothing'),
	sweep.create_job('allowed 2', NULL, 'BEGIN; BEGIN; SELECT 1; ROLLBACK TO a; COMMIT AND CHAIN; ROLLBACK; COMMIT'),
	sweep.create_job('allowed 3', NULL, $$BEGIN; PREPARE TRANSACTION 'x'; COPY t FROM '/file'; COPY t TO PROGRAM 'cat';; $$),
	sweep.create_job('allowed 4', NULL, 'CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; SELECT 2; END; DO $$ BEGIN COMMIT; END $$', timeout => '1 h', max_attempts => 3);
SELECT name, sql FROM sweep.jobs WHERE name LIKE 'allowed%' ORDER BY name;
ROLLBACK;

-- altered
SELECT sweep.create_job('once', NULL, 'SELECT 1', run_as => 'regress_sweep_sql_job');
SELECT sweep.create_job('batches', batch_sql => 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0', max_batches => 1);
\pset recordsep '\n\n'
SELECT * FROM sql_job.refuse(
	$$SELECT sweep.alter_job('once', '{"sql": "VACUM"}')$$,
	$$SELECT sweep.alter_job('once', '{"sql": null}')$$,
	$$SELECT sweep.alter_job('once', '{"step": "sql_job.step"}')$$,
	$$SELECT sweep.alter_job('once', '{"max_rows": 7}')$$,
	$$SELECT sweep.alter_job('batches', '{"batch_sql": null, "sql": "SELECT 1"}')$$);
\pset recordsep '\n'
SELECT sweep.alter_job('batches', '{"batch_sql": null, "sql": "SELECT 2", "max_batches": null}');
SELECT sweep.alter_job('once', '{"sql": null, "step": "sql_job.step", "max_rows": 7}');
SELECT sql, step FROM sweep.jobs WHERE name = 'once';
SELECT sweep.alter_job('once', '{"sql": "SELECT 3", "step": null, "max_rows": null}');
SELECT name, sql, batch_sql, step FROM sweep.jobs WHERE name IN ('once', 'batches') ORDER BY name;

-- who may say what is executed as a role
SET ROLE regress_sweep_sql_job;
SELECT sweep.alter_job('batches', '{"sql": "SELECT 4"}');
SELECT sweep.create_job('refused', NULL, 'SELECT 1', run_as => 'pg_monitor');
RESET ROLE;

-- it cannot be part of another statement, nor be rolled back
CALL sweep.run('batches');
SELECT * FROM sweep.preview('batches');
CALL sweep.run('once');
SELECT sweep.start('batches', '{"a": 1}');
SELECT count(*) FROM sweep.runs WHERE job IN ('once', 'batches');

SELECT count(sweep.drop_job(name)) FROM sweep.job WHERE name IN ('once', 'batches');
SET client_min_messages = warning;
DROP SCHEMA sql_job CASCADE;
DROP ROLE regress_sweep_sql_job;
