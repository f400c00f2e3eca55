-- room: makers
-- The search_path of a job of sweep.batched may name a schema before pg_catalog: names of its statement mean what they did where it was written.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS path_app, path_shadow CASCADE;
CREATE SCHEMA path_app;
CREATE SCHEMA path_shadow;
CREATE FUNCTION path_shadow.upper(text) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT 'shadow'::text $$;
CREATE FUNCTION path_shadow.never(int, int) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$ SELECT false $$;
CREATE OPERATOR path_shadow.= (LEFTARG = int, RIGHTARG = int, FUNCTION = path_shadow.never);
CREATE TYPE path_shadow.int8 AS (shadow int);
CREATE TABLE path_app.item (id int PRIMARY KEY, note text, n int, big text);
INSERT INTO path_app.item SELECT n, 'note', n % 3, '7' FROM generate_series(1, 300) AS n;
CREATE TABLE path_app.touched (id int);
-- finds its table by the search_path of the job
CREATE FUNCTION path_app.touch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO touched VALUES (NEW.id); RETURN NULL; END $$;
CREATE TRIGGER touch AFTER UPDATE ON path_app.item FOR EACH ROW EXECUTE FUNCTION path_app.touch();
CREATE TABLE path_app.bare AS SELECT * FROM path_app.item;
CREATE ROLE regress_sweep_path LOGIN IN ROLE sweep_user;
GRANT USAGE ON SCHEMA path_app, path_shadow TO regress_sweep_path;
GRANT ALL ON ALL TABLES IN SCHEMA path_app TO regress_sweep_path;
ALTER ROLE regress_sweep_path SET search_path = path_shadow, path_app, pg_catalog;

SET search_path = path_app;
SELECT sweep.batched('UPDATE item SET note = upper(note), big = big::int8 + 1 WHERE n = 1 AND note <> ''NOTE''', run_as => 'regress_sweep_path', batch_size => 20, pause => NULL) AS run_id \gset
CALL sweep.wait(:run_id, '1 min');
SELECT status, error, detail FROM sweep.runs WHERE run_id = :run_id;
SELECT note, big, n, count(*) FROM item GROUP BY 1, 2, 3 ORDER BY 1, 3;
SELECT count(*), count(DISTINCT id) FROM touched;
SELECT sweep.batched('DELETE FROM item WHERE n = 1 AND upper(note) = ''NOTE''', run_as => 'regress_sweep_path', batch_size => 20, pause => NULL) AS run_id \gset
CALL sweep.wait(:run_id, '1 min');
SELECT status, error, detail FROM sweep.runs WHERE run_id = :run_id;
SELECT sweep.batched('DELETE FROM bare WHERE n = 2 AND upper(note) = ''NOTE''', run_as => 'regress_sweep_path', batch_size => 20, pause => NULL) AS run_id \gset
CALL sweep.wait(:run_id, '1 min');
SELECT status, error, detail FROM sweep.runs WHERE run_id = :run_id;
-- what the session writes is what is meant
SET search_path = path_shadow, path_app, pg_catalog;
SELECT sweep.batched('UPDATE item SET note = upper(note) WHERE id < 10 AND note <> ''shadow''', run_as => 'regress_sweep_path') AS run_id \gset
RESET search_path;
CALL sweep.wait(:run_id, '1 min');
SELECT status, error, detail FROM sweep.runs WHERE run_id = :run_id;
SELECT note, count(*) FROM path_app.item GROUP BY 1 ORDER BY 1;

-- so do the texts of rows, which are read in the order of day and month of the session, and with its other settings
CREATE TABLE path_app.day (id int PRIMARY KEY, day text, words text, found tsvector, bytes bytea);
INSERT INTO path_app.day SELECT n, '0' || n || '/02/2026', 'Häuser', NULL, '\x41ff' FROM generate_series(1, 6) AS n;
GRANT ALL ON path_app.day TO regress_sweep_path;
SET datestyle = 'SQL, DMY';
SET default_text_search_config = 'german';
SET bytea_output = 'escape';
SELECT sweep.batched('DELETE FROM path_app.day WHERE day::date < ''04/02/2026''', run_as => 'regress_sweep_path') AS run_id \gset
CALL sweep.wait(:run_id, '1 min');
SELECT sweep.batched('UPDATE path_app.day SET found = to_tsvector(words), words = bytes::text', run_as => 'regress_sweep_path', settings => '{"BYTEA_OUTPUT": "hex"}') AS run_id \gset
CALL sweep.wait(:run_id, '1 min');
RESET datestyle;
RESET default_text_search_config;
RESET bytea_output;
SELECT id, words, found FROM path_app.day ORDER BY id;

-- and intervals, nulls and the output of dates, whatever the role of the job has: with sql_standard the sign counts for hours, too
INSERT INTO path_app.day VALUES (7);
ALTER ROLE regress_sweep_path SET intervalstyle = 'iso_8601';
SET intervalstyle = 'sql_standard';
SET transform_null_equals = on;
SET array_nulls = off;
SET datestyle = 'German';
SELECT sweep.batched('UPDATE path_app.day SET words = concat_ws('' and '', interval ''-1 2:00'', ''2026-02-04''::date, ''{NULL}''::text[]) WHERE bytes = NULL',
	run_as => 'regress_sweep_path') AS run_id \gset
CALL sweep.wait(:run_id, '1 min');
RESET intervalstyle;
RESET transform_null_equals;
RESET array_nulls;
RESET datestyle;
SELECT id, day, words FROM path_app.day ORDER BY id;

-- also where the session has set nothing, and the role of the job has
ALTER ROLE regress_sweep_path SET array_nulls = off;
SELECT sweep.batched('UPDATE path_app.day SET words = concat_ws('' and '', interval ''1 day'', ''{NULL}''::text[]) WHERE id = 6', run_as => 'regress_sweep_path') AS run_id \gset
CALL sweep.wait(:run_id, '1 min');
SELECT words FROM path_app.day WHERE id = 6;

SELECT count(sweep.drop_job(name)) FROM sweep.job WHERE run_as = 'regress_sweep_path';
DELETE FROM sweep.run_live WHERE run_as = 'regress_sweep_path';
DELETE FROM sweep.run_history WHERE run_as = 'regress_sweep_path';
DROP SCHEMA path_app, path_shadow CASCADE;
DROP ROLE regress_sweep_path;
