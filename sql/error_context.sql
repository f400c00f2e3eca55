-- room: base
-- What an error says beside its message: the CONTEXT of whoever called, and nothing of the engine's own functions.
\set SHOW_CONTEXT always
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS error_context CASCADE;
CREATE SCHEMA error_context;

-- what the dispatcher calls, and what C asks of SQL
SELECT sweep.create_job('error_context', 'error_context.missing');
SELECT sweep.create_job('error_context', batch_sql => 'SELECT 1', batch_size => 0);
SELECT sweep.create_job('error_context', batch_sql => 'SELECT 1', schedule => 'never');
SELECT sweep.create_job('error_context', batch_sql => 'SELECT 1', children => '{"x": "soon"}');
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
SELECT sweep.create_job('error_context', batch_sql => 'SELECT missing FROM pg_catalog.pg_class');

-- so is where in code of its user the analysis of it has failed
CREATE FUNCTION error_context.check_it(int) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION 'as asked';
END
$$;
CREATE DOMAIN error_context.checked AS int CHECK (error_context.check_it(VALUE));
CREATE TYPE error_context.pair AS (a error_context.checked);
SELECT sweep.create_job('error_context', batch_sql => 'SELECT ''(1)''::error_context.pair');

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

-- positions: a schedule or a statement where the step belongs
\set SHOW_CONTEXT errors
SELECT sweep.create_job('error_context', '0 3 * * *', 'DELETE FROM error_context.item');
SELECT sweep.create_job('error_context', '@daily', 'SELECT ''' || repeat('x', 60) || '''');
SELECT sweep.create_job('error_context', 'every 5 minutes');
SELECT sweep.create_job('error_context', '0 3 * * *', 'error_context.step');
CREATE FUNCTION error_context.step(sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT 0::bigint, NULL::jsonb, NULL::jsonb $$;
SELECT sweep.create_job('error_context', '0 3 * * *', 'error_context.step');
SELECT sweep.create_job('error_context', 'DELETE FROM error_context.item');
-- as the hint says
SELECT sweep.create_job('error_context', schedule => '0 3 * * *', step => 'error_context.step');
SELECT sweep.alter_job('error_context', '{"step": "30 seconds"}');
SELECT step, schedule FROM sweep.job WHERE name = 'error_context';
SELECT sweep.drop_job('error_context');
DROP SCHEMA error_context CASCADE;
