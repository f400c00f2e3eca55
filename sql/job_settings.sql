-- room: job
-- The settings of a job: the columns of sweep.job, the arguments of sweep.create_job, the keys of
-- sweep.alter_job and doc/reference.md name the same ones. A new setting comes under this by itself.
SET client_min_messages = warning;
SET intervalstyle = 'postgres';
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS job_settings CASCADE;
CREATE SCHEMA job_settings;
CREATE FUNCTION job_settings.step(sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT 0::bigint, NULL::jsonb, NULL::jsonb $$;
CREATE FUNCTION job_settings.pick(sweep.batch) RETURNS SETOF jsonb LANGUAGE sql AS $$ SELECT NULL::jsonb WHERE false $$;
CREATE FUNCTION job_settings.rescue(sweep.batch, jsonb) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT 0::bigint, NULL::jsonb, NULL::jsonb $$;
CREATE FUNCTION job_settings.count(sweep.batch) RETURNS int LANGUAGE sql AS $$ SELECT 1 $$;
CREATE ROLE regress_sweep_job_settings LOGIN;

CREATE TEMP VIEW setting AS
	SELECT a.attname AS name, format_type(a.atttypid, a.atttypmod) AS type FROM pg_attribute a
	WHERE a.attrelid = 'sweep.job_definition'::regclass AND a.attnum > 0 AND NOT a.attisdropped;
CREATE TEMP VIEW argument AS
	SELECT p.proargnames[a.n] AS name, a.type::regtype::text AS type
	FROM pg_proc p, unnest(p.proargtypes::oid[]) WITH ORDINALITY AS a (type, n) WHERE p.oid = 'sweep.create_job'::regproc;
\getenv directory PG_ABS_SRCDIR
\set reference `cat :'directory'/doc/reference.md`
CREATE TEMP TABLE documented AS
	SELECT m[1] AS name, m[2] AS type
	FROM regexp_matches(substring(:'reference' FROM '\n### sweep\.create_job(.*?)\n###'), '\n\| `(\w+)` \| (\w+) \|', 'g') AS m;

-- something is looked at
SELECT (SELECT count(*) > 20 FROM setting) AS settings, (SELECT count(*) > 20 FROM argument) AS arguments, (SELECT count(*) > 20 FROM documented) AS documented;
-- each column is an argument of its type, and each argument a column, but these: a role is stored by its name, paused is a state, replace is a way
SELECT name, s.type AS of_column, a.type AS of_argument FROM setting s FULL JOIN argument a USING (name) WHERE s.type IS DISTINCT FROM a.type ORDER BY name;
-- each argument is documented with its type, and nothing else is
SELECT name, a.type AS of_argument, CASE d.type WHEN 'int' THEN 'integer' ELSE d.type END AS documented
	FROM argument a FULL JOIN documented d USING (name) WHERE a.type IS DISTINCT FROM CASE d.type WHEN 'int' THEN 'integer' ELSE d.type END;

-- each argument arrives in its column
SELECT sweep.create_queue('settings'), sweep.grant_queue('settings', 'regress_sweep_job_settings', '{send}');
SELECT sweep.create_job('settings', step => 'job_settings.step');
SELECT sweep.create_job('settings 1', '@yearly', batch_sql => 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0', timezone => 'Asia/Tokyo', args => '{"a": 1}', batch_size => 2, max_batches => 3, max_rows => 4,
	stop_after => '5 s', timeout => '6 s', pause => '15 ms', settings => '{"work_mem": "8MB"}', lock_key => 'settings_key', lock_retries => 7, lock_retry_delay => '8 ms', max_attempts => 9,
	overlap => 'queue_one', catch_up => 'all', jitter => '10 s', cursor => 'drain', estimate => 'SELECT 1', on_start => '{"another": "1 min"}', on_success => '{"a second": "2 min"}', on_failure => '{"a third": "3 min"}', alert_queue => 'settings', priority => 15, flush => 'batch', description => 'eleven',
	run_as => 'regress_sweep_job_settings');
SELECT sweep.create_job('settings 2', step => 'job_settings.step', pick => 'job_settings.pick', rescue => 'job_settings.rescue', transaction => 'row',
	row_retries => 12, buckets => 13, bucket_store => 'redis', bucket_recovery => '14 s', bucket_key => 'settings_bucket', buckets_function => 'job_settings.count');
SELECT sweep.create_job('settings 3', NULL, 'VACUUM');
SELECT to_jsonb(j) - ARRAY(SELECT d.key FROM sweep.job o, jsonb_each(to_jsonb(o)) AS d WHERE o.name = 'settings' AND d.value = to_jsonb(j) -> d.key) AS differs
	FROM sweep.job j WHERE j.name LIKE 'settings _' ORDER BY j.name;
-- what has its default in both of them, and so is not tested
SELECT s.name FROM setting s WHERE NOT EXISTS (SELECT FROM sweep.job j JOIN sweep.job o ON o.name = 'settings'
	WHERE j.name LIKE 'settings _' AND to_jsonb(j) -> s.name <> to_jsonb(o) -> s.name);

-- each but the name is a key of sweep.alter_job, and arrives as well
CREATE FUNCTION job_settings.keys() RETURNS SETOF text LANGUAGE plpgsql
AS $$
DECLARE
	hint text;
BEGIN
	PERFORM sweep.alter_job('settings', '{"no such key": 1}');
EXCEPTION WHEN invalid_parameter_value THEN
	GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
	RETURN QUERY SELECT regexp_split_to_table(substring(hint FROM '^The keys are (.*)\.$'), ', ');
END
$$;
SELECT a.name AS argument, k.key FROM argument a FULL JOIN job_settings.keys() AS k (key) ON k.key = a.name WHERE k.key IS NULL OR a.name IS NULL;
SELECT sweep.create_job('settings altered', step => 'job_settings.step');
SELECT sweep.alter_job('settings altered', to_jsonb(j) - 'name') FROM sweep.job j WHERE j.name = 'settings 1';
SELECT d.key FROM sweep.job o, sweep.job n, jsonb_each(to_jsonb(o)) AS d
	WHERE o.name = 'settings 1' AND n.name = 'settings altered' AND d.key <> 'name' AND d.value <> to_jsonb(n) -> d.key;
SELECT sweep.alter_job('settings altered', to_jsonb(j) - 'name') FROM sweep.job j WHERE j.name = 'settings 2';
SELECT d.key FROM sweep.job o, sweep.job n, jsonb_each(to_jsonb(o)) AS d
	WHERE o.name = 'settings 2' AND n.name = 'settings altered' AND d.key <> 'name' AND d.value <> to_jsonb(n) -> d.key;
SELECT sweep.alter_job('settings altered', to_jsonb(j) - 'name') FROM sweep.job j WHERE j.name = 'settings 3';
SELECT d.key FROM sweep.job o, sweep.job n, jsonb_each(to_jsonb(o)) AS d
	WHERE o.name = 'settings 3' AND n.name = 'settings altered' AND d.key <> 'name' AND d.value <> to_jsonb(n) -> d.key;

SELECT count(sweep.drop_job(name)) FROM sweep.job WHERE name LIKE 'settings%';
SELECT sweep.drop_queue('settings');
REVOKE sweep_client FROM regress_sweep_job_settings;
DROP SCHEMA job_settings CASCADE;
DROP ROLE regress_sweep_job_settings;
