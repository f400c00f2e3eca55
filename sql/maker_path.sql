-- room: makers
-- Statements of the makers mean the same where the search_path of their job has a schema before pg_catalog that gives its names of types to others.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
CREATE SCHEMA maker_app;
CREATE SCHEMA maker_shadow;
SELECT setval(pg_get_serial_sequence('sweep.run_live', 'run_id'), 8300000, false);
DO $$
DECLARE
	name text;
BEGIN
	FOREACH name IN ARRAY '{text,date,uuid,inet,name,char,bpchar,oidvector,varchar,timestamptz,timestamp,interval,int8,int4,jsonb,oid,tid,bool,regclass,trigger,void}'::text[] LOOP
		EXECUTE format('CREATE DOMAIN maker_shadow.%I AS pg_catalog.int2 CHECK (VALUE IS NULL AND false)', name);
	END LOOP;
END
$$;
CREATE FUNCTION maker_app.shadowed() RETURNS jsonb LANGUAGE sql AS $$ SELECT '{"search_path": "maker_shadow, pg_catalog, maker_app"}'::jsonb $$;

CREATE TABLE maker_app.dated (day date, code text, mark "char", PRIMARY KEY (day, code, mark));
INSERT INTO maker_app.dated SELECT '2026-01-01'::date + n % 10, 'c' || n, CASE n % 2 WHEN 0 THEN 'a' ELSE 'b' END FROM generate_series(1, 200) AS n;
SELECT sweep.create_retention('maker_app.dated', 'day', '1 day', batch_size => 30, settings => maker_app.shadowed(), paused => true, name => 'shadowed');
CALL sweep.run('shadowed');
SELECT count(*) FROM maker_app.dated;
SELECT sweep.drop_job('shadowed');

CREATE TABLE maker_app.item (id uuid, host inet, label name, fixed char(3), loose bpchar, sure bool, oids oidvector, n int DEFAULT 0, PRIMARY KEY (id, host, label, fixed, loose, sure, oids));
INSERT INTO maker_app.item SELECT md5(n::text)::uuid, '10.0.0.1', 'l' || n, 'x', 'y', true, '1 2' FROM generate_series(1, 200) AS n;
SELECT sweep.create_backfill('maker_app.item', 'n = 1', 'n = 0', batch_size => 30, pause => NULL, settings => maker_app.shadowed(), paused => true, name => 'shadowed');
CALL sweep.run('shadowed');
SELECT sum(n) FROM maker_app.item;
SELECT sweep.drop_job('shadowed');
SELECT sweep.batched('UPDATE maker_app.item SET n = n + 1 WHERE n < 9', batch_size => 30, pause => NULL, settings => maker_app.shadowed()) AS run_id \gset
CALL sweep.wait(:run_id, '1 min');
SELECT sum(n) FROM maker_app.item;
SELECT error FROM sweep.runs WHERE run_id = :run_id;

CREATE TABLE maker_app.event (id int PRIMARY KEY, body jsonb);
INSERT INTO maker_app.event SELECT n, '{"day": "20260101"}' FROM generate_series(1, 100) AS n;
CREATE FUNCTION maker_app.day_of(body jsonb) RETURNS date LANGUAGE sql IMMUTABLE AS $$ SELECT pg_catalog.to_date(body OPERATOR(pg_catalog.->>) 'day', 'YYYYMMDD') $$;
CREATE INDEX ON maker_app.event (maker_app.day_of(body));
SELECT sweep.create_retention('maker_app.event', 'maker_app.day_of(body)', '1 day', batch_size => 30, settings => maker_app.shadowed(), paused => true, name => 'shadowed');
CALL sweep.run('shadowed');
SELECT count(*) FROM maker_app.event;
SELECT sweep.drop_job('shadowed');

-- an operator that a literal without a type fits better is found in any schema of the path
CREATE FUNCTION maker_shadow.raise(jsonb, jsonb) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'an operator of maker_shadow was executed'; END $$;
CREATE OPERATOR maker_shadow.->> (LEFTARG = jsonb, RIGHTARG = jsonb, FUNCTION = maker_shadow.raise);
CREATE TABLE maker_app.copied (LIKE maker_app.item INCLUDING ALL);
ALTER TABLE maker_app.copied ALTER host TYPE cidr;
SELECT sweep.create_copy('maker_app.item', 'maker_app.copied', with_changes => true, batch_size => 30, settings => maker_app.shadowed(), paused => true, name => 'shadowed');
CALL sweep.run('shadowed');
UPDATE maker_app.item SET n = 7 WHERE label < 'l3';
CALL sweep.run('shadowed');
SELECT count(*) FROM (TABLE maker_app.item EXCEPT TABLE maker_app.copied) AS missing;
SELECT sweep.drop_job('shadowed');

CREATE TABLE maker_app.parent (code varchar(9) PRIMARY KEY);
CREATE TABLE maker_app.child (id text PRIMARY KEY, code text REFERENCES maker_app.parent ON DELETE CASCADE);
CREATE INDEX ON maker_app.child (code);
INSERT INTO maker_app.parent SELECT 'p' || n FROM generate_series(1, 20) AS n;
INSERT INTO maker_app.child SELECT 'c' || n, 'p' || n % 20 + 1 FROM generate_series(1, 200) AS n;
SELECT run_id FROM sweep.delete('maker_app.parent', 'code <> ''p1''', batch_size => 30, pause => NULL, settings => maker_app.shadowed()) \gset
CALL sweep.wait(:run_id, '1 min');
SELECT status, rows, error FROM sweep.runs WHERE run_id = :run_id;

CREATE TABLE maker_app.days (day date, n int) PARTITION BY RANGE (day);
CREATE TABLE maker_app.days_default PARTITION OF maker_app.days DEFAULT;
INSERT INTO maker_app.days SELECT (now() AT TIME ZONE 'UTC')::date + n, n FROM generate_series(-2, 2) AS n, generate_series(1, 10);
SELECT sweep.create_partitions('maker_app.days', '1 day', ahead => 2, schedule => NULL, settings => maker_app.shadowed(), paused => true, name => 'shadowed');
CALL sweep.run('shadowed');
SELECT count(*) FROM maker_app.days_default;
SELECT sweep.drop_job('shadowed');

DO $$ BEGIN PERFORM sweep.drop_job(name) FROM sweep.job WHERE name ~ '_830000[0-9]$'; END $$;
DELETE FROM sweep.run_live WHERE run_id >= 8300000;
DELETE FROM sweep.run_history WHERE run_id >= 8300000;
DROP SCHEMA maker_app, maker_shadow CASCADE;
