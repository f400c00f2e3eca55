-- room: job
-- A setting that a job of its kind has not is refused, by create_job and alter_job alike, and named with the kind.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS job_kinds CASCADE;
CREATE SCHEMA job_kinds;
CREATE TABLE job_kinds.event (id int PRIMARY KEY, at timestamptz NOT NULL, kind int);
CREATE INDEX ON job_kinds.event (at);
CREATE TABLE job_kinds.event_copy (LIKE job_kinds.event INCLUDING ALL);
CREATE FUNCTION job_kinds.step(sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT 0::bigint, NULL::jsonb, NULL::jsonb $$;
CREATE FUNCTION job_kinds.pick(sweep.batch) RETURNS SETOF jsonb LANGUAGE sql AS $$ SELECT NULL::jsonb WHERE false $$;
CREATE FUNCTION job_kinds.count(sweep.batch) RETURNS int LANGUAGE sql AS $$ SELECT 1 $$;
SELECT sweep.create_job('kinds sql', NULL, 'SELECT 1');
SELECT sweep.create_job('kinds batch_sql', batch_sql => 'DELETE FROM job_kinds.event WHERE id <= $1');
SELECT sweep.create_job('kinds step', step => 'job_kinds.step');
SELECT sweep.create_job('kinds items', step => 'job_kinds.step', pick => 'job_kinds.pick');
SELECT sweep.create_retention('job_kinds.event', 'at', '1 year', name => 'kinds retention', paused => true);
SELECT sweep.create_backfill('job_kinds.event', 'kind = 1', 'kind IS NULL', name => 'kinds backfill', paused => true);
SELECT sweep.create_copy('job_kinds.event', 'job_kinds.event_copy', name => 'kinds copy', paused => true);
CREATE TABLE job_kinds.part (at date) PARTITION BY RANGE (at);
SELECT sweep.create_partitions('job_kinds.part', '1 day', name => 'kinds partitions', paused => true);
CREATE FUNCTION job_kinds.try(job text, changes jsonb) RETURNS TABLE (message text, hint text) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM sweep.alter_job(job, changes);
	-- rolls it back
	RAISE SQLSTATE 'JK000';
EXCEPTION WHEN SQLSTATE 'JK000' THEN
	message := 'altered';
	RETURN NEXT;
WHEN invalid_parameter_value OR undefined_function THEN
	GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
	RETURN NEXT;
END
$$;
-- each kind and each setting that not all have
SELECT j.name, c.key, t.message, t.hint FROM sweep.job j
	CROSS JOIN (VALUES (1, 'batch_size', '7'::jsonb), (2, 'row_retries', '7'), (3, 'rescue', '"job_kinds.no_such"'), (4, 'transaction', '"row"'), (5, 'pick', '"job_kinds.pick"'),
		(6, 'buckets', '3'), (7, 'buckets_function', '"job_kinds.count"'), (8, 'bucket_store', '"redis"'), (9, 'bucket_recovery', '"7 min"'), (10, 'max_rows', '3'), (11, 'cursor', '"always"')) AS c (n, key, value)
	CROSS JOIN LATERAL job_kinds.try(j.name, jsonb_build_object(c.key, c.value)) AS t
	WHERE j.name LIKE 'kinds%' AND t.message NOT LIKE 'function%' AND t.message <> 'altered' ORDER BY j.name, c.n;
-- values that they have when they are left out say nothing, so that a definition can be taken from another job
SELECT sweep.alter_job('kinds sql', to_jsonb(j) - 'name') FROM sweep.job j WHERE j.name = 'kinds sql';
SELECT sweep.alter_job('kinds sql', '{"batch_size": 1000, "row_retries": 3, "transaction": "batch", "pick": null}');
-- the kind is the one that the job will be of
SELECT sweep.alter_job('kinds sql', '{"sql": null, "step": "job_kinds.step", "batch_size": 7}');
SELECT sweep.alter_job('kinds step', '{"step": null, "sql": "SELECT 1", "batch_size": 7}');
SELECT step, sql, batch_size FROM sweep.job WHERE name IN ('kinds sql', 'kinds step') ORDER BY name;
-- create_job refuses the same
SELECT sweep.create_job('kinds new', NULL, 'SELECT 1', batch_size => 7);
SELECT sweep.create_job('kinds new', batch_sql => 'DELETE FROM job_kinds.event WHERE id <= $1', row_retries => 7);
SELECT sweep.create_job('kinds new', step => 'job_kinds.step', row_retries => 7);
SELECT count(*) FROM sweep.job WHERE name = 'kinds new';

-- ---------------------------------------------------------------- dropped if it exists
SELECT sweep.drop_job('kinds no such');
SET client_min_messages = notice;
SELECT sweep.drop_job('kinds no such', if_exists => true);
SELECT sweep.drop_job('kinds copy', if_exists => true);
SELECT sweep.drop_job('kinds copy', if_exists => true);
SELECT sweep.drop_job('kinds copy', if_exists => false);
SELECT sweep.drop_queue('kinds', if_exists => true);
SELECT sweep.create_queue('kinds');
SELECT sweep.drop_consumer('kinds', if_exists => true), sweep.drop_consumer('kinds_no_such', if_exists => true);
SELECT sweep.drop_queue('kinds', if_exists => true);
SELECT sweep.drop_queue('kinds');
-- rights are asked for as ever
SET client_min_messages = warning;
CREATE ROLE regress_sweep_kinds LOGIN IN ROLE sweep_user;
SET ROLE regress_sweep_kinds;
SELECT sweep.drop_job('kinds sql', if_exists => true);
RESET ROLE;

SELECT count(sweep.drop_job(name)) FROM sweep.job WHERE name LIKE 'kinds%';
DROP SCHEMA job_kinds CASCADE;
DROP ROLE regress_sweep_kinds;
