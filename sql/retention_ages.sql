-- room: makers
-- Retention by an age that is an expression, and a time to live for each row.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS ages CASCADE;
CREATE SCHEMA ages;
SET timezone = 'Asia/Tokyo';
CREATE ROLE regress_sweep_ager LOGIN IN ROLE sweep_user;
GRANT USAGE ON SCHEMA ages TO regress_sweep_ager;
CREATE VIEW ages.last AS SELECT status, stop_reason AS stop, rows, batches, detail FROM sweep.runs WHERE job LIKE 'ages%' ORDER BY run_id DESC LIMIT 1;

-- each row says how long it is kept
CREATE TABLE ages.item (id int PRIMARY KEY, created_at timestamptz NOT NULL, keep_for interval);
INSERT INTO ages.item SELECT n, '2026-03-01Z'::timestamptz + n * interval '1 h', CASE n % 4 WHEN 0 THEN interval '1 day' WHEN 1 THEN interval '10 days' WHEN 2 THEN interval '1 month' END
	FROM generate_series(1, 1000) AS n;
SELECT sweep.create_retention('ages.item', '(created_at AT TIME ZONE ''UTC'') + keep_for', '0', name => 'ages', schedule => NULL);
CREATE INDEX ON ages.item ((timezone('UTC', created_at) + keep_for));
SELECT sweep.create_retention('ages.item', E'(created_at  AT TIME ZONE ''UTC'')+keep_for -- its end\n', '0', name => 'ages', schedule => NULL, batch_size => 30);
SELECT args - 'timezone' AS args FROM sweep.job WHERE name = 'ages';
SELECT count(*) AS expected FROM ages.item WHERE (created_at AT TIME ZONE 'UTC') + keep_for < '2026-03-21 12:00'
\gset
SELECT statement FROM (SELECT unnest(ARRAY[edge, work]) AS statement FROM sweep._retention_statements((SELECT args FROM sweep.job WHERE name = 'ages'), false, current_user::regrole, '2026-03-21 12:00Z', NULL, NULL) LIMIT 2) AS s;
CREATE FUNCTION ages.run(job text, as_of timestamptz) RETURNS TABLE (batches int, deleted bigint, last_cursor jsonb) LANGUAGE plpgsql AS $$
DECLARE
	p sweep.progress;
	at jsonb;
BEGIN
	batches := 0;
	deleted := 0;
	LOOP
		p := sweep.retention_step((30, at, (SELECT j.args FROM sweep.job j WHERE j.name = job), as_of, NULL, NULL, NULL, 1)::sweep.batch);
		EXIT WHEN p.rows = 0;
		batches := batches + 1;
		deleted := deleted + (p.detail ->> 'deleted')::int;
		at := p.cursor;
	END LOOP;
	last_cursor := at;
	RETURN NEXT;
END
$$;
SELECT batches, deleted = :expected AS as_expected, last_cursor FROM ages.run('ages', '2026-03-21 12:00Z');
SELECT count(*) FILTER (WHERE (created_at AT TIME ZONE 'UTC') + keep_for < '2026-03-21 12:00') AS wrong, count(*) FILTER (WHERE keep_for IS NULL) AS never FROM ages.item;
-- the whole of it now
CALL sweep.run('ages');
SELECT status, stop, (SELECT count(*) FROM ages.item) AS left FROM ages.last;

-- a text that is longer than a name, and one of several lines
CREATE TABLE ages.epoch (id int PRIMARY KEY, created_ms bigint);
CREATE INDEX ON ages.epoch (to_timestamp(created_ms / 1000.0));
CREATE INDEX ON ages.epoch ((CASE WHEN created_ms > 0 THEN to_timestamp(created_ms / 1000.0) END) DESC, id);
INSERT INTO ages.epoch SELECT n, CASE WHEN n % 5 <> 0 THEN extract(epoch FROM now() - n * interval '1 h') * 1000 END FROM generate_series(1, 100) AS n;
SELECT sweep.create_retention('ages.epoch', 'to_timestamp(created_ms / 1000.0)', '3 days', name => 'ages epoch', schedule => NULL, batch_size => 7);
SELECT sweep.create_retention('ages.epoch', 'CASE WHEN created_ms > 0 THEN to_timestamp(created_ms / 1000.0) END', '2 days', name => 'ages case', schedule => NULL, batch_size => 7);
CALL sweep.run('ages epoch');
SELECT status, stop, (SELECT max(id) FILTER (WHERE created_ms IS NOT NULL) FROM ages.epoch) AS oldest, (SELECT count(*) FROM ages.epoch) AS left FROM ages.last;
CALL sweep.run('ages case');
SELECT status, stop, (SELECT max(id) FILTER (WHERE created_ms IS NOT NULL) FROM ages.epoch) AS oldest, (SELECT count(*) FROM ages.epoch) AS left FROM ages.last;

-- a column that says when it ends, and keep 0
CREATE TABLE ages.session (id int PRIMARY KEY, expires_at timestamptz);
CREATE INDEX ON ages.session (expires_at);
INSERT INTO ages.session VALUES (1, now() - interval '1 s'), (2, now() + interval '1 h'), (3, NULL);
SELECT sweep.create_retention('ages.session', 'expires_at', '0', name => 'ages 2', schedule => NULL);
CALL sweep.run('ages 2');
SELECT id FROM ages.session ORDER BY id;
SELECT sweep.create_retention('ages.session', 'expires_at', '-1 s', name => 'ages 3');

-- a column whose name is in quotes, as messages show it, in parentheses or with its table
CREATE TABLE ages.quoted (id int PRIMARY KEY, "At" timestamptz NOT NULL);
SELECT sweep.create_retention('ages.quoted', '"At"', '1 day', name => 'ages 3');
CREATE INDEX ON ages.quoted (("At"));
INSERT INTO ages.quoted VALUES (1, '2026-01-01Z'), (2, 'infinity');
SELECT sweep.create_retention('ages.quoted', age, '1 day', name => 'ages 3', schedule => NULL, replace => true) FROM unnest('{"(\"At\")", "quoted.\"At\"", "\"At\""}'::text[]) AS age;
SELECT args ->> 'age_column' AS age FROM sweep.job WHERE name = 'ages 3';
CALL sweep.run('ages 3');
SELECT id FROM ages.quoted;
SELECT sweep.create_retention('ages.quoted', 'quoted', '1 day', name => 'ages 4', replace => true);

-- a second column of the index, partitions, and names that only the settings of the job know
CREATE TABLE ages.part (id int NOT NULL, at timestamp NOT NULL, "Plus days" int NOT NULL) PARTITION BY HASH (id);
CREATE TABLE ages.part_0 PARTITION OF ages.part FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE ages.part_1 PARTITION OF ages.part FOR VALUES WITH (MODULUS 2, REMAINDER 1);
CREATE FUNCTION ages.ends(timestamp, int) RETURNS timestamp LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$ SELECT $1 + $2 * interval '1 day' $$;
CREATE INDEX ON ages.part (ages.ends(at, "Plus days"), id);
INSERT INTO ages.part SELECT n, '2026-01-01', n % 20 FROM generate_series(1, 200) AS n;
GRANT SELECT, DELETE ON ages.part, ages.part_0, ages.part_1 TO regress_sweep_ager;
\set VERBOSITY sqlstate
SELECT sweep.create_retention('ages.part', 'ends(at, "Plus days")', '1 day', name => 'ages 4', schedule => NULL, run_as => 'regress_sweep_ager');
\set VERBOSITY default
SELECT sweep.create_retention('ages.part', 'ends(at, "Plus days")', '1 day', name => 'ages 4', schedule => NULL, run_as => 'regress_sweep_ager', settings => '{"search_path": "ages"}', batch_size => 30);
SELECT args ->> 'age_column' AS age FROM sweep.job WHERE name = 'ages 4';
SELECT * FROM ages.run('ages 4', '2026-01-11Z');
SELECT min("Plus days"), count(*) FROM ages.part;

-- refused
SELECT sweep.create_retention('ages.item', 'nothing', '1 day', name => 'ages 5');
SELECT sweep.create_retention('ages.item', 'created_at +', '1 day', name => 'ages 5');
SELECT sweep.create_retention('ages.item', 'created_at); SELECT (1', '1 day', name => 'ages 5');
SELECT sweep.create_retention('ages.item', 'created_at + $1', '1 day', name => 'ages 5');
SELECT sweep.create_retention('ages.item', 'nothing + keep_for', '1 day', name => 'ages 5');
CREATE INDEX ON ages.item ((id + 1));
SELECT sweep.create_retention('ages.item', 'id + 1', '1 day', name => 'ages 5');
SELECT sweep.create_retention('ages.part', 'ages.ends(at, "Plus days")', '1 day', name => 'ages 5', partitions => 'drop');
-- an index that is gone
DROP INDEX ages.item_expr_idx1;
SELECT format('DROP INDEX %s', indexrelid::regclass) FROM pg_index WHERE indrelid = 'ages.item'::regclass AND indexprs IS NOT NULL \gexec
\set VERBOSITY sqlstate
CALL sweep.run('ages');
\set VERBOSITY default
SELECT error FROM sweep.runs WHERE job = 'ages' AND status = 'failed';

-- ---------------------------------------------------------------- another type, between two batches: a date is kept until its day is over
CREATE TABLE ages.day (id int PRIMARY KEY, at timestamptz NOT NULL);
CREATE INDEX ON ages.day (at);
INSERT INTO ages.day SELECT n, now() - interval '1 day' * CASE WHEN n > 20 THEN 2 ELSE 10 + n END - interval '1 second' FROM generate_series(1, 30) AS n;
SELECT sweep.create_retention('ages.day', 'at', '2 days', name => 'ages day', batch_size => 5, pause => '1 s', paused => true);
SELECT sweep.start('ages day') AS run_id \gset
DO $$ BEGIN WHILE (SELECT count(*) FROM ages.day) > 25 AND clock_timestamp() < statement_timestamp() + interval '1 min' LOOP COMMIT; PERFORM pg_sleep(0.02); END LOOP; END $$; -- the sleep is the work
ALTER TABLE ages.day ALTER at TYPE date USING (at AT TIME ZONE 'UTC')::date;
DO $$ BEGIN WHILE EXISTS (SELECT FROM sweep.runs WHERE job = 'ages day' AND finished_at IS NULL) AND clock_timestamp() < statement_timestamp() + interval '1 min' LOOP COMMIT; PERFORM pg_sleep(0.02); END LOOP; END $$; -- the sleep is the work
SELECT status, split_part(error, E'\n', 1) AS error FROM sweep.runs WHERE run_id = :run_id;
CALL sweep.run('ages day');
SELECT stop, rows FROM ages.last;
SELECT count(*), count(*) FILTER (WHERE id > 20) AS too_young FROM ages.day;

-- ---------------------------------------------------------------- hours pass, also where the clock of the zone goes from two to three, or has an hour twice
CREATE TABLE ages.clock (id int PRIMARY KEY, at timestamptz NOT NULL);
CREATE INDEX ON ages.clock (at);
CREATE TABLE ages.shown (id int PRIMARY KEY, at timestamp NOT NULL);
CREATE INDEX ON ages.shown (at);
CREATE TABLE ages.both AS SELECT n AS id, '2026-03-28 23:00Z'::timestamptz + n * interval '10 min' AS at FROM generate_series(1, 13) AS n
	UNION ALL SELECT 100 + n, '2026-10-24 23:00Z'::timestamptz + n * interval '10 min' FROM generate_series(1, 15) AS n;
SELECT sweep.create_retention('ages.' || t, 'at', '1 hour', name => 'ages ' || t, schedule => NULL, timezone => 'Europe/Berlin') FROM unnest('{clock,shown}'::text[]) AS t;
CREATE FUNCTION ages.left_at(as_of timestamptz, OUT clock interval, OUT shown interval) LANGUAGE plpgsql AS $$
BEGIN
	TRUNCATE ages.clock, ages.shown;
	INSERT INTO ages.clock SELECT id, at FROM ages.both WHERE at <= as_of;
	INSERT INTO ages.shown SELECT id, at AT TIME ZONE 'Europe/Berlin' FROM ages.both WHERE at <= as_of;
	PERFORM ages.run('ages clock', as_of), ages.run('ages shown', as_of);
	SELECT max(as_of - b.at) FILTER (WHERE c.id IS NOT NULL), max(as_of - b.at) FILTER (WHERE s.id IS NOT NULL) INTO clock, shown
		FROM ages.both AS b LEFT JOIN ages.clock AS c ON c.id = b.id LEFT JOIN ages.shown AS s ON s.id = b.id;
END
$$;
-- the age of the oldest row that is kept, and with nothing kept how much is left for later
SELECT m AT TIME ZONE 'UTC' AS as_of, a.* FROM unnest('{2026-03-29 00:50Z,2026-03-29 01:10Z,2026-10-25 00:30Z,2026-10-25 01:10Z,2026-10-25 01:30Z}'::timestamptz[]) AS m CROSS JOIN LATERAL ages.left_at(m) AS a;
TRUNCATE ages.clock;
INSERT INTO ages.clock SELECT id, at FROM ages.both;
SELECT sweep.alter_job('ages clock', jsonb_build_object('args', args || '{"keep": "0"}')) FROM sweep.job WHERE name = 'ages clock';
SELECT deleted FROM ages.run('ages clock', '2026-10-25 00:30Z');
SELECT min(at - '2026-10-25 00:30Z'::timestamptz) AS least FROM ages.clock;

-- ---------------------------------------------------------------- partitions, in a DateStyle that calls the zone CST, which PostgreSQL reads as that of Chicago until version 17
CREATE TABLE ages.visit (at timestamptz NOT NULL) PARTITION BY RANGE (at);
DO $$ BEGIN EXECUTE format('CREATE TABLE ages.visit_1 PARTITION OF ages.visit FOR VALUES FROM (%L) TO (%L)', now() - interval '10 days', now() - interval '22 hours'); END $$;
CREATE INDEX ON ages.visit (at);
INSERT INTO ages.visit VALUES (now() - interval '23 hours'), (now() - interval '25 hours');
SELECT sweep.create_retention('ages.visit', 'at', '1 day', name => 'ages visit', partitions => 'drop', settings => '{"DateStyle": "SQL, DMY", "TimeZone": "Asia/Shanghai"}');
CALL sweep.run('ages visit');
SELECT status, detail FROM ages.last;
SELECT sweep.create_partitions('ages.visit', '1 hour', keep => '1 day', name => 'ages visit 2', settings => '{"DateStyle": "SQL, DMY", "TimeZone": "Asia/Shanghai"}');
CALL sweep.run('ages visit 2');
SELECT status, detail ? 'made' AS made, detail -> 'dropped' AS dropped FROM ages.last;
SELECT count(*) FROM ages.visit;

SELECT count(sweep.drop_job(name)) FROM sweep.job WHERE name LIKE 'ages%';
DELETE FROM sweep.run_live WHERE job LIKE 'ages%';
DELETE FROM sweep.run_history WHERE job LIKE 'ages%';
DROP SCHEMA ages CASCADE;
DROP ROLE regress_sweep_ager;
