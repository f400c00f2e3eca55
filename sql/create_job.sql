-- room: job
-- sweep.create_job: what each argument does, and what is refused with which hint.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS create_job CASCADE;
CREATE SCHEMA create_job;
SET timezone = 'UTC';
SET intervalstyle = 'postgres';

CREATE FUNCTION create_job.step(sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT 0::bigint, NULL::jsonb, NULL::jsonb $$;
CREATE FUNCTION create_job."Odd.step"(sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT 0::bigint, NULL::jsonb, NULL::jsonb $$;
CREATE FUNCTION create_job.returns_int(sweep.batch) RETURNS int LANGUAGE sql AS $$ SELECT 0 $$;
CREATE FUNCTION create_job.returns_set(sweep.batch) RETURNS SETOF sweep.progress LANGUAGE sql AS $$ SELECT 0::bigint, NULL::jsonb, NULL::jsonb $$;
CREATE FUNCTION create_job.takes_int(int) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT 0::bigint, NULL::jsonb, NULL::jsonb $$;
CREATE FUNCTION create_job.takes_two(sweep.batch, int) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT 0::bigint, NULL::jsonb, NULL::jsonb $$;
CREATE FUNCTION create_job.twice(sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT 0::bigint, NULL::jsonb, NULL::jsonb $$;
CREATE FUNCTION create_job.twice(int) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT 0::bigint, NULL::jsonb, NULL::jsonb $$;
CREATE PROCEDURE create_job.a_procedure(sweep.batch) LANGUAGE sql AS $$ SELECT 0 $$;
CREATE TABLE create_job.item (id int PRIMARY KEY);
CREATE ROLE regress_sweep_create_job LOGIN;
GRANT USAGE ON SCHEMA create_job TO regress_sweep_create_job;

-- Calls create_job with the arguments given as text; what it says when it refuses.
CREATE FUNCTION create_job.refuse(arguments text) RETURNS TABLE (state text, message text, detail text, hint text)
	LANGUAGE plpgsql
AS $$
DECLARE
	definitions text := (SELECT coalesce(json_agg(j ORDER BY j.name), '[]') FROM sweep.job j);
	others text := (SELECT count(*) FROM sweep.job_state) || ' ' || (SELECT count(*) FROM sweep.run_live);
BEGIN
	BEGIN
		EXECUTE format('SELECT sweep.create_job(%s)', arguments);
		message := 'not refused: ' || arguments;
		DELETE FROM sweep.job_definition WHERE name = 'refused';
	EXCEPTION WHEN OTHERS THEN
		GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT,
			detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	END;
	IF definitions <> (SELECT coalesce(json_agg(j ORDER BY j.name), '[]') FROM sweep.job j)::text
			OR others <> (SELECT count(*) FROM sweep.job_state) || ' ' || (SELECT count(*) FROM sweep.run_live) THEN
		RAISE EXCEPTION 'something was changed by: %', arguments;
	END IF;
	RETURN NEXT;
END
$$;

-- the defaults
BEGIN;
SELECT sweep.create_job('create_job', step => 'create_job.step');
SELECT jsonb_pretty(to_jsonb(j) - 'run_as') AS job, run_as = current_user AS as_caller FROM sweep.job j WHERE name = 'create_job' \gx
SELECT next_due, next_start, paused_at, broken, boot = pg_postmaster_start_time() AS booted
	FROM sweep.job_state WHERE job = 'create_job';
ROLLBACK;

-- every argument arrives in its column
BEGIN;
SELECT sweep.create_job(name => 'create_job', step => 'create_job.step', schedule => '0 0 29 2 *', timezone => 'Europe/Berlin',
	args => '{"a": 1}', flush => 'batch', batch_size => 1000000, max_batches => 2, max_rows => 3000000000, stop_after => '0',
	lock_key => 'shared', timeout => '1 ms', lock_retries => 10000, lock_retry_delay => '1 hour', max_attempts => 25,
	overlap => 'queue_one', catch_up => 'all', jitter => '5 s', cursor => 'drain', paused => true,
	run_as => 'regress_sweep_create_job', description => 'all of it', on_start => '{"another": "15 min"}');
SELECT * FROM sweep.job WHERE name = 'create_job' \gx
-- paused: not due
SELECT next_due, next_start FROM sweep.job_state WHERE job = 'create_job';
ROLLBACK;

-- the order of the arguments, for those who count
BEGIN;
SELECT sweep.create_job('create_job', '@yearly', 'VACUUM ANALYZE create_job.item', NULL, NULL, 'Asia/Tokyo');
SELECT sql, step, batch_sql, schedule, timezone FROM sweep.job WHERE name = 'create_job';
-- not paused: due at the beginning of a year in Tokyo, and no jitter
SELECT next_due AT TIME ZONE 'Asia/Tokyo' = date_trunc('year', next_due AT TIME ZONE 'Asia/Tokyo') AS at_new_year,
	next_due > now() AS ahead, next_start = next_due AS no_jitter
	FROM sweep.job_state WHERE job = 'create_job';
ROLLBACK;

-- the time zone of a schedule is UTC unless named, never that of the session
BEGIN;
SET LOCAL timezone = 'America/New_York';
SELECT sweep.create_job('create_job', step => 'create_job.step', schedule => '@yearly');
SELECT sweep.create_job('create_job unscheduled', step => 'create_job.step');
SELECT j.name, j.timezone, to_char(s.next_due AT TIME ZONE 'UTC', 'MM-DD HH24:MI') AS next_due
	FROM sweep.job j JOIN sweep.job_state s ON s.job = j.name WHERE j.name LIKE 'create\_job%' ORDER BY j.name;
ROLLBACK;

-- jitter delays the start, not the due moment
BEGIN;
SELECT sweep.create_job('create_job', step => 'create_job.step', schedule => '@yearly', jitter => '10 days');
SELECT next_start > next_due AS later, next_start <= next_due + interval '10 days' AS within
	FROM sweep.job_state WHERE job = 'create_job';
ROLLBACK;

-- each NULL is the default or refused, none is taken silently for something else
BEGIN;
SELECT sweep.create_job('create_job', step => 'create_job.step', lock_key => NULL, run_as => NULL, max_batches => NULL, max_rows => NULL,
	stop_after => NULL, timeout => NULL, description => NULL);
SELECT lock_key, run_as = current_user AS as_caller FROM sweep.job WHERE name = 'create_job';
ROLLBACK;

-- what else is a step or a batch_sql
BEGIN;
SELECT sweep.create_job('create_job quoted', step => 'create_job."Odd.step"');
SELECT sweep.create_job('create_job folded', step => 'CREATE_JOB.Step');
SELECT sweep.create_job('create_job overloaded', step => 'create_job.twice');
SELECT sweep.create_job('create_job select', batch_sql =>
	'WITH gone AS (DELETE FROM create_job.item WHERE id IN (SELECT id FROM create_job.item LIMIT $1) RETURNING id) SELECT id FROM gone');
SELECT sweep.create_job('create_job insert', batch_sql => 'INSERT INTO create_job.item SELECT $1');
SELECT sweep.create_job('create_job update', batch_sql => 'UPDATE create_job.item SET id = id WHERE id < $1');
SELECT sweep.create_job('create_job merge', batch_sql =>
	'MERGE INTO create_job.item i USING (SELECT $1 AS id) AS new ON i.id = new.id WHEN MATCHED THEN DELETE');
SELECT sweep.create_job('create_job batch', batch_sql => 'DELETE FROM create_job.item WHERE id < ($2).size AND ($2).as_of < now() AND $1 > 0;');
ROLLBACK;

\pset format unaligned
\pset null '(null)'

-- step and batch_sql: exactly one, and of the right form
SELECT r.* FROM (VALUES
	($$'refused'$$),
	($$'refused', step => 'create_job.step', batch_sql => 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0'$$),
	($$'refused', step => 'step'$$),
	($$'refused', step => 'create_job.stop'$$),
	($$'refused', step => 'nowhere.step'$$),
	($$'refused', step => ''$$),
	($$'refused', step => 'create_job.step('$$),
	($$'refused', step => 'create_job.step(sweep.batch, int)'$$),
	($$'refused', step => 'a.create_job.step'$$),
	($$'refused', step => '"create_job.step"'$$),
	($$'refused', step => 'create_job.step; DROP TABLE create_job.item'$$),
	($$'refused', step => 'create_job.returns_int'$$),
	($$'refused', step => 'create_job.returns_set'$$),
	($$'refused', step => 'create_job.takes_int'$$),
	($$'refused', step => 'create_job.takes_two'$$),
	($$'refused', step => 'create_job.a_procedure'$$),
	($$'refused', step => 'twice'$$)
) AS c (arguments), create_job.refuse(c.arguments) AS r;
SELECT r.* FROM (VALUES
	($$'refused', batch_sql => ''$$),
	($$'refused', batch_sql => 'SELECT 1; SELECT 2'$$),
	($$'refused', batch_sql => 'SELECT now()'$$),
	($$'refused', batch_sql => 'SELECT id FROM create_job.item LIMIT $1'$$),
	($$'refused', batch_sql => 'SELECT FROM create_job.item WHERE $1 > 0 FOR UPDATE'$$),
	($$'refused', batch_sql => 'WITH i AS (SELECT $1 AS id) SELECT id FROM i'$$),
	($$'refused', batch_sql => 'VALUES ($1)'$$),
	($$'refused', batch_sql => 'TABLE create_job.item'$$),
	($$'refused', batch_sql => 'TRUNCATE create_job.item'$$),
	($$'refused', batch_sql => 'COMMIT'$$),
	($$'refused', batch_sql => 'VACUUM'$$),
	($$'refused', batch_sql => 'CALL create_job.a_procedure(NULL)'$$),
	($$'refused', batch_sql => 'DELETE FORM create_job.item'$$),
	($$'refused', batch_sql => 'DELETE FROM item WHERE $1 > 0'$$),
	($$'refused', batch_sql => 'DELETE FROM create_job.nothing WHERE $1 > 0'$$),
	($$'refused', batch_sql => 'DELETE FROM create_job.item WHERE id < $1 + $3'$$),
	($$'refused', batch_sql => 'DELETE FROM create_job.item'$$),
	($$'refused', batch_sql => 'DELETE FROM create_job.item WHERE id = ANY (ARRAY[(SELECT 1), 2]) AND id < ($2).size -- $1'$$),
	($$'refused', batch_sql => 'INSERT INTO create_job.item SELECT 1 ON CONFLICT (id) DO UPDATE SET id = excluded.id'$$),
	($$'refused', batch_sql => 'WITH i AS (SELECT 1 AS id) UPDATE create_job.item AS t SET (id) = (SELECT 2) FROM i WHERE i.id = t.id'$$),
	($$'refused', batch_sql => 'WITH gone AS (DELETE FROM create_job.item RETURNING id) SELECT id FROM gone'$$),
	($$'refused', batch_sql => 'MERGE INTO create_job.item i USING (SELECT 1 AS id) AS new ON i.id = new.id WHEN MATCHED THEN DELETE'$$),
	($$'refused', '0 3 * * *', batch_sql => 'DELETE FROM create_job.item'$$)
) AS c (arguments), create_job.refuse(c.arguments) AS r;

-- the path of the session is not that of the job, for what a batch_sql names
SET search_path = create_job;
SELECT r.* FROM create_job.refuse($$'refused', batch_sql => 'DELETE FROM item WHERE $1 > 0'$$) AS r;
RESET search_path;

-- NULL where there must be a value
SELECT r.* FROM (VALUES
	($$NULL, step => 'create_job.step'$$),
	($$'refused', step => 'create_job.step', args => NULL$$),
	($$'refused', step => 'create_job.step', batch_size => NULL$$),
	($$'refused', step => 'create_job.step', lock_retries => NULL$$),
	($$'refused', step => 'create_job.step', lock_retry_delay => NULL$$),
	($$'refused', step => 'create_job.step', row_retries => NULL$$),
	($$'refused', step => 'create_job.step', transaction => NULL$$),
	($$'refused', step => 'create_job.step', max_attempts => NULL$$),
	($$'refused', step => 'create_job.step', overlap => NULL$$),
	($$'refused', step => 'create_job.step', catch_up => NULL$$),
	($$'refused', step => 'create_job.step', jitter => NULL$$),
	($$'refused', step => 'create_job.step', cursor => NULL$$),
	($$'refused', step => 'create_job.step', paused => NULL$$)
) AS c (arguments), create_job.refuse(c.arguments) AS r;

-- values and words out of their range
SELECT r.* FROM (VALUES
	($$'', step => 'create_job.step'$$),
	($$repeat('n', 64), step => 'create_job.step'$$),
	($$repeat('ä', 32), step => 'create_job.step'$$),
	($$E'refused\n', step => 'create_job.step'$$),
	($$'refused', step => 'create_job.step', args => '[]'$$),
	($$'refused', step => 'create_job.step', args => 'null'$$),
	($$'refused', step => 'create_job.step', args => '{"as_of": "yesterday or so"}'$$),
	($$'refused', step => 'create_job.step', args => '{"as_of": "infinity"}'$$),
	($$'refused', step => 'create_job.step', args => '{"as_of": "300000-01-01"}'$$),
	($$'refused', step => 'create_job.step', args => '{"as_of": 20260101}'$$),
	($$'refused', step => 'create_job.step', flush => 'never'$$),
	($$'refused', step => 'create_job.step', batch_size => 0$$),
	($$'refused', step => 'create_job.step', batch_size => 1000001$$),
	($$'refused', step => 'create_job.step', max_batches => 0$$),
	($$'refused', step => 'create_job.step', max_rows => 0$$),
	($$'refused', step => 'create_job.step', stop_after => '-1 ms'$$),
	($$'refused', step => 'create_job.step', lock_key => ''$$),
	($$'refused', step => 'create_job.step', timeout => '0'$$),
	($$'refused', step => 'create_job.step', stop_after => '1 h', timeout => '59 min'$$),
	($$'refused', step => 'create_job.step', pause => '0'$$),
	($$'refused', step => 'create_job.step', pause => '-1 ms'$$),
	($$'refused', step => 'create_job.step', pause => '1 day 1 us'$$),
	($$'refused', step => 'create_job.step', lock_retries => -1$$),
	($$'refused', step => 'create_job.step', lock_retries => 10001$$),
	($$'refused', step => 'create_job.step', lock_retry_delay => '999 us'$$),
	($$'refused', step => 'create_job.step', lock_retry_delay => '61 min'$$),
	($$'refused', step => 'create_job.step', row_retries => -1$$),
	($$'refused', step => 'create_job.step', row_retries => 101$$),
	($$'refused', step => 'create_job.step', transaction => 'item'$$),
	($$'refused', step => 'create_job.step', on_start => '[]'$$),
	($$'refused', step => 'create_job.step', on_start => '{"another": "-1 s"}'$$),
	($$'refused', step => 'create_job.step', on_start => '{"another": "soon"}'$$),
	($$'refused', step => 'create_job.step', on_start => '{"another": null}'$$),
	($$'refused', step => 'create_job.step', max_attempts => 0$$),
	($$'refused', step => 'create_job.step', max_attempts => 26$$),
	($$'refused', step => 'create_job.step', overlap => 'Skip'$$),
	($$'refused', step => 'create_job.step', catch_up => 'never'$$),
	($$'refused', step => 'create_job.step', jitter => '-1 s'$$),
	($$'refused', step => 'create_job.step', cursor => 'Always'$$)
) AS c (arguments), create_job.refuse(c.arguments) AS r;

-- times
SELECT r.* FROM (VALUES
	($$'refused', step => 'create_job.step', schedule => 'at noon'$$),
	($$'refused', step => 'create_job.step', schedule => '61 * * * *'$$),
	($$'refused', step => 'create_job.step', schedule => ''$$),
	($$'refused', step => 'create_job.step', schedule => '@hourly', timezone => 'Europe/Atlantis'$$),
	($$'refused', step => 'create_job.step', schedule => '@hourly', timezone => ''$$),
	($$'refused', step => 'create_job.step', timezone => 'Europe/Atlantis'$$),
	($$'refused', step => 'create_job.step', schedule => '@hourly', timezone => NULL$$),
	($$'refused', step => 'create_job.step', schedule => 'every 0 seconds'$$),
	($$'refused', step => 'create_job.step', run_as => 4294967295::regrole$$)
) AS c (arguments), create_job.refuse(c.arguments) AS r;
-- the hint is PostgreSQL's own, and differs between versions
SELECT r.state, r.message FROM create_job.refuse($$'refused', step => 'create_job.step', nonsense => 1$$) AS r;

-- a name is taken once
BEGIN;
SELECT sweep.create_job('create_job', step => 'create_job.step');
SELECT r.* FROM create_job.refuse($$'create_job', batch_sql => 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0'$$) AS r;
SELECT step, batch_sql FROM sweep.job WHERE name = 'create_job';
-- names differ by case and blanks
SELECT sweep.create_job('Create_Job', step => 'create_job.step'), sweep.create_job(' create_job ', step => 'create_job.step'),
	sweep.create_job(repeat('n', 63), step => 'create_job.step');
ROLLBACK;

-- a step is a step for its role only if that may execute it
REVOKE EXECUTE ON FUNCTION create_job.step(sweep.batch) FROM PUBLIC;
REVOKE USAGE ON SCHEMA create_job FROM regress_sweep_create_job;
SELECT r.* FROM create_job.refuse($$'refused', step => 'create_job.step', run_as => 'regress_sweep_create_job'$$) AS r;
GRANT EXECUTE ON FUNCTION create_job.step(sweep.batch) TO regress_sweep_create_job;
SELECT r.* FROM create_job.refuse($$'refused', step => 'create_job.step', run_as => 'regress_sweep_create_job'$$) AS r;
GRANT USAGE ON SCHEMA create_job TO regress_sweep_create_job;
BEGIN;
SELECT sweep.create_job('create_job', step => 'create_job.step', run_as => 'regress_sweep_create_job');
SELECT run_as FROM sweep.job WHERE name = 'create_job';
ROLLBACK;
-- before PostgreSQL 17 a background worker cannot connect as a role without LOGIN
ALTER ROLE regress_sweep_create_job NOLOGIN;
DO $$
BEGIN
	IF current_setting('server_version_num')::int >= 170000 THEN
		PERFORM sweep.create_job('refused', step => 'create_job.step', run_as => 'regress_sweep_create_job');
		PERFORM sweep.drop_job('refused');
	ELSIF NOT EXISTS (SELECT FROM create_job.refuse($r$'refused', step => 'create_job.step', run_as => 'regress_sweep_create_job'$r$) AS r
			WHERE r.message LIKE 'job "refused" could not run: role "%" is not permitted to log in') THEN
		RAISE EXCEPTION 'a role without LOGIN was taken';
	END IF;
END
$$;

DROP SCHEMA create_job CASCADE;
DROP ROLE regress_sweep_create_job;
