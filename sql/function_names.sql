-- room: api
-- step, pick, rescue and buckets_function of a job, as they may be written and as they are stored.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS function_names, function_names_2, "Function Names" CASCADE;
DROP ROLE IF EXISTS regress_function_names;
CREATE SCHEMA function_names;
CREATE SCHEMA function_names_2;
CREATE SCHEMA "Function Names";
CREATE ROLE regress_function_names LOGIN IN ROLE sweep_user;
CREATE SCHEMA regress_function_names AUTHORIZATION regress_function_names;
GRANT USAGE ON SCHEMA function_names TO regress_function_names;
CREATE FUNCTION function_names.purge_step(sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT 0::bigint, NULL::jsonb, NULL::jsonb $$;
CREATE FUNCTION function_names.pick(sweep.batch) RETURNS SETOF jsonb LANGUAGE sql AS $$ SELECT '1'::jsonb LIMIT 0 $$;
CREATE FUNCTION function_names.rescue(sweep.batch, jsonb) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT 0::bigint, NULL::jsonb, NULL::jsonb $$;
CREATE FUNCTION function_names.count(sweep.batch) RETURNS int LANGUAGE sql AS 'SELECT 1';
-- One of another form, of the same name, does not count.
CREATE FUNCTION function_names_2.purge_step(int) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT 0::bigint, NULL::jsonb, NULL::jsonb $$;
CREATE FUNCTION "Function Names"."Odd (name)"(sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT 0::bigint, NULL::jsonb, NULL::jsonb $$;
CREATE FUNCTION "Function Names".purge_step(sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT 0::bigint, NULL::jsonb, NULL::jsonb $$;
CREATE FUNCTION pg_temp.purge_step(sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT 0::bigint, NULL::jsonb, NULL::jsonb $$;
CREATE PROCEDURE function_names.try(step text, pick text DEFAULT NULL, rescue text DEFAULT NULL, buckets_function text DEFAULT NULL) LANGUAGE plpgsql AS $$
DECLARE
	hint text;
BEGIN
	PERFORM sweep.create_job('function_names', step => step, pick => pick, rescue => rescue, buckets => CASE WHEN buckets_function IS NOT NULL THEN 2 END, buckets_function => buckets_function);
	RAISE INFO '%: %', concat_ws(', ', step, pick, rescue, buckets_function), (SELECT concat_ws(', ', j.step, j.pick, j.rescue, j.buckets_function) FROM sweep.job j WHERE name = 'function_names');
	PERFORM sweep.drop_job('function_names');
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
	RAISE INFO '%: % (%) %', step, SQLERRM, SQLSTATE, hint;
END
$$;
SELECT setval(pg_get_serial_sequence('sweep.run_live', 'run_id'), 6800000, false);
RESET client_min_messages;

SET search_path = nowhere, function_names_2, function_names, "Function Names", public;
CALL function_names.try('purge_step');
CALL function_names.try('purge_step()');
CALL function_names.try('purge_step(sweep.batch)');
CALL function_names.try(' Purge_Step ( sweep . batch ) ');
CALL function_names.try('function_names.purge_step()');
CALL function_names.try('"Odd (name)"');
CALL function_names.try('"Odd (name)"()');
CALL function_names.try('"Function Names"."Odd (name)"');
CALL function_names.try('purge_step', 'pick()', 'rescue(sweep.batch, jsonb)', 'count()');
CALL function_names.try('purge_step', 'pick(sweep.batch)', 'rescue(sweep.batch,pg_catalog.jsonb)', 'count(sweep.batch)');
-- the first one in the path; a temporary one never
SET search_path = pg_temp, "Function Names", function_names;
CALL function_names.try('purge_step');
SET search_path = pg_temp;
CALL function_names.try('purge_step');
-- what is not meant, or not there
SET search_path = function_names;
CALL function_names.try('purge_step(int)');
CALL function_names.try('purge_step(sweep.batch, jsonb)');
CALL function_names.try('Purge"Step');
CALL function_names.try('purge_step(');
CALL function_names.try('()');
CALL function_names.try('');
CALL function_names.try('a.b.purge_step');
CALL function_names.try('pick');
CALL function_names.try('purge_step', 'rescue');
SET search_path = public;
CALL function_names.try('purge_step');
SELECT sweep.create_job('function_names', 'function_names.purge_step()');
SET search_path = function_names;
SELECT sweep.create_job('function_names', 'purge_step');

-- alter_job looks as well, and in the path of whoever calls it
SELECT sweep.create_job('function_names', step => 'purge_step');
SET search_path = "Function Names";
SELECT sweep.alter_job('function_names', '{"batch_size": 7}');
SELECT step FROM sweep.job WHERE name = 'function_names';
SELECT sweep.alter_job('function_names', '{"step": "purge_step()"}');
SELECT step FROM sweep.job WHERE name = 'function_names';
-- so does a function that has a path of its own
CREATE FUNCTION function_names.deploy() RETURNS void LANGUAGE sql SET search_path = function_names
	AS $$ SELECT sweep.create_job('function_names', step => 'purge_step', replace => true) $$;
SELECT function_names.deploy();
SELECT step FROM sweep.job WHERE name = 'function_names';
CALL sweep.run('function_names');

-- as the role of the job would look: its own schema for "$user", and only where it may
SET search_path = "$user", "Function Names", function_names;
SELECT sweep.create_job('function_names of a role', step => 'purge_step', run_as => 'regress_function_names');
SELECT step FROM sweep.job WHERE name = 'function_names of a role';
CREATE FUNCTION regress_function_names.purge_step(sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT 0::bigint, NULL::jsonb, NULL::jsonb $$;
SELECT sweep.alter_job('function_names of a role', '{"step": "purge_step"}');
SELECT step FROM sweep.job WHERE name = 'function_names of a role';

SET client_min_messages = warning;
SELECT count(sweep.drop_job(name)) FROM sweep.job WHERE name LIKE 'function_names%';
DELETE FROM sweep.run_live WHERE job LIKE 'function_names%';
DELETE FROM sweep.run_history WHERE job LIKE 'function_names%';
DROP SCHEMA function_names, function_names_2, "Function Names", regress_function_names CASCADE;
DROP ROLE regress_function_names;
