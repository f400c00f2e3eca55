-- room: makers
-- Keys of types whose values are written in several ways, or not as JSON writes them: each row once, and no more of them in a batch than its size.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS keys CASCADE;
CREATE SCHEMA keys;
CREATE VIEW keys.last AS SELECT status, stop_reason AS stop, rows, batches, detail FROM sweep.runs WHERE job LIKE 'keys%' ORDER BY run_id DESC LIMIT 1;
CREATE TABLE keys.gone (txid xid8, rows int);
CREATE FUNCTION keys.note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO keys.gone SELECT pg_current_xact_id(), count(*) FROM old;
	RETURN NULL;
END
$$;
CREATE VIEW keys.most AS SELECT max(sum) AS rows FROM (SELECT sum(rows) FROM keys.gone GROUP BY txid) AS t;

-- a key that may be null, in a table without another one: the greatest key is none of these
CREATE TABLE keys.nullable (k int, n int);
INSERT INTO keys.nullable SELECT CASE WHEN n % 100 <> 0 THEN n % 500 END, n FROM generate_series(1, 20000) AS n;
CREATE INDEX ON keys.nullable (k);
ANALYZE keys.nullable;
SELECT run_id FROM sweep.delete('keys.nullable', 'k = 3', name => 'keys nullable', batch_size => 10) \gset
CALL sweep.wait(:run_id, '1 min');
SELECT args -> 'key' AS key FROM sweep.job WHERE name = 'keys nullable';
SELECT *, (SELECT count(*) FROM keys.nullable WHERE k = 3) AS left, (SELECT count(*) FROM keys.nullable) AS others FROM keys.last;
SELECT run_id FROM sweep.delete('keys.nullable', 'k BETWEEN 10 AND 19', name => 'keys divided', batch_size => 10, parallel => 2) \gset
CALL sweep.wait(:run_id, '1 min');
DO $$
DECLARE
	deadline constant timestamptz := clock_timestamp() + interval '1 min';
BEGIN
	WHILE EXISTS (SELECT FROM sweep.buckets WHERE job = 'keys divided' AND state <> 'done') AND clock_timestamp() < deadline LOOP
		COMMIT;
		PERFORM pg_sleep(0.02); -- between two looks: the sleep is the work
	END LOOP;
END
$$;
SELECT count(*) AS left FROM keys.nullable WHERE k BETWEEN 10 AND 19;

-- equal keys that are written in several ways
CREATE TABLE keys.scales (k numeric, n int);
INSERT INTO keys.scales SELECT (ARRAY[1.0, 1.00, 1.000])[1 + n % 3], n FROM generate_series(1, 1000) AS n;
INSERT INTO keys.scales SELECT n + 2, n FROM generate_series(1, 20000) AS n;
CREATE INDEX ON keys.scales (k);
ANALYZE keys.scales;
CREATE TRIGGER note AFTER DELETE ON keys.scales REFERENCING OLD TABLE AS old FOR EACH STATEMENT EXECUTE FUNCTION keys.note();
SELECT run_id FROM sweep.delete('keys.scales', 'k = 1', name => 'keys scales', batch_size => 30) \gset
CALL sweep.wait(:run_id, '1 min');
SELECT *, (SELECT count(*) FROM keys.scales WHERE k = 1) AS left FROM keys.last;
SELECT * FROM keys.most;
TRUNCATE keys.gone;
CREATE COLLATION keys.any_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
-- a unique index by another collation does not tell them apart
CREATE TABLE keys.cases (k text COLLATE keys.any_case NOT NULL, n int);
INSERT INTO keys.cases SELECT translate(to_char(n, 'FM000000'), '0123456789', CASE n % 2 WHEN 0 THEN 'abcdefghij' ELSE 'ABCDEFGHIJ' END) || 'x', n FROM generate_series(1, 20000) AS n;
INSERT INTO keys.cases SELECT string_agg(CASE WHEN n & (1 << i) = 0 THEN 'x' ELSE 'X' END, ''), n FROM generate_series(0, 511) AS n, generate_series(0, 8) AS i GROUP BY n;
CREATE INDEX ON keys.cases (k);
CREATE UNIQUE INDEX ON keys.cases (k COLLATE "C");
ANALYZE keys.cases;
CREATE TRIGGER note AFTER DELETE ON keys.cases REFERENCING OLD TABLE AS old FOR EACH STATEMENT EXECUTE FUNCTION keys.note();
SELECT run_id FROM sweep.delete('keys.cases', 'k = ''xxxxxxxxX''', name => 'keys cases', batch_size => 30) \gset
CALL sweep.wait(:run_id, '1 min');
SELECT *, (SELECT count(*) FROM keys.cases WHERE k = 'xxxxxxxxx') AS left FROM keys.last;
SELECT * FROM keys.most;
TRUNCATE keys.gone;

-- values that JSON does not write as the type does
CREATE TYPE keys.pair AS (a int, b text);
CREATE DOMAIN keys.list AS int[] CHECK (cardinality(value) < 5);
CREATE DOMAIN keys.c_text AS text COLLATE "C";
CREATE TABLE keys.array (k keys.list PRIMARY KEY, n int NOT NULL DEFAULT 0);
INSERT INTO keys.array SELECT ARRAY[n / 10, nullif(n % 10, 3)] FROM generate_series(1, 300) AS n;
CREATE TABLE keys.json (k jsonb PRIMARY KEY, n int NOT NULL DEFAULT 0);
INSERT INTO keys.json SELECT to_jsonb(n) FROM generate_series(1, 100) AS n UNION ALL SELECT to_jsonb('s' || n) FROM generate_series(1, 100) AS n;
INSERT INTO keys.json VALUES ('null'), ('{"a": [1]}'), ('true'), ('[]');
CREATE TABLE keys.row (k keys.pair PRIMARY KEY, n int NOT NULL DEFAULT 0);
INSERT INTO keys.row SELECT (nullif(n % 3, 1), E'\\ " (' || n)::keys.pair FROM generate_series(1, 300) AS n;
CREATE TABLE keys.word (k keys.c_text COLLATE "POSIX" PRIMARY KEY, n int NOT NULL DEFAULT 0);
INSERT INTO keys.word SELECT 'w' || n FROM generate_series(1, 300) AS n;
CREATE TABLE keys.range (k int4range PRIMARY KEY, n int NOT NULL DEFAULT 0);
INSERT INTO keys.range SELECT int4range(nullif(n, 7), n + 5) FROM generate_series(1, 300) AS n;
-- (and one whose name begins as its other one does)
CREATE TABLE keys.flag (k boolean, flags bool[], n int NOT NULL DEFAULT 0, PRIMARY KEY (k, flags));
INSERT INTO keys.flag SELECT n % 2 = 0, ARRAY(SELECT nullif(n & (1 << i), 2) = 0 FROM generate_series(0, 8) AS i) FROM generate_series(1, 300) AS n;
-- (nor do what has an OID and a name that others have, too)
CREATE DOMAIN keys.relation AS regclass;
CREATE TABLE keys.named (k regproc, l keys.relation, n int NOT NULL DEFAULT 0, PRIMARY KEY (k, l));
INSERT INTO keys.named SELECT oid, 'keys.gone' FROM (SELECT oid FROM pg_proc WHERE proname = 'int4' ORDER BY oid LIMIT 6) AS p;
SELECT sweep.create_backfill('keys.' || t, 'n = n + 1', 'n = 0', name => 'keys ' || t, batch_size => 10, pause => NULL, schedule => '@yearly') FROM unnest('{array,json,row,word,range,flag,named}'::text[]) AS t;
CALL sweep.run('keys array');
CALL sweep.run('keys json');
CALL sweep.run('keys row');
CALL sweep.run('keys word');
CALL sweep.run('keys range');
CALL sweep.run('keys flag');
CALL sweep.run('keys named');
SELECT job, status, rows, detail FROM sweep.runs WHERE job ~ '^keys (array|flag|json|named|row|word|range)' ORDER BY job;
SELECT (SELECT count(*) FROM keys.array WHERE n <> 1) + (SELECT count(*) FROM keys.json WHERE n <> 1) + (SELECT count(*) FROM keys.row WHERE n <> 1) + (SELECT count(*) FROM keys.word WHERE n <> 1)
	+ (SELECT count(*) FROM keys.range WHERE n <> 1) + (SELECT count(*) FROM keys.flag WHERE n <> 1) AS wrong;
-- and in ranges
SELECT sweep.create_backfill('keys.array', 'n = n + 1', 'n = 1', name => 'keys ranges', batch_size => 10, parallel => 2, max_attempts => 1);
DO $$
DECLARE
	deadline constant timestamptz := clock_timestamp() + interval '1 min';
BEGIN
	WHILE (NOT EXISTS (SELECT FROM sweep.buckets WHERE job = 'keys ranges') OR EXISTS (SELECT FROM sweep.buckets WHERE job = 'keys ranges' AND state <> 'done')) AND clock_timestamp() < deadline LOOP
		COMMIT;
		PERFORM pg_sleep(0.02); -- between two looks: the sleep is the work
	END LOOP;
END
$$;
SELECT n, count(*), (SELECT count(*) > 2 FROM sweep.buckets WHERE job = 'keys ranges') AS ranges FROM keys.array GROUP BY n;

-- with fewer digits than a floating-point number has
CREATE TABLE keys.digits (k float8 PRIMARY KEY, n int NOT NULL DEFAULT 0);
INSERT INTO keys.digits SELECT 1 + n * 2.3e-16 FROM generate_series(1, 200) AS n ON CONFLICT DO NOTHING;
INSERT INTO keys.digits VALUES ('NaN'), ('Infinity'), ('-Infinity'), ('-0'), (1e-320);
SELECT run_id FROM sweep.batched('UPDATE keys.digits SET n = n + 1', name => 'keys digits', batch_size => 10, settings => '{"extra_float_digits": 0}') AS run_id \gset
CALL sweep.wait(:run_id, '1 min');
SELECT n, count(*) FROM keys.digits GROUP BY n;

-- with nulls that a job reads as texts, and with names, by which the rows are not read in ranges
CREATE TABLE keys.tags (at date, tags text[], n int NOT NULL DEFAULT 0, PRIMARY KEY (at, tags));
INSERT INTO keys.tags SELECT '2020-01-01', ARRAY[CASE WHEN n > 30 THEN 'P' END, lpad(n::text, 3, '0')] FROM generate_series(1, 60) AS n;
SELECT sweep.create_backfill('keys.tags', 'n = n + 1', 'n = 0', name => 'keys tags', batch_size => 7, max_batches => 20, pause => NULL, settings => '{"array_nulls": false}', paused => true);
CALL sweep.run('keys tags');
SELECT * FROM keys.last;
SELECT sweep.create_retention('keys.tags', 'at', '1 day', name => 'keys tags age', batch_size => 7, max_batches => 20, settings => '{"array_nulls": false}', paused => true);
CALL sweep.run('keys tags age');
SELECT *, (SELECT count(*) FROM keys.tags) AS left FROM keys.last;
CREATE TYPE keys.call AS (f regproc, n int);
CREATE TABLE keys.calls (at date, call keys.call, tables regclass[], PRIMARY KEY (at, call), UNIQUE (at, tables, call));
INSERT INTO keys.calls SELECT '2020-01-01', (p.oid, n)::keys.call, ARRAY['keys.calls'::regclass, n] FROM generate_series(1, 20) AS n, (SELECT oid FROM pg_proc WHERE proname = 'int4' ORDER BY oid LIMIT 2) AS p;
SELECT sweep.create_retention('keys.calls', 'at', '1 day', name => 'keys calls', batch_size => 7, paused => true);
CALL sweep.run('keys calls');
SELECT *, (SELECT count(*) FROM keys.calls) AS left FROM keys.last;
SELECT sweep.create_backfill('keys.calls', 'tables = NULL', 'tables IS NOT NULL', name => 'keys calls');

-- keys whose columns have other collations
CREATE TABLE keys.parent (k text COLLATE "C" PRIMARY KEY);
CREATE TABLE keys.child (id int PRIMARY KEY, parent text COLLATE "POSIX" REFERENCES keys.parent);
CREATE INDEX ON keys.child (parent);
INSERT INTO keys.parent SELECT 'p' || n FROM generate_series(1, 20) AS n;
INSERT INTO keys.child VALUES (1, 'p7');
SELECT run_id FROM sweep.delete('keys.parent', 'true', name => 'keys parent') \gset
CALL sweep.wait(:run_id, '1 min');
SELECT *, (SELECT array_agg(k) FROM keys.parent) AS left FROM keys.last;
CREATE TABLE keys.any_parent (k text COLLATE keys.any_case PRIMARY KEY);
CREATE TABLE keys.any_child (id int PRIMARY KEY, parent text);
CREATE INDEX ON keys.any_child (parent);
-- from PostgreSQL 18 on both have the same collation
DO $$
BEGIN
	ALTER TABLE keys.any_child ADD FOREIGN KEY (parent) REFERENCES keys.any_parent ON DELETE CASCADE;
EXCEPTION WHEN OTHERS THEN
	ALTER TABLE keys.any_child ALTER parent TYPE text COLLATE keys.any_case;
	ALTER TABLE keys.any_child ADD FOREIGN KEY (parent) REFERENCES keys.any_parent ON DELETE CASCADE;
END
$$;
INSERT INTO keys.any_parent SELECT 'p' || n FROM generate_series(1, 3) AS n;
INSERT INTO keys.any_child SELECT n, CASE n % 2 WHEN 0 THEN 'P' ELSE 'p' END || 1 + n % 3 FROM generate_series(1, 300) AS n;
CREATE TRIGGER note AFTER DELETE ON keys.any_child REFERENCING OLD TABLE AS old FOR EACH STATEMENT EXECUTE FUNCTION keys.note();
SELECT tables FROM sweep.delete('keys.any_parent', 'true', dry_run => true);
SELECT run_id FROM sweep.delete('keys.any_parent', 'true', name => 'keys any parent', batch_size => 30) \gset
CALL sweep.wait(:run_id, '1 min');
SELECT status, detail FROM keys.last;
SELECT * FROM keys.most;

-- ---------------------------------------------------------------- moments, in a DateStyle that calls the zone CST, which PostgreSQL reads as that of Chicago until version 17
CREATE DOMAIN keys.moment AS timestamptz;
CREATE TABLE keys.at (at keys.moment PRIMARY KEY);
CREATE TABLE keys.during (during tstzrange PRIMARY KEY);
INSERT INTO keys.at SELECT '2026-11-27 12:00Z'::timestamptz + n * interval '1 hour' FROM generate_series(1, 20) AS n;
INSERT INTO keys.during SELECT tstzrange(at, at + interval '1 day') FROM keys.at;
CREATE TABLE keys.at_copy (LIKE keys.at);
CREATE TABLE keys.during_copy (LIKE keys.during);
SELECT sweep.create_copy('keys.' || t, 'keys.' || t || '_copy', name => 'keys ' || t, batch_size => 3, settings => '{"DateStyle": "SQL, DMY", "TimeZone": "Asia/Shanghai"}', paused => true) FROM unnest('{at,during}'::text[]) AS t;
CALL sweep.run('keys at');
SELECT * FROM keys.last;
CALL sweep.run('keys during');
SELECT * FROM keys.last;
-- an interval has the signs of its fields in any style
CREATE TABLE keys.lasts (lasts interval PRIMARY KEY, done bool);
INSERT INTO keys.lasts SELECT n * interval '1 mon -1 day' - interval '2 hours' FROM generate_series(-10, 10) AS n;
SELECT sweep.create_backfill('keys.lasts', 'done = true', 'done IS NULL', name => 'keys lasts', batch_size => 3, max_batches => 2, settings => '{"IntervalStyle": "sql_standard"}', paused => true);
CALL sweep.run('keys lasts');
SELECT * FROM keys.last;
SELECT sweep.alter_job('keys lasts', '{"settings": {}, "max_batches": null}');
CALL sweep.run('keys lasts');
SELECT * FROM keys.last;

-- ---------------------------------------------------------------- a domain of an enum, whose values PostgreSQL has no operators for: a trigger that compares them would fail those who write
CREATE TYPE keys.mood AS ENUM ('calm', 'glad');
CREATE DOMAIN keys.good_mood AS keys.mood;
CREATE TABLE keys.mood_of (mood keys.good_mood, id int, done bool, PRIMARY KEY (mood, id));
INSERT INTO keys.mood_of SELECT (enum_range(NULL::keys.mood))[1 + n % 2], n FROM generate_series(1, 20) AS n;
CREATE TABLE keys.mood_copy (LIKE keys.mood_of INCLUDING ALL);
SELECT sweep.create_copy('keys.mood_of', 'keys.mood_copy', with_changes => true, name => 'keys mood', paused => true);
SELECT sweep.create_backfill('keys.mood_of', 'done = true', 'done IS NULL', name => 'keys mood', paused => true);
SELECT run_id FROM sweep.delete('keys.mood_of', 'id < 10', name => 'keys mood', batch_size => 3, keep_job => true) \gset
CALL sweep.wait(:run_id, '1 min');
SELECT args ->> 'key' AS key, (SELECT count(*) FROM keys.mood_of) FROM sweep.job WHERE name = 'keys mood';

-- lc_monetary decides how a key of money is written, and as what amount it is read; that of a yen, if this machine has it, knows no decimals
CREATE DOMAIN keys.amount AS money;
CREATE TABLE keys.price (k keys.amount PRIMARY KEY);
CREATE TABLE keys.prices (k money PRIMARY KEY);
INSERT INTO keys.price SELECT n::numeric::money FROM generate_series(1, 10) AS n;
SELECT sweep.create_copy('keys.price', 'keys.prices', name => 'keys of money', batch_size => 4, max_batches => 1, paused => true);
SELECT set_config('lc_monetary', coalesce((SELECT collname FROM pg_collation WHERE collname ~ '^(ja_JP|ko_KR)[.]utf8$' LIMIT 1), 'C'), false) \g /dev/null
CALL sweep.run('keys of money');
RESET lc_monetary;
SELECT cursor -> 'after' AS after FROM sweep.runs WHERE job = 'keys of money' ORDER BY run_id DESC LIMIT 1;
CALL sweep.run('keys of money');
SELECT count(*), max(k)::numeric FROM keys.prices;

SELECT count(sweep.drop_job(name)) FROM sweep.job WHERE name LIKE 'keys%';
DELETE FROM sweep.run_live WHERE job LIKE 'keys%';
DELETE FROM sweep.run_history WHERE job LIKE 'keys%';
DROP SCHEMA keys CASCADE;
