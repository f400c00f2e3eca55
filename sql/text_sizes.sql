-- room: api
-- What the scheduler parses in each tick is short, and as pg_sweep has written it: refused before it is parsed when it is long.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS text_sizes, "text Sizes" CASCADE;
CREATE SCHEMA text_sizes;
CREATE SCHEMA "text Sizes";
SET search_path = text_sizes, public;
CREATE FUNCTION text_sizes.step(sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT 0::bigint, NULL::jsonb, NULL::jsonb $$;
CREATE FUNCTION text_sizes.pick(sweep.batch) RETURNS SETOF jsonb LANGUAGE sql AS $$ SELECT NULL::jsonb WHERE false $$;
CREATE FUNCTION "text Sizes"."Step"(sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT 0::bigint, NULL::jsonb, NULL::jsonb $$;
CREATE FUNCTION text_sizes.handle(sweep.message) RETURNS void LANGUAGE sql AS '';
-- How a statement ends, without what is long in it.
CREATE FUNCTION text_sizes.try(statement text, argument text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	hint text;
BEGIN
	EXECUTE statement USING argument;
	RETURN 'done';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
	RETURN concat_ws(' | ', SQLSTATE, left(SQLERRM, 100), CASE WHEN length(SQLERRM) > 100 THEN 'of ' || length(SQLERRM) END, hint);
END
$$;

-- 20 MB of blanks before a name, and in place of it
SELECT a, text_sizes.try(format('SELECT sweep.create_job(%s %I => $1)', CASE a WHEN 'name' THEN '' ELSE '''text_sizes'', ' END
			|| CASE a WHEN 'step' THEN '' ELSE 'step => ''text_sizes.step'', ' END, a), repeat(' ', 20000000) || 'text_sizes.step')
	FROM unnest('{name,schedule,step,timezone,pick,rescue,lock_key,alert_queue,bucket_key,buckets_function,estimate,description}'::text[]) AS a;
SELECT sweep.create_job('text_sizes', step => 'text_sizes.step');
SELECT k, text_sizes.try(format('SELECT sweep.alter_job(''text_sizes'', jsonb_build_object(%L, $1))', k), repeat(' ', 20000000))
	FROM unnest('{schedule,step,timezone,pick,rescue,lock_key,alert_queue,bucket_key,buckets_function,estimate,description}'::text[]) AS k;
SELECT text_sizes.try($$SELECT sweep.create_retention('text_sizes.t', 'at', '1 day', timezone => $1)$$, repeat(' ', 20000000));
SELECT text_sizes.try($$SELECT sweep.create_queue('text_sizes', backoff => $1)$$, repeat(' ', 20000000) || '1 min');
SELECT sweep.create_queue('text_sizes');
SELECT text_sizes.try($$SELECT sweep.create_consumer('text_sizes', $1)$$, repeat(' ', 20000000) || 'text_sizes.handle');

-- nor can a superuser store it without them
SELECT c, text_sizes.try(format('UPDATE sweep.job_definition SET %I = $1 WHERE name = ''text_sizes''', c), repeat(' ', 2000))
	FROM unnest('{name,schedule,step,timezone,pick,rescue,lock_key,alert_queue,bucket_key,buckets_function,run_as}'::text[]) AS c;
SELECT sweep.create_consumer('text_sizes', 'text_sizes.handle');
SELECT text_sizes.try('UPDATE sweep.consumer SET handler = $1', repeat(' ', 2000));

-- names are stored as the catalogue has them
SELECT sweep.alter_job('text_sizes', jsonb_build_object('step', n, 'pick', '   pick '))
	FROM (VALUES (E' "text Sizes"  .\n"Step" ( sweep.batch )  '), ('   STEP'), ('"text_sizes" . "step"')) AS v (n);
SELECT step, pick FROM sweep.job WHERE name = 'text_sizes';
SELECT sweep.alter_job('text_sizes', jsonb_build_object('step', E' "text Sizes"  .\n"Step" ( sweep.batch )  ', 'pick', NULL));
SELECT step FROM sweep.job WHERE name = 'text_sizes';
SELECT sweep.drop_consumer('text_sizes');
SELECT sweep.create_consumer('text_sizes', '  "text_sizes" .   HANDLE  ');
SELECT handler FROM sweep.consumers WHERE queue = 'text_sizes';

-- time zones are those that the server has files of, as they are written there: a process keeps each that it has looked up
SELECT z, text_sizes.try($$SELECT sweep.alter_job('text_sizes', jsonb_build_object('timezone', $1))$$, z)
	FROM unnest(ARRAY['europe/BERLIN', 'utc', 'Etc/GMT-1', 'UTC-1', 'x5', '<+0530>-5:30', 'EST5EDT4,M3.2.0,M11.1.0', 'Nowhere', 'GMT']) AS z;
SELECT text_sizes.try($$SELECT sweep.create_job('text_sizes 2', step => 'text_sizes.step', timezone => $1)$$, 'x-5');
SELECT sweep.create_job('text_sizes 3', step => 'text_sizes.step', timezone => 'asia/tokyo');
SELECT timezone FROM sweep.job WHERE name = 'text_sizes 3';

SELECT sweep.drop_job(name) FROM sweep.job WHERE name LIKE 'text_sizes%';
SELECT sweep.drop_queue('text_sizes');
DROP SCHEMA text_sizes, "text Sizes" CASCADE;
