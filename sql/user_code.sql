-- room: base
-- Code of a user that runs inside the engine: it is that user, whatever it sets is gone afterwards, and nothing
-- of the engine is looked up where the user can put something. What runs in workers is in test/t/identity.pl.
\set SHOW_CONTEXT never
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
CREATE ROLE regress_sweep_intruder LOGIN IN ROLE sweep_user;
CREATE SCHEMA intruder AUTHORIZATION regress_sweep_intruder;
SELECT current_user AS superuser, current_database() AS database \gset

-- Every call of a trap is written down, with whom it was made as; as a superuser it would make one of the intruder.
\c - regress_sweep_intruder
SET client_min_messages = warning;
CREATE TABLE intruder.seen (what text, as_whom text);
GRANT ALL ON intruder.seen TO PUBLIC;
CREATE TABLE intruder.note (what text);
GRANT ALL ON intruder.note TO PUBLIC;
CREATE FUNCTION intruder.caught(what text) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
	INSERT INTO intruder.seen VALUES (what, current_user);
	BEGIN
		EXECUTE 'ALTER ROLE regress_sweep_intruder SUPERUSER';
	EXCEPTION WHEN insufficient_privilege THEN NULL;
	END;
	RETURN true;
END
$$;
GRANT USAGE ON SCHEMA intruder TO PUBLIC;
-- A trap for every name the engine uses or could use: relations, functions that it could mean, operators.
CREATE FUNCTION intruder.set_traps(target text) RETURNS TABLE (kind text, enough boolean) LANGUAGE plpgsql SET search_path = pg_catalog SET check_function_bodies = off AS $$
DECLARE
	o record;
	traps int := 0;
BEGIN
	FOR o IN SELECT c.relname, string_agg(quote_ident(a.attname), ', ') AS columns
			FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND a.atttypid <> 'anyarray'::regtype
			WHERE c.relnamespace = 'pg_catalog'::regnamespace
				AND c.relname IN ('pg_database', 'pg_proc', 'pg_namespace', 'pg_roles', 'pg_attribute', 'pg_class', 'pg_locks', 'pg_prepared_xacts')
			GROUP BY c.relname LOOP
		EXECUTE format('CREATE VIEW %s.%I AS SELECT %s FROM pg_catalog.%I WHERE intruder.caught(%L)', target, o.relname, o.columns, o.relname, o.relname);
		traps := traps + 1;
	END LOOP;
	kind := 'relations'; enough := traps > 5; traps := 0;
	RETURN NEXT;
	FOR o IN SELECT p.proname, pg_get_function_identity_arguments(p.oid) AS arguments, format_type(p.prorettype, NULL) AS result
			FROM pg_proc p WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind = 'f' AND NOT p.proretset
				AND p.proname IN ('now', 'clock_timestamp', 'random', 'format', 'current_setting', 'current_database', 'has_function_privilege',
					'has_schema_privilege', 'has_database_privilege', 'pg_has_role', 'pg_get_userbyid', 'pg_postmaster_start_time', 'jsonb_typeof',
					'to_jsonb', 'parse_ident', 'set_config', 'md5', 'octet_length', 'isfinite', 'array_to_string', 'jsonb_build_object', 'split_part',
					'concat_ws', 'left', 'right', 'length', 'floor', 'round', 'regexp_replace', 'replace', 'jsonb_populate_record', 'notify', 'pg_backend_pid')
				AND pg_get_function_arguments(p.oid) !~ 'internal|cstring|"any"'
			UNION ALL VALUES ('format', 'text, VARIADIC text[]', 'text'), ('concat_ws', 'text, VARIADIC text[]', 'text') LOOP
		EXECUTE format('CREATE FUNCTION %s.%I(%s) RETURNS %s LANGUAGE plpgsql AS $f$ BEGIN PERFORM intruder.caught(%L); RETURN NULL; END $f$',
			target, o.proname, o.arguments, o.result, o.proname);
		traps := traps + 1;
	END LOOP;
	kind := 'functions'; enough := traps > 40; traps := 0;
	RETURN NEXT;
	FOR o IN SELECT p.oprname, p.oprleft::regtype AS l, p.oprright::regtype AS r, p.oprresult::regtype AS result, p.oid
			FROM pg_operator p WHERE p.oprnamespace = 'pg_catalog'::regnamespace AND p.oprleft <> 0
				AND p.oprname IN ('=', '<>', '<', '<=', '||', '->', '->>', '+', '-', '~')
				AND format_type(p.oprleft, NULL) IN ('text', 'oid', 'name', 'bigint', 'integer', 'jsonb', 'interval', 'timestamp with time zone')
				AND format_type(p.oprright, NULL) IN ('text', 'oid', 'name', 'bigint', 'integer', 'jsonb', 'interval', 'timestamp with time zone') LOOP
		EXECUTE format('CREATE FUNCTION %s.operator_%s(%s, %s) RETURNS %s LANGUAGE plpgsql AS $f$ BEGIN PERFORM intruder.caught(%L); RETURN NULL; END $f$',
			target, o.oid, o.l, o.r, o.result, o.oprname);
		EXECUTE format('CREATE OPERATOR %s.%s (FUNCTION = %s.operator_%s, LEFTARG = %s, RIGHTARG = %s)', target, o.oprname, target, o.oid, o.l, o.r);
		traps := traps + 1;
	END LOOP;
	kind := 'operators'; enough := traps > 20;
	RETURN NEXT;
END
$$;
SELECT * FROM intruder.set_traps('intruder');
-- Settings in which all of them are found, and in which literals, intervals and moments are read otherwise.
-- PostgreSQL 19 has only standard literals: one of their settings cannot be turned off, the other is gone.
CREATE FUNCTION intruder.mislead(path text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_catalog.set_config(s.name, s.value, false) FROM (VALUES ('search_path', path), ('standard_conforming_strings', 'off'),
		('escape_string_warning', 'off'), ('array_nulls', 'off'), ('transform_null_equals', 'on'), ('DateStyle', 'German, DMY'),
		('IntervalStyle', 'sql_standard'), ('TimeZone', 'Asia/Kathmandu'), ('check_function_bodies', 'off'),
		('plpgsql.extra_errors', 'all'), ('plan_cache_mode', 'force_custom_plan'), ('quote_all_identifiers', 'on'),
		('enable_indexscan', 'off'), ('lock_timeout', '1h')) AS s (name, value)
		WHERE s.name OPERATOR(pg_catalog.!~) 'string' OR pg_catalog.current_setting('server_version_num')::int OPERATOR(pg_catalog.<) 190000;
	RETURN true;
END
$$;
-- What a restricted operation refuses: nothing of this may stay.
CREATE FUNCTION intruder.stay(path text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	act text;
BEGIN
	FOREACH act IN ARRAY ARRAY['SET ROLE NONE', 'SET SESSION AUTHORIZATION DEFAULT', 'RESET ROLE', 'CREATE TEMP TABLE run_live (run_id bigint)',
			'PREPARE stays AS SELECT 1', 'DECLARE stays CURSOR WITH HOLD FOR SELECT 1', 'LISTEN stays', 'DISCARD PLANS'] LOOP
		BEGIN
			EXECUTE act;
			INSERT INTO intruder.note VALUES ('done: ' || act);
		EXCEPTION WHEN OTHERS THEN
			INSERT INTO intruder.note VALUES ('refused: ' || act);
		END;
	END LOOP;
	RETURN intruder.mislead(path);
END
$$;
CREATE DOMAIN intruder.checked AS text CHECK (intruder.stay('intruder, pg_temp, pg_catalog'));
CREATE TYPE intruder.composite AS (v intruder.checked);
CREATE TYPE intruder.stretch AS RANGE (subtype = intruder.checked);
-- all settings of a session as one text: the same before and after
CREATE FUNCTION intruder.settings() RETURNS text LANGUAGE sql SET search_path = pg_catalog AS $$
	SELECT string_agg(s.name || '=' || s.setting, ' ' ORDER BY s.name) FROM pg_settings s WHERE s.name NOT IN ('search_path', 'transaction_isolation')
$$;
SELECT intruder.settings() AS settings, current_setting('search_path') AS path \gset
\set unchanged 'SELECT md5(intruder.settings()) = md5(:\'settings\') AND current_setting(\'search_path\') = :\'path\' AS unchanged'

-- ---------------------------------------------------------------- analysis of a batch_sql
-- a schema where one may create: composite, array, range and domain
SELECT sweep.create_job('intruder composite', batch_sql => $$UPDATE pg_catalog.pg_settings SET setting = setting WHERE ('(a)'::intruder.composite) IS NULL AND $1 < 0$$);
:unchanged;
SELECT sweep.create_job('intruder array', batch_sql => $$UPDATE pg_catalog.pg_settings SET setting = setting WHERE ('{a}'::intruder.checked[]) IS NULL AND $1 < 0$$);
:unchanged;
SELECT sweep.create_job('intruder range', batch_sql => $$UPDATE pg_catalog.pg_settings SET setting = setting WHERE ('[a,b]'::intruder.stretch) IS NULL AND $1 < 0$$);
:unchanged;
SELECT sweep.create_job('intruder', batch_sql => 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0');
SELECT sweep.alter_job('intruder', jsonb_build_object('batch_sql', $$UPDATE pg_catalog.pg_settings SET setting = setting WHERE ('(b)'::intruder.composite) IS NULL AND $1 < 0$$, 'timezone', 'UTC', 'schedule', '@daily'));
:unchanged;
SELECT timezone FROM sweep.job WHERE name = 'intruder';
SELECT DISTINCT what FROM intruder.note ORDER BY what;
-- as nobody with CREATE on any schema: what is temporary will do
CREATE FUNCTION pg_temp.mislead() RETURNS boolean LANGUAGE sql AS $$ SELECT intruder.mislead('pg_temp, pg_catalog') $$;
CREATE DOMAIN pg_temp.checked AS text CHECK (pg_temp.mislead());
CREATE TYPE pg_temp.composite AS (v pg_temp.checked);
SELECT * FROM intruder.set_traps('pg_temp');
SELECT sweep.create_job('intruder temp', batch_sql => $$UPDATE pg_catalog.pg_settings SET setting = setting WHERE ('(a)'::pg_temp.composite) IS NULL AND $1 < 0$$);
:unchanged;
SELECT sweep.alter_job('intruder temp', jsonb_build_object('batch_sql', $$UPDATE pg_catalog.pg_settings SET setting = setting WHERE ('(b)'::pg_temp.composite) IS NULL AND $1 < 0$$));
:unchanged;
-- the same of an estimate
SELECT sweep.create_job('intruder estimate', batch_sql => 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0', estimate => $$SELECT count(*) FROM (SELECT '(a)'::intruder.composite) AS c$$);
:unchanged;
SELECT sweep.alter_job('intruder estimate', jsonb_build_object('estimate', $$SELECT count(*) FROM (SELECT '(b)'::pg_temp.composite) AS c$$));
:unchanged;
-- an error in it changes nothing either, nor does one that is caught
CREATE FUNCTION intruder.fail() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM intruder.mislead('intruder, pg_catalog'); RAISE undefined_table USING MESSAGE = 'no such thing'; END $$;
CREATE DOMAIN intruder.failing AS text CHECK (intruder.fail());
CREATE TYPE intruder.failing_composite AS (v intruder.failing);
SELECT sweep.create_job('intruder fails', batch_sql => $$UPDATE pg_catalog.pg_settings SET setting = setting WHERE ('(a)'::intruder.failing_composite) IS NULL AND $1 < 0$$);
:unchanged;
DO $$ BEGIN
	PERFORM sweep.create_job('intruder fails', batch_sql => $s$UPDATE pg_catalog.pg_settings SET setting = setting WHERE ('(a)'::intruder.failing_composite) IS NULL AND $1 < 0$s$);
EXCEPTION WHEN undefined_table THEN
	PERFORM sweep.create_job('intruder went on', batch_sql => 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0');
END $$;
:unchanged;
-- it can call the engine, as its own role
CREATE FUNCTION intruder.nest() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	PERFORM intruder.mislead('intruder, pg_catalog'), sweep.create_job('intruder nested', batch_sql => 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0');
	RETURN true;
END
$$;
CREATE DOMAIN intruder.nesting AS text CHECK (intruder.nest());
CREATE TYPE intruder.nesting_composite AS (v intruder.nesting);
SELECT sweep.create_job('intruder nests', batch_sql => $$UPDATE pg_catalog.pg_settings SET setting = setting WHERE ('(a)'::intruder.nesting_composite) IS NULL AND $1 < 0$$);
:unchanged;
SELECT name, run_as FROM sweep.job WHERE name LIKE 'intruder nest%' ORDER BY name;

-- ---------------------------------------------------------------- names that are looked up
SELECT sweep.create_job('intruder name', step => 'intruder.x(); ALTER ROLE regress_sweep_intruder SUPERUSER; --');
SELECT sweep.create_job('intruder name', step => '"intruder"."x""); SELECT intruder.caught(''quoted'') --"');
SELECT sweep.create_job('intruder name', step => 'pg_temp.x', pick => '(SELECT intruder.caught(''pick''))');

-- ---------------------------------------------------------------- in a session: preview and CALL
CREATE TABLE intruder.item (id int PRIMARY KEY, v intruder.composite);
INSERT INTO intruder.item SELECT n FROM generate_series(1, 6) AS n;
CREATE FUNCTION intruder.of_index(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN PERFORM intruder.mislead('intruder, pg_temp, pg_catalog'); RETURN $1; END $$;
CREATE INDEX ON intruder.item (intruder.of_index(id));
CREATE FUNCTION intruder.of_trigger() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM intruder.mislead('intruder, pg_temp, pg_catalog'); RETURN NULL; END $$;
CREATE TRIGGER misleads AFTER UPDATE ON intruder.item FOR EACH ROW EXECUTE FUNCTION intruder.of_trigger();
CREATE CONSTRAINT TRIGGER deferred AFTER UPDATE ON intruder.item DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION intruder.of_trigger();
CREATE POLICY misleads ON intruder.item USING (intruder.mislead('intruder, pg_temp, pg_catalog'));
ALTER TABLE intruder.item ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
RESET ALL;
SET client_min_messages = warning;
CREATE FUNCTION intruder.step(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
	UPDATE intruder.item SET id = id WHERE id = 1;
	IF b.items @> ARRAY[to_jsonb(4)] THEN
		RAISE EXCEPTION 'not this one';
	END IF;
	PERFORM intruder.mislead('intruder, pg_temp, pg_catalog');
	RETURN ROW(CASE WHEN b.cursor IS NULL THEN 1 ELSE 0 END, '1', '{"n": 1}')::sweep.progress;
END
$$;
CREATE FUNCTION intruder.pick(b sweep.batch) RETURNS SETOF jsonb LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
	RETURN QUERY SELECT to_jsonb(i.id) FROM intruder.item i WHERE i.id > coalesce((b.cursor #>> '{}')::int, 0) ORDER BY i.id LIMIT 2;
	PERFORM intruder.mislead('intruder, pg_temp, pg_catalog');
END
$$;
CREATE FUNCTION intruder.rescue(b sweep.batch, error jsonb) RETURNS sweep.progress LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
	PERFORM intruder.mislead('intruder, pg_temp, pg_catalog');
	RAISE EXCEPTION 'nor can this be rescued';
END
$$;
CREATE FUNCTION intruder.buckets(b sweep.batch) RETURNS int LANGUAGE plpgsql SET search_path = pg_catalog AS $$ BEGIN PERFORM intruder.mislead('intruder, pg_temp, pg_catalog'); RETURN 2; END $$;
SELECT sweep.create_job('intruder step', step => 'intruder.step');
SELECT sweep.create_job('intruder items', pick => 'intruder.pick', step => 'intruder.step', rescue => 'intruder.rescue');
SELECT sweep.create_job('intruder shares', step => 'intruder.step', buckets => 4, buckets_function => 'intruder.buckets');
SELECT sweep.create_job('intruder reads', batch_sql => $$DELETE FROM intruder.item WHERE v IS DISTINCT FROM '(a)'::intruder.composite AND $1 < 0$$);
-- a preview is rolled back with all that its batch has set
SELECT rows, plan LIKE '%item%' AS planned FROM sweep.preview('intruder step');
:unchanged;
SELECT rows, plan LIKE '%item%' AS planned FROM sweep.preview('intruder items');
:unchanged;
SELECT rows, plan LIKE '%item%' AS planned FROM sweep.preview('intruder reads');
:unchanged;
SELECT rows FROM sweep.preview('intruder composite');
:unchanged;
-- a run goes on with what its batches have set, and the session has it afterwards: it is its own code
CALL sweep.run('intruder step');
CALL sweep.run('intruder items');
CALL sweep.run('intruder reads');
SELECT pg_catalog.current_setting('search_path') AS path_of_the_run, pg_catalog.current_setting('IntervalStyle') AS style;
CALL sweep.run('intruder shares');
RESET ALL;
SET client_min_messages = warning;
SELECT job, status, stop_reason, batches, rows, quarantined, detail - 'max_buckets' - 'available_count' AS detail FROM sweep.runs WHERE job LIKE 'intruder%' AND trigger = 'manual' ORDER BY run_id;
SELECT item, attempts FROM sweep.quarantine;

-- ---------------------------------------------------------------- a session with settings and temporary objects that get in the way
CREATE TEMP TABLE run_history (run_id bigint, job text, status text);
CREATE TEMP TABLE job (name text, run_as oid);
DEALLOCATE ALL;
SELECT intruder.mislead('pg_temp, intruder, pg_catalog');
SELECT intruder.settings() AS settings, pg_catalog.current_setting('search_path') AS path \gset
\set unchanged 'SELECT pg_catalog.md5(intruder.settings()) OPERATOR(pg_catalog.=) pg_catalog.md5(:\'settings\') AND pg_catalog.current_setting(\'search_path\') OPERATOR(pg_catalog.=) :\'path\' AS unchanged'
SELECT sweep.create_job('intruder settings', batch_sql => 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0', schedule => '@daily', stop_after => pg_catalog.interval '1 day -2 hours',
	on_start => '{"intruder step": "1 day -2 hours"}', args => '{"as_of": "2026-02-03 04:05:06+00"}');
:unchanged;
SELECT sweep.alter_job('intruder settings', '{"jitter": "1 hour -2 min", "timeout": "1 day -1 hours"}');
SELECT sweep.create_job('intruder settings', batch_sql => 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0');
SELECT sweep.create_job('intruder wrong', step => 'a.b.no_such_step');
SELECT sweep.alter_job('intruder settings', '{"stop_after": "-1 hour"}');
SELECT sweep.alter_job('intruder settings', '{"no_such_key": 1}');
SELECT rows FROM sweep.preview('intruder settings');
CALL sweep.run('intruder settings');
SELECT sweep.pause('intruder settings'), sweep.resume('intruder settings');
SELECT sweep.release_quarantine('intruder items');
SELECT sweep.create_queue('intruder_queue', visibility => pg_catalog.interval '1 min', backoff => '1 day -2 hours');
SELECT sweep.send('intruder_queue', '1', 'key') IS NOT NULL AS sent, sweep.send('intruder_queue', '2', 'key') IS NULL AS refused;
SELECT sweep.grant_queue('intruder_queue', 'sweep_operator', '{send}'), sweep.revoke_queue('intruder_queue', 'sweep_operator', '{send}');
SELECT sweep.fail(lease, 'why') FROM sweep.claim('intruder_queue');
SELECT sweep.redrive('intruder_queue') AS redriven, sweep.purge_queue('intruder_queue') AS purged;
SELECT sweep.send('intruder_cue', '1');
SELECT sweep.begin_once('intruder'), sweep.begin_once('intruder') AS again;
SELECT queue, depth FROM sweep.queues WHERE queue OPERATOR(pg_catalog.=) 'intruder_queue';
SELECT pg_catalog.count(*) FROM sweep.jobs;
SELECT sweep.drop_queue('intruder_queue');
:unchanged;
-- the traps work: this is the intruder itself
SELECT FROM pg_database LIMIT 1;
SELECT intruder.now() IS NULL AS trapped;
RESET ALL;
SET client_min_messages = warning;
SELECT timezone, stop_after, timeout, jitter, on_start, args FROM sweep.job WHERE name = 'intruder settings';
SELECT job, status, stop_reason FROM sweep.runs WHERE job = 'intruder settings';

-- ---------------------------------------------------------------- types of the keys of a copy
-- Keys of different types are compared by casts of the intruder, which take a null, too.
CREATE TYPE intruder.word AS ENUM ('a');
CREATE TYPE intruder.letter AS ENUM ('a');
CREATE FUNCTION intruder.to_letter(intruder.word) RETURNS intruder.letter LANGUAGE plpgsql AS $$ BEGIN PERFORM intruder.caught('cast'); RETURN 'a'; END $$;
CREATE FUNCTION intruder.to_text(intruder.word) RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM intruder.caught('cast'); RETURN 'a'; END $$;
CREATE FUNCTION intruder.to_text(intruder.letter) RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM intruder.caught('cast'); RETURN 'a'; END $$;
CREATE CAST (intruder.word AS intruder.letter) WITH FUNCTION intruder.to_letter(intruder.word) AS IMPLICIT;
CREATE CAST (intruder.word AS text) WITH FUNCTION intruder.to_text(intruder.word) AS IMPLICIT;
CREATE CAST (intruder.letter AS text) WITH FUNCTION intruder.to_text(intruder.letter) AS IMPLICIT;
CREATE TABLE intruder.words (key intruder.word PRIMARY KEY);
CREATE TABLE intruder.letters (key intruder.letter PRIMARY KEY);
SELECT sweep.create_copy('intruder.words', 'intruder.letters', with_changes => true, name => 'intruder copy', schedule => '@daily', paused => true);
DROP TABLE intruder.words, intruder.letters;
DROP TYPE intruder.word, intruder.letter CASCADE;

-- ---------------------------------------------------------------- a superuser's session lends its rights to no job
\c - :superuser
SET client_min_messages = warning;
SET SESSION AUTHORIZATION regress_sweep_intruder;
CALL sweep.run('intruder step');
SELECT rows FROM sweep.preview('intruder step');
RESET SESSION AUTHORIZATION;

-- ---------------------------------------------------------------- what came of it
SELECT as_whom, count(*) > 0 AS called FROM intruder.seen GROUP BY as_whom ORDER BY as_whom;
SELECT rolsuper FROM pg_roles WHERE rolname = 'regress_sweep_intruder';
SELECT DISTINCT run_as FROM sweep.job WHERE name LIKE 'intruder%';

SELECT sweep.drop_job(name) FROM sweep.job WHERE name LIKE 'intruder%';
DELETE FROM sweep.run_live WHERE job LIKE 'intruder%';
DELETE FROM sweep.run_history WHERE job LIKE 'intruder%';
DELETE FROM sweep.once_key WHERE role = 'regress_sweep_intruder';
REVOKE sweep_client FROM sweep_operator;
DROP OWNED BY regress_sweep_intruder;
DROP ROLE regress_sweep_intruder;
