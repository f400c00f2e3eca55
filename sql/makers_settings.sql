-- room: makers
-- The makers take every setting that their jobs can have, so that replace => true of a maker, in a migration that is run again, keeps them.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
SET intervalstyle = 'postgres';
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS makers_settings CASCADE;
CREATE SCHEMA makers_settings;
CREATE ROLE regress_sweep_makers LOGIN IN ROLE sweep_user;
GRANT USAGE, CREATE ON SCHEMA makers_settings TO regress_sweep_makers;
CREATE TABLE makers_settings.event (id int PRIMARY KEY, at timestamptz NOT NULL, kind text);
CREATE INDEX ON makers_settings.event (at);
CREATE TABLE makers_settings.part (at timestamptz) PARTITION BY RANGE (at);
ALTER TABLE makers_settings.part OWNER TO regress_sweep_makers;
CREATE TABLE makers_settings.event_copy (LIKE makers_settings.event INCLUDING ALL);
GRANT SELECT, INSERT, UPDATE, DELETE ON makers_settings.event, makers_settings.event_copy TO regress_sweep_makers;
SELECT sweep.create_queue('makers_settings'), sweep.grant_queue('makers_settings', 'regress_sweep_makers', '{send}');

-- each argument of create_job, but those that say what is executed, how it is divided and where it goes on
CREATE TEMP VIEW argument AS
	SELECT p.proname::text AS maker, p.proargnames[a.n] AS name, a.type::regtype::text AS type
	FROM pg_proc p, unnest(p.proargtypes::oid[]) WITH ORDINALITY AS a (type, n) WHERE p.pronamespace = 'sweep'::regnamespace AND p.proname LIKE 'create\_%';
SELECT m.maker, a.name, a.type FROM argument a CROSS JOIN (VALUES ('create_retention'), ('create_backfill'), ('create_copy'), ('create_partitions')) AS m (maker)
	WHERE a.maker = 'create_job' AND a.name NOT IN ('sql', 'batch_sql', 'step', 'args', 'pick', 'rescue', 'transaction', 'row_retries', 'cursor',
		'buckets', 'bucket_store', 'bucket_recovery', 'bucket_key', 'buckets_function')
		AND NOT EXISTS (SELECT FROM argument o WHERE o.maker = m.maker AND o.name = a.name AND o.type = a.type) ORDER BY m.maker, a.name;

-- each of them arrives, and a second time changes nothing
-- Used for all makers. create_partitions refuses a schedule that pauses for longer than partitions are made ahead, hence 1000 days.
CREATE TEMP TABLE given AS SELECT $$schedule => '@yearly', timezone => 'Asia/Tokyo', batch_size => 2, max_batches => 3, max_rows => 4, stop_after => '5 s', timeout => '6 s', pause => '15 ms',
	settings => '{"work_mem": "8MB"}', lock_key => 'makers_key', lock_retries => 7, lock_retry_delay => '8 ms', max_attempts => 9, overlap => 'queue_one', catch_up => 'all', jitter => '10 s',
	estimate => 'SELECT 1', on_start => '{"another": "1 min"}', on_success => '{"a second": "2 min"}', on_failure => '{"a third": "3 min"}', alert_queue => 'makers_settings', priority => 15,
	flush => 'batch', run_as => 'regress_sweep_makers', description => 'eleven', paused => true, replace => true$$::text AS arguments;
CREATE TEMP TABLE maker AS SELECT * FROM (VALUES ('retention', $$'makers_settings.event', 'at', '1 year'$$), ('backfill', $$'makers_settings.event', 'kind = 1', 'kind IS NULL'$$),
	('copy', $$'makers_settings.event', 'makers_settings.event_copy'$$), ('partitions', $$'makers_settings.part', '1 day', 1000$$)) AS m (word, arguments);
SELECT format('SELECT sweep.create_%s(%s, name => %L, %s)', m.word, m.arguments, 'makers_settings ' || m.word, g.arguments) FROM maker m, given g ORDER BY m.word \gexec
SELECT format('SELECT sweep.create_%s(%s, name => %L, paused => true, schedule => NULL%s)', m.word, m.arguments, 'makers_plain ' || m.word, CASE m.word WHEN 'partitions' THEN ', run_as => ''regress_sweep_makers''' ELSE '' END) FROM maker m, given g ORDER BY m.word \gexec
SELECT jsonb_pretty(to_jsonb(j) - ARRAY(SELECT d.key FROM sweep.job o, jsonb_each(to_jsonb(o)) AS d WHERE o.name = 'makers_plain retention' AND d.value = to_jsonb(j) -> d.key)) AS differs
	FROM sweep.job j WHERE j.name = 'makers_settings retention';
-- those of the others as well
SELECT DISTINCT to_jsonb(j) - ARRAY['name', 'step', 'args', 'cursor', 'bucket_key'] = to_jsonb(r) - ARRAY['name', 'step', 'args', 'cursor', 'bucket_key'] AS same
	FROM sweep.job j, sweep.job r WHERE j.name LIKE 'makers_settings %' AND r.name = 'makers_settings retention';
SELECT j.name, j.xmin::text AS version INTO TEMP before FROM sweep.job_definition j WHERE j.name LIKE 'makers_settings %';
SELECT format('SELECT sweep.create_%s(%s, name => %L, %s)', m.word, m.arguments, 'makers_settings ' || m.word, g.arguments) FROM maker m, given g ORDER BY m.word \gexec
SELECT j.name, j.xmin::text = b.version AS untouched FROM sweep.job_definition j JOIN before b USING (name) ORDER BY j.name;
-- what is left out is as create_job has it
SELECT j.name, d.key, d.value FROM sweep.job j, jsonb_each(to_jsonb(j)) AS d
	WHERE j.name LIKE 'makers_plain %' AND d.key NOT IN ('name', 'step', 'args', 'cursor', 'run_as', 'lock_key', 'bucket_key', 'timezone') AND d.value <> 'null' AND d.value IS DISTINCT FROM sweep._job_defaults() -> d.key
	ORDER BY j.name, d.key;

-- the texts mean what they will mean in a run
SELECT sweep.create_backfill('makers_settings.event', 'kind = lower(kind)', 'wanted(kind)', name => 'makers_path', paused => true);
CREATE FUNCTION makers_settings.wanted(text) RETURNS bool LANGUAGE sql IMMUTABLE AS $$ SELECT true $$;
SELECT sweep.create_backfill('makers_settings.event', 'kind = lower(kind)', 'wanted(kind)', name => 'makers_path', settings => '{"search_path": "makers_settings"}', paused => true);
SELECT sweep.create_retention('makers_settings.event', 'at', '1 year', condition => 'wanted(kind)', name => 'makers_path 2', settings => '{"search_path": "makers_settings"}', paused => true);
SELECT sweep.create_copy('makers_settings.event', 'makers_settings.event_copy', condition => 'wanted(kind)', name => 'makers_path 3', settings => '{"search_path": "makers_settings"}', paused => true);
INSERT INTO makers_settings.event SELECT n, now(), 'A' FROM generate_series(1, 10) AS n;
CALL sweep.run('makers_path 3');
SELECT count(*) FROM makers_settings.event_copy;
-- what is wrong
SELECT sweep.create_backfill('makers_settings.event', 'kind = 1', 'true', name => 'makers_wrong', settings => '[1]', paused => true);
SELECT sweep.create_backfill('makers_settings.event', 'kind = 1', 'true', name => 'makers_wrong', settings => '{"no_such": 1}', paused => true);
SELECT sweep.create_backfill('makers_settings.event', 'kind = 1', 'true', name => 'makers_wrong', overlap => 'never', paused => true);
SELECT sweep.create_backfill('makers_settings.event', 'kind = 1', 'true', name => 'makers_wrong', on_success => '{"a": "soon"}', paused => true);
SELECT count(*) FROM sweep.job WHERE name = 'makers_wrong';

SELECT count(sweep.drop_job(name)) FROM sweep.job WHERE name LIKE 'makers\_%';
DELETE FROM sweep.run_live WHERE job LIKE 'makers\_%';
DELETE FROM sweep.run_history WHERE job LIKE 'makers\_%';
SELECT sweep.drop_queue('makers_settings');
REVOKE sweep_client FROM regress_sweep_makers;
DROP SCHEMA makers_settings CASCADE;
DROP ROLE regress_sweep_makers;
