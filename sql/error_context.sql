-- room: base
-- What an error says beside its message: the CONTEXT of whoever called, and nothing of the engine's own functions.
\set SHOW_CONTEXT always
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS error_context CASCADE;
CREATE SCHEMA error_context;

-- what the dispatcher calls, and what C asks of SQL
SELECT sweep.create_job('error_context', step => 'error_context.missing');
SELECT sweep.create_job('error_context', batch_sql => 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0', batch_size => 0);
SELECT sweep.create_job('error_context', batch_sql => 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0', schedule => 'never');
SELECT sweep.create_job('error_context', batch_sql => 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0', on_start => '{"x": "soon"}');
SELECT sweep.alter_job('error context', '{"batch_size": "many"}');
SELECT sweep.start('error context');
SELECT sweep.create_queue('error-context');
SELECT sweep.grant_queue('error_context', 'pg_monitor', '{send}');
SELECT sweep.send('error_context', '1');
SELECT sweep.claim('error_context');
SELECT * FROM sweep.dead('error_context');
SELECT * FROM sweep.done('error_context');
CALL sweep.wait_for_message('error_context');
CALL sweep.run('error context');
CALL sweep.wait(-1);
SELECT * FROM sweep.preview('error context');
-- the place of a mistake in the text of a batch_sql is told
SELECT sweep.create_job('error_context', batch_sql => 'SELECT 1 FROM a AS b c');
SELECT sweep.create_job('error_context', batch_sql => 'DELETE FROM pg_catalog.pg_class WHERE missing < $1');

-- so is where in code of its user the analysis of it has failed
CREATE FUNCTION error_context.check_it(int) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION 'as asked';
END
$$;
CREATE DOMAIN error_context.checked AS int CHECK (error_context.check_it(VALUE));
CREATE TYPE error_context.pair AS (a error_context.checked);
SELECT sweep.create_job('error_context', batch_sql => 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE (''(1)''::error_context.pair) IS NULL AND $1 < 0');

-- an internal error of such code is told as it is, whatever types have changed meanwhile
CREATE FUNCTION error_context.fail_internally() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	CREATE TYPE error_context.fresh AS (a int);
	RAISE EXCEPTION 'an internal error' USING ERRCODE = 'internal_error';
END
$$;
CREATE DOMAIN error_context.failing AS int CHECK (error_context.fail_internally());
CREATE TYPE error_context.failing_pair AS (a error_context.failing);
\set SHOW_CONTEXT never
SELECT sweep.create_job('error_context', batch_sql => 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE (''(1)''::error_context.failing_pair) IS NULL AND $1 < 0');
\set SHOW_CONTEXT always

-- what it says meanwhile has its own lines and no others, whatever code it gives
CREATE FUNCTION error_context.talk() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	RAISE NOTICE 'a notice';
	RAISE WARNING 'a warning';
	RAISE NOTICE 'a notice with the code of an error' USING ERRCODE = 'division_by_zero';
	RAISE WARNING 'a warning with the code of an error' USING ERRCODE = 'division_by_zero';
	RETURN true;
END
$$;
CREATE FUNCTION error_context.fail_as_warning() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION 'an error with the code of a warning' USING ERRCODE = '01000';
END
$$;
CREATE DOMAIN error_context.talking AS int CHECK (error_context.talk());
CREATE TYPE error_context.talking_pair AS (a error_context.talking);
CREATE DOMAIN error_context.warning AS int CHECK (error_context.fail_as_warning());
CREATE TYPE error_context.warning_pair AS (a error_context.warning);
SELECT last_value AS before FROM sweep.run_live_run_id_seq \gset
SELECT setval(pg_get_serial_sequence('sweep.run_live', 'run_id'), 2200000, false);
SET client_min_messages = notice;
SELECT sweep.create_job('error_context', batch_sql => 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE (''(1)''::error_context.talking_pair) IS NULL AND $1 < 0');
SELECT sweep.alter_job('error_context', '{"batch_sql": "UPDATE pg_catalog.pg_settings SET setting = setting WHERE (''(2)''::error_context.talking_pair) IS NULL AND $1 < 0"}');
SELECT sweep.create_job('error_context_2', batch_sql => 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE (''(1)''::error_context.warning_pair) IS NULL AND $1 < 0');
-- so it is in a batch: of a statement, a step, a pick function, a rescue function and a buckets_function
CREATE FUNCTION error_context.talking_step(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
BEGIN
	RAISE NOTICE 'a notice of the step';
	RAISE WARNING 'a warning of the step';
	IF b.args ? 'fail' THEN
		RAISE EXCEPTION 'an error of the step';
	END IF;
	RETURN ROW(0, NULL, NULL)::sweep.progress;
END
$$;
CREATE FUNCTION error_context.talking_pick(b sweep.batch) RETURNS SETOF jsonb LANGUAGE plpgsql AS $$
BEGIN
	RAISE NOTICE 'a notice of pick';
	RAISE WARNING 'a warning of pick';
	IF b.args ? 'fail_pick' THEN
		RAISE EXCEPTION 'an error of pick';
	END IF;
	RETURN QUERY SELECT '1'::jsonb WHERE b.cursor IS NULL;
END
$$;
CREATE FUNCTION error_context.talking_rescue(b sweep.batch, error jsonb) RETURNS sweep.progress LANGUAGE plpgsql AS $$
BEGIN
	RAISE NOTICE 'a notice of rescue';
	RETURN ROW(1, NULL, NULL)::sweep.progress;
END
$$;
CREATE FUNCTION error_context.talking_count(b sweep.batch) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	RAISE NOTICE 'a notice of buckets_function';
	RAISE WARNING 'a warning of buckets_function';
	IF b.args ? 'fail_count' THEN
		RAISE EXCEPTION 'an error of buckets_function';
	END IF;
	RETURN 1;
END
$$;
SELECT sweep.create_job('error_context_step', step => 'error_context.talking_step');
SELECT sweep.create_job('error_context_items', pick => 'error_context.talking_pick', step => 'error_context.talking_step', rescue => 'error_context.talking_rescue');
SELECT sweep.create_job('error_context_shares', step => 'error_context.talking_step', buckets => 1, buckets_function => 'error_context.talking_count');
SELECT rows FROM sweep.preview('error_context');
CALL sweep.run('error_context');
SELECT rows FROM sweep.preview('error_context_step');
CALL sweep.run('error_context_step');
CALL sweep.run('error_context_step', '{"fail": true}');
SELECT rows FROM sweep.preview('error_context_step', '{"fail": true}');
SELECT rows FROM sweep.preview('error_context_items');
CALL sweep.run('error_context_items', '{"fail": true}');
CALL sweep.run('error_context_items', '{"fail_pick": true}');
SELECT rows FROM sweep.preview('error_context_items', '{"fail_pick": true}');
CALL sweep.run('error_context_shares', '{"fail": true}');
CALL sweep.run('error_context_shares', '{"fail_count": true}');
SELECT r.job, r.args, r.error FROM sweep.runs r WHERE r.job LIKE 'error_context%' AND r.error IS NOT NULL ORDER BY r.run_id;
SET client_min_messages = warning;
SELECT count(sweep.drop_job(name)) FROM sweep.job WHERE name LIKE 'error_context%';
-- (other tests look for the last runs, by their numbers)
DELETE FROM sweep.run_live WHERE job LIKE 'error_context%';
DELETE FROM sweep.run_history WHERE job LIKE 'error_context%';
SELECT setval(pg_get_serial_sequence('sweep.run_live', 'run_id'), :before) IS NOT NULL AS reset;

-- whoever calls from a function of his own is told where in it
CREATE FUNCTION error_context.sends() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM sweep.send('error_context', '1');
END
$$;
CREATE FUNCTION error_context.drops() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM sweep.drop_job('error context');
END
$$;
SELECT error_context.sends();
SELECT error_context.drops();
-- and can catch it as any other
DO $$
DECLARE
	message text;
	hint text;
	context text;
BEGIN
	PERFORM sweep.drop_job('error context');
EXCEPTION WHEN undefined_object THEN
	GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT, context = PG_EXCEPTION_CONTEXT;
	IF (message, hint) IS DISTINCT FROM ('job "error context" does not exist', 'The view sweep.jobs lists the jobs of this database.') OR context LIKE '%sweep.\_%' THEN
		RAISE EXCEPTION 'message "%", hint "%", context "%"', message, hint, context;
	END IF;
END
$$;
-- in a transaction that goes on, identity and settings are as before
SET search_path = error_context;
BEGIN;
SAVEPOINT before;
SELECT sweep.drop_job('error context');
ROLLBACK TO before;
SELECT current_setting('search_path') AS search_path, current_user = session_user AS same_user, count(*) AS jobs FROM sweep.jobs WHERE name = 'error context';
COMMIT;
RESET search_path;

-- positions: schedule and sql; a function or a statement where something else belongs
\set SHOW_CONTEXT errors
SELECT sweep.create_job('error_context', '0 3 * * *', batch_sql => 'DELETE FROM error_context.item');
SELECT sweep.create_job('error_context', '0 3 * * *', batch_sql => 'DELETE FROM error_context.missing WHERE id < $1');
SELECT sweep.create_job('error_context', '0 3 * * *');
SELECT sweep.create_job('error_context', '0 3 * * *', 'error_context.step');
CREATE FUNCTION error_context.step(sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT 0::bigint, NULL::jsonb, NULL::jsonb $$;
SELECT sweep.create_job('error_context', '0 3 * * *', 'error_context.step');
SELECT sweep.create_job('error_context', 'error_context.step');
SELECT sweep.create_job('error_context', 'DELETE FROM error_context.item');
-- as the hint says
SELECT sweep.create_job('error_context', schedule => '0 3 * * *', step => 'error_context.step');
SELECT sweep.alter_job('error_context', '{"step": "30 seconds"}');
SELECT step, schedule FROM sweep.job WHERE name = 'error_context';
SELECT sweep.drop_job('error_context');
DELETE FROM sweep.run_live WHERE job LIKE 'error\_context%';
DELETE FROM sweep.run_history WHERE job LIKE 'error\_context%';
DROP SCHEMA error_context CASCADE;
