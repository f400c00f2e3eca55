-- room: engine
-- sweep.start(at => ...): when a run is due that is started for a moment.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
SET timezone = 'UTC';
SET intervalstyle = 'postgres';
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS start_at CASCADE;
CREATE SCHEMA start_at;
CREATE FUNCTION start_at.step(sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT 0::bigint, NULL::jsonb, NULL::jsonb $$;
RESET client_min_messages;
SELECT sweep.create_job('start_at', step => 'start_at.step');
CREATE VIEW start_at.due AS SELECT CASE WHEN due_at - clock_timestamp() BETWEEN '-1 min' AND '1 s' THEN 'now' ELSE round(extract(epoch FROM due_at - clock_timestamp()) / 3600) || ' h' END AS due
	FROM sweep.run_live WHERE job = 'start_at' AND trigger = 'manual' ORDER BY run_id DESC LIMIT 1;
BEGIN;
SELECT sweep.start('start_at', at => clock_timestamp() + '5 hours') IS NOT NULL AS started;
SELECT * FROM start_at.due;
SELECT sweep.start('start_at', at => (clock_timestamp() + '99 years')::date) IS NOT NULL AS started;
-- the past is now
SELECT sweep.start('start_at', at => '2001-01-01') IS NOT NULL AS started;
SELECT * FROM start_at.due;
SELECT sweep.start('start_at', at => '4712-01-01 BC') IS NOT NULL AS started;
SELECT * FROM start_at.due;
-- as without
SELECT sweep.start('start_at', at => NULL, delay => '2 hours') IS NOT NULL AS started;
SELECT * FROM start_at.due;
SELECT sweep.start('start_at', '{}', '0', clock_timestamp() + '3 hours') IS NOT NULL AS started;
SELECT * FROM start_at.due;
ROLLBACK;
-- both, or too far away
SELECT sweep.start('start_at', at => '2001-01-01 00:00:00Z', delay => '1 s');
SELECT sweep.start('start_at', at => '2999-01-01 00:00:00Z');
SELECT sweep.start('start_at', at => 'infinity');
SELECT sweep.start('start_at', at => '-infinity');
SELECT sweep.start('start_at', at => '2001-01-01 00:00:00Z', delay => NULL);
SELECT count(*) FROM sweep.run_live WHERE job = 'start_at';
SET client_min_messages = warning;
SELECT sweep.drop_job('start_at');
DROP SCHEMA start_at CASCADE;
