-- room: job
-- sweep.alter_job: every key, what is refused, and when the next moment moves.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS alter_job CASCADE;
CREATE SCHEMA alter_job;
CREATE ROLE regress_sweep_alter_job LOGIN;
CREATE ROLE regress_sweep_alter_job_other LOGIN;
GRANT USAGE ON SCHEMA alter_job TO regress_sweep_alter_job, regress_sweep_alter_job_other;
SET timezone = 'UTC';
SET intervalstyle = 'postgres';
\pset null '(null)'

CREATE FUNCTION alter_job.step(sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT 0::bigint, NULL::jsonb, NULL::jsonb $$;
CREATE FUNCTION alter_job.other(sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT 0::bigint, NULL::jsonb, NULL::jsonb $$;

SELECT sweep.create_job('alter_job', step => 'alter_job.step', paused => true, run_as => 'regress_sweep_alter_job');

-- Applies the changes, and says what they changed.
CREATE FUNCTION alter_job.change(changes jsonb) RETURNS TABLE (state text, result text, hint text) LANGUAGE plpgsql AS $$
DECLARE
	old jsonb := (SELECT to_jsonb(j) FROM sweep.job j WHERE j.name = 'alter_job');
	new jsonb;
BEGIN
	BEGIN
		PERFORM sweep.alter_job('alter_job', changes);
	EXCEPTION WHEN OTHERS THEN
		GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, result = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
	END;
	new := (SELECT to_jsonb(j) FROM sweep.job j WHERE j.name = 'alter_job');
	IF state IS NULL THEN
		result := (SELECT string_agg(format('%s: %s -> %s', k, old -> k, new -> k), ', ' ORDER BY k)
			FROM jsonb_object_keys(new) AS k WHERE new -> k <> old -> k);
	ELSIF new <> old THEN
		RAISE EXCEPTION 'something was changed by: %', changes;
	END IF;
	RETURN NEXT;
END
$$;

\pset format unaligned
-- every key, one by one; paused comes below
SELECT c.* FROM (VALUES
	('{"step": "alter_job.other"}'::jsonb),
	('{"step": null, "batch_sql": "UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0"}'),
	('{"batch_sql": "UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0 - 1"}'),
	('{"step": "alter_job.step", "batch_sql": null}'),
	('{"schedule": "0 0 29 2 *"}'),
	('{"timezone": "Europe/Berlin"}'),
	('{"schedule": null}'),
	('{"schedule": "@yearly", "timezone": "Asia/Tokyo"}'),
	('{"args": {"a": 1}}'),
	('{"args": {"b": 2}}'),
	('{"flush": "batch"}'),
	('{"batch_size": 10}'),
	('{"max_batches": 1}'),
	('{"max_rows": 10000000000}'),
	('{"stop_after": "1 min"}'),
	('{"lock_key": "shared"}'),
	('{"lock_key": null}'),
	('{"timeout": "1 h"}'),
	('{"lock_retries": 2}'),
	('{"lock_retry_delay": "2 ms"}'),
	('{"row_retries": 5}'),
	('{"max_attempts": 3}'),
	('{"overlap": "queue_one"}'),
	('{"catch_up": "skip"}'),
	('{"jitter": "1 s"}'),
	('{"cursor": "drain"}'),
	('{"cursor": "always"}'),
	('{"run_as": "regress_sweep_alter_job_other"}'),
	('{"description": "a word"}'),
	('{"on_start": {"another": "15 min"}}'),
	('{"max_batches": null, "max_rows": null, "stop_after": null, "timeout": null, "description": null}'),
	('{}')
) AS v (changes), alter_job.change(v.changes) AS c;

-- refused, and nothing changed
SELECT c.* FROM (VALUES
	(NULL::jsonb),
	('[]'),
	('null'),
	('"batch_size"'),
	('{"name": "other"}'),
	('{"batchsize": 1}'),
	('{"batch_size": 5, "nonsense": 1}'),
	('{"BATCH_SIZE": 5}'),
	('{"batch_size": 0}'),
	('{"batch_size": null}'),
	('{"batch_size": "many"}'),
	('{"batch_size": 3000000000}'),
	('{"stop_after": "soon"}'),
	('{"stop_after": "2 min", "timeout": "1 min"}'),
	('{"args": null}'),
	('{"args": []}'),
	('{"run_as": "nobody at all"}'),
	('{"run_as": null}'),
	('{"step": null}'),
	('{"batch_sql": "UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0"}'),
	('{"step": "alter_job.missing"}'),
	('{"batch_size": 7, "schedule": "at noon"}'),
	('{"timezone": null}'),
	('{"timezone": "Europe/Atlantis"}'),
	('{"overlap": "never"}'),
	('{"paused": null}'),
	('{"paused": "perhaps"}'),
	('{"cursor": "never"}'),
	('{"enabled": true}')
) AS v (changes), alter_job.change(v.changes) AS c;
SELECT sweep.alter_job('no such job', '{"batch_size": 5}');
SELECT sweep.alter_job(NULL, '{"batch_size": 5}');
\pset format aligned

-- the next moment follows the schedule, its zone and the end of a pause, and nothing else moves it
BEGIN;
SELECT sweep.alter_job('alter_job', '{"schedule": "@yearly", "timezone": "UTC", "jitter": "0", "paused": false}');
SELECT to_char(next_due, 'MM-DD HH24:MI') AS next_due, next_due > now() AS ahead, next_start = next_due AS no_jitter
	FROM sweep.job_state WHERE job = 'alter_job';
SELECT sweep.alter_job('alter_job', '{"timezone": "Asia/Tokyo"}');
SELECT to_char(next_due, 'MM-DD HH24:MI') AS next_due FROM sweep.job_state WHERE job = 'alter_job';
SELECT sweep.alter_job('alter_job', '{"schedule": "30 12 24 12 *"}');
SELECT to_char(next_due, 'MM-DD HH24:MI') AS next_due FROM sweep.job_state WHERE job = 'alter_job';
UPDATE sweep.job_state SET next_due = '2030-01-01 00:00:00Z', next_start = '2030-01-01 00:00:01Z' WHERE job = 'alter_job';
SELECT sweep.alter_job('alter_job', '{"batch_size": 11, "args": {}, "overlap": "skip", "catch_up": "all"}');
SELECT next_due, next_start FROM sweep.job_state WHERE job = 'alter_job';
SELECT sweep.alter_job('alter_job', '{"paused": true}');
SELECT next_due, next_start FROM sweep.job_state WHERE job = 'alter_job';
SELECT sweep.alter_job('alter_job', '{"paused": false}');
SELECT to_char(next_due, 'MM-DD HH24:MI') AS next_due FROM sweep.job_state WHERE job = 'alter_job';
SELECT sweep.alter_job('alter_job', '{"schedule": null}');
SELECT next_due, next_start FROM sweep.job_state WHERE job = 'alter_job';
-- a paused job stays paused; it is the same pause, however it was begun and is ended
SELECT sweep.pause('alter_job');
SELECT sweep.alter_job('alter_job', '{"schedule": "@yearly"}');
SELECT next_due, next_start, paused_at IS NOT NULL AS paused FROM sweep.job_state WHERE job = 'alter_job';
ROLLBACK;

-- a broken definition can be mended key by key: what is not touched is not checked again
DROP FUNCTION alter_job.step(sweep.batch);
SELECT sweep.alter_job('alter_job', '{"description": "its step is gone"}');
SELECT sweep.alter_job('alter_job', '{"step": "alter_job.other"}');

SELECT sweep.drop_job('alter_job');
DROP SCHEMA alter_job CASCADE;
DROP ROLE regress_sweep_alter_job, regress_sweep_alter_job_other;
