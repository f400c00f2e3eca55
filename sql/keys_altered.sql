-- room: makers
-- The columns by which a job goes are others, or of another type, before it has ended: the keys in its cursor are none of theirs.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
CREATE SCHEMA keys;
SELECT setval(pg_get_serial_sequence('sweep.run_live', 'run_id'), 7900000, false);
CREATE PROCEDURE keys.fill(type text) LANGUAGE plpgsql AS $$
BEGIN
	DROP TABLE IF EXISTS keys.t, keys.n;
	EXECUTE format('CREATE TABLE keys.t (gone int, k %1$s PRIMARY KEY, other %1$s NOT NULL UNIQUE, v int NOT NULL DEFAULT 0)', type);
	ALTER TABLE keys.t DROP gone;
	EXECUTE format('INSERT INTO keys.t SELECT (%1$s)::text::%2$s, (%3$s)::text::%2$s FROM generate_series(1, 100) AS n',
		CASE WHEN type LIKE 'timestamp%' THEN 'timestamp ''2026-01-01'' + n * interval ''1 hour''' ELSE 'n' END, type,
		CASE WHEN type LIKE 'timestamp%' THEN 'timestamp ''2026-01-01'' - n * interval ''1 hour''' ELSE '101 - n' END);
	CREATE TABLE keys.n (LIKE keys.t);
END $$;
CREATE PROCEDURE keys.exchange() LANGUAGE sql AS $$
	ALTER TABLE keys.t RENAME k TO third;
	ALTER TABLE keys.t RENAME other TO k;
	ALTER TABLE keys.t RENAME third TO other;
$$;

-- ---------------------------------------------------------------- in a run: two columns exchange their names
CALL keys.fill('int');
SELECT sweep.batched('UPDATE keys.t SET v = v + 1', name => 'keys', batch_size => 10, pause => '1 s', max_attempts => 1) AS run_id \gset
DO $$ BEGIN WHILE (SELECT sum(v) FROM keys.t) < 20 AND clock_timestamp() < statement_timestamp() + interval '1 min' LOOP COMMIT; PERFORM pg_sleep(0.02); END LOOP; END $$; -- the sleep is the work
CALL keys.exchange();
CALL sweep.wait(:run_id, '1 min');
SELECT max(v), sum(v) < 100 AS some FROM keys.t;
SELECT sweep.drop_job('keys');

CALL keys.fill('int');
SELECT sweep.create_copy('keys.t', 'keys.n', name => 'keys', batch_size => 10, pause => '1 s');
DO $$ BEGIN WHILE (SELECT count(*) FROM keys.n) < 20 AND clock_timestamp() < statement_timestamp() + interval '1 min' LOOP COMMIT; PERFORM pg_sleep(0.02); END LOOP; END $$; -- the sleep is the work
CALL keys.exchange();
DO $$ BEGIN WHILE EXISTS (SELECT FROM sweep.runs WHERE job = 'keys' AND finished_at IS NULL) AND clock_timestamp() < statement_timestamp() + interval '1 min' LOOP COMMIT; PERFORM pg_sleep(0.02); END LOOP; END $$; -- the sleep is the work
SELECT status, split_part(error, E'\n', 1) AS error, split_part(error, E'\n', 2) AS detail FROM sweep.runs WHERE job = 'keys' ORDER BY run_id DESC LIMIT 1;
SELECT count(*) < 100 AS some FROM keys.n;
SELECT sweep.drop_job('keys');

-- the name of a column alone
CALL keys.fill('int');
SELECT sweep.batched('UPDATE keys.t SET v = v + 1', name => 'keys', batch_size => 10, max_batches => 3, keep_job => true) AS run_id \gset
CALL sweep.wait(:run_id, '1 min');
ALTER TABLE keys.t RENAME other TO a;
CALL sweep.run('keys');
SELECT max(v), sum(v) FROM keys.t;
SELECT sweep.drop_job('keys');

-- ---------------------------------------------------------------- in a run: columns that both tables get, whose values would not be moved, or copied
CREATE PROCEDURE keys.ended() LANGUAGE plpgsql AS $$
BEGIN
	WHILE EXISTS (SELECT FROM sweep.runs WHERE job = 'keys' AND finished_at IS NULL) AND clock_timestamp() < statement_timestamp() + interval '1 min' LOOP
		COMMIT;
		PERFORM pg_sleep(0.02); -- the sleep is the work
	END LOOP;
END $$;
CREATE PROCEDURE keys.begun() LANGUAGE plpgsql AS $$
BEGIN
	WHILE (SELECT count(*) FROM keys.n) < 20 AND clock_timestamp() < statement_timestamp() + interval '1 min' LOOP
		COMMIT;
		PERFORM pg_sleep(0.02); -- the sleep is the work
	END LOOP;
END $$;
CALL keys.fill('timestamp');
SELECT sweep.create_retention('keys.t', 'k', '1 day', archive_to => 'keys.n', name => 'keys', batch_size => 10, pause => '1 s', schedule => NULL);
SELECT sweep.start('keys') IS NOT NULL AS started;
CALL keys.begun();
ALTER TABLE keys.n ADD late int;
ALTER TABLE keys.t ADD late int;
UPDATE keys.t SET late = 1;
CALL keys.ended();
SELECT status, split_part(error, E'\n', 1) AS error, split_part(error, E'\n', 2) AS detail FROM sweep.runs WHERE job = 'keys' ORDER BY run_id DESC LIMIT 1;
SELECT sweep.alter_job('keys', '{"pause": null}');
CALL sweep.run('keys');
SELECT (SELECT count(*) FROM keys.t), count(*), count(late) BETWEEN 10 AND 80 AS some, bool_and(late = 1) AS all_values FROM keys.n;
SELECT sweep.drop_job('keys');

CALL keys.fill('int');
SELECT sweep.create_copy('keys.t', 'keys.n', name => 'keys', batch_size => 10, pause => '1 s');
CALL keys.begun();
ALTER TABLE keys.n ADD late int;
ALTER TABLE keys.t ADD late int DEFAULT 1;
CALL keys.ended();
SELECT status, split_part(error, E'\n', 1) AS error, split_part(error, E'\n', 2) AS detail FROM sweep.runs WHERE job = 'keys' ORDER BY run_id DESC LIMIT 1;
SELECT sweep.alter_job('keys', '{"pause": null}');
CALL sweep.run('keys');
SELECT count(*), count(late) BETWEEN 10 AND 80 AS some FROM keys.n;
SELECT sweep.drop_job('keys');

-- of the other table alone: a value is not generated there any more, or a column comes to which there are values already
CREATE TABLE keys.aged (id int PRIMARY KEY, at timestamptz NOT NULL, twice int GENERATED ALWAYS AS (id * 2) STORED);
CREATE INDEX ON keys.aged (at);
INSERT INTO keys.aged SELECT n, now() - n * interval '1 day' FROM generate_series(11, 90) AS n;
DROP TABLE keys.n;
CREATE TABLE keys.n (id int, at timestamptz NOT NULL, twice int GENERATED ALWAYS AS (id * 2) STORED);
SELECT sweep.create_retention('keys.aged', 'at', '10 days', archive_to => 'keys.n', name => 'keys', batch_size => 10, pause => '1 s', schedule => NULL);
SELECT sweep.start('keys') IS NOT NULL AS started;
CALL keys.begun();
ALTER TABLE keys.n ALTER twice DROP EXPRESSION;
CALL keys.ended();
SELECT status, split_part(error, E'\n', 1) AS error, split_part(error, E'\n', 2) AS detail FROM sweep.runs WHERE job = 'keys' ORDER BY run_id DESC LIMIT 1;
SELECT sweep.alter_job('keys', '{"pause": null}');
CALL sweep.run('keys');
SELECT (SELECT count(*) FROM keys.aged), count(*), count(twice) FROM keys.n;
SELECT sweep.drop_job('keys');
DROP TABLE keys.aged;

CALL keys.fill('int');
ALTER TABLE keys.n DROP v;
SELECT sweep.create_copy('keys.t', 'keys.n', name => 'keys', batch_size => 10, pause => '1 s');
CALL keys.begun();
ALTER TABLE keys.n ADD v int;
CALL keys.ended();
SELECT status, split_part(error, E'\n', 1) AS error, split_part(error, E'\n', 2) AS detail FROM sweep.runs WHERE job = 'keys' ORDER BY run_id DESC LIMIT 1;
SELECT sweep.alter_job('keys', '{"pause": null}');
CALL sweep.run('keys');
SELECT count(*), count(v) BETWEEN 10 AND 80 AS some FROM keys.n;
SELECT sweep.drop_job('keys');

-- the type of an age that is an expression: its values would be compared by the zone of the session
CREATE TABLE keys.aged (id int PRIMARY KEY, at timestamptz NOT NULL);
CREATE INDEX ON keys.aged ((at AT TIME ZONE 'UTC'));
INSERT INTO keys.aged SELECT n, now() - interval '1 year' + n * interval '1 min' FROM generate_series(1, 50) AS n UNION ALL SELECT 100, now() - interval '20 hours';
SELECT sweep.create_retention('keys.aged', '(at AT TIME ZONE ''UTC'')', '1 day', name => 'keys', batch_size => 10, pause => '1 s', schedule => NULL, settings => '{"TimeZone": "America/Los_Angeles"}');
SELECT sweep.start('keys') IS NOT NULL AS started;
DO $$ BEGIN WHILE (SELECT count(*) FROM keys.aged) > 41 AND clock_timestamp() < statement_timestamp() + interval '1 min' LOOP COMMIT; PERFORM pg_sleep(0.02); END LOOP; END $$; -- the sleep is the work
ALTER TABLE keys.aged ALTER at TYPE timestamp USING at AT TIME ZONE 'UTC';
CALL keys.ended();
-- versions differ in the parentheses of an expression
SELECT status, translate(split_part(error, E'\n', 1), '()', '') AS error FROM sweep.runs WHERE job = 'keys' ORDER BY run_id DESC LIMIT 1;
SELECT sweep.alter_job('keys', '{"pause": null}');
CALL sweep.run('keys');
SELECT id FROM keys.aged WHERE id > 50;
SELECT sweep.drop_job('keys');

-- ---------------------------------------------------------------- between two runs: another type
CALL keys.fill('text');
SELECT run_id FROM sweep.delete('keys.t', 'v = 0', name => 'keys', batch_size => 10, max_batches => 3, keep_job => true) \gset
CALL sweep.wait(:run_id, '1 min');
ALTER TABLE keys.t ALTER k TYPE int USING k::int;
CALL sweep.run('keys');
SELECT count(*) FROM keys.t;
SELECT sweep.drop_job('keys');

CALL keys.fill('timestamp');
SELECT sweep.batched('UPDATE keys.t SET v = v + 1', name => 'keys', batch_size => 10, max_batches => 3, keep_job => true) AS run_id \gset
CALL sweep.wait(:run_id, '1 min');
ALTER TABLE keys.t ALTER k TYPE timestamptz USING k AT TIME ZONE 'Asia/Tokyo';
CALL sweep.run('keys');
SELECT max(v), sum(v) FROM keys.t;
SELECT sweep.drop_job('keys');

CALL keys.fill('text');
SELECT sweep.create_copy('keys.t', 'keys.n', name => 'keys', batch_size => 10, max_batches => 3, paused => true);
CALL sweep.run('keys');
ALTER TABLE keys.t ALTER k TYPE int USING k::int;
ALTER TABLE keys.n ALTER k TYPE int USING k::int;
CALL sweep.run('keys');
SELECT count(*) FROM keys.n;
SELECT sweep.drop_job('keys');

-- ---------------------------------------------------------------- the same order: longer numbers and texts, another table of that name
CALL keys.fill('int');
SELECT sweep.batched('UPDATE keys.t SET v = v + 1', name => 'keys', batch_size => 10, max_batches => 3, keep_job => true) AS run_id \gset
CALL sweep.wait(:run_id, '1 min');
ALTER TABLE keys.t ALTER k TYPE bigint;
CALL sweep.run('keys');
ALTER TABLE keys.t RENAME TO old;
CREATE TABLE keys.t (LIKE keys.old INCLUDING ALL);
INSERT INTO keys.t SELECT * FROM keys.old;
CALL sweep.run('keys');
SELECT sweep.alter_job('keys', '{"max_batches": null}');
CALL sweep.run('keys');
SELECT min(v), max(v), count(*) FROM keys.t;
SELECT sweep.drop_job('keys');
DROP TABLE keys.old;

CALL keys.fill('varchar(9)');
SELECT sweep.create_copy('keys.t', 'keys.n', name => 'keys', batch_size => 10, max_batches => 3, paused => true);
CALL sweep.run('keys');
ALTER TABLE keys.t ALTER k TYPE text;
SELECT sweep.alter_job('keys', '{"max_batches": null}');
CALL sweep.run('keys');
SELECT count(DISTINCT k) FROM keys.n;
SELECT sweep.drop_job('keys');

-- ---------------------------------------------------------------- between two runs: a key that its column cannot read any more
-- where rows that were done are known by that, the pass begins anew
CREATE TYPE keys.state AS ENUM ('a', 'b', 'c');
CREATE TYPE keys.pair AS (x int, y int);
CREATE TABLE keys.stated (at timestamptz, state keys.state NOT NULL, pair keys.pair NOT NULL, v int, PRIMARY KEY (state, pair));
CREATE INDEX ON keys.stated (at, state, pair);
INSERT INTO keys.stated SELECT '2026-01-01Z', s, row(n, n)::keys.pair, 0 FROM unnest(enum_range(NULL::keys.state)) AS s, generate_series(1, 20) AS n;
SELECT sweep.create_retention('keys.stated', 'at', '1 day', name => 'keys', batch_size => 7, max_batches => 1, schedule => NULL);
CALL sweep.run('keys');
ALTER TYPE keys.state RENAME VALUE 'a' TO 'first';
CALL sweep.run('keys');
SELECT count(*) FROM keys.stated;
SELECT sweep.drop_job('keys');
SELECT sweep.create_backfill('keys.stated', 'v = 1', 'v = 0', name => 'keys', batch_size => 7, max_batches => 1, paused => true);
CALL sweep.run('keys');
ALTER TYPE keys.pair ADD ATTRIBUTE z int;
CALL sweep.run('keys');
CALL sweep.run('keys');
SELECT count(*), sum(v) FROM keys.stated;
-- of a condition that raises it is the error of the run
SELECT sweep.alter_job('keys', jsonb_build_object('args', args || '{"condition": "1 / (v - v) > 0"}')) FROM sweep.job WHERE name = 'keys';
CALL sweep.run('keys');
SELECT sweep.drop_job('keys');
-- nor is it left out by a pass that begins anew, and ends before it
CREATE TABLE keys.parent (id int PRIMARY KEY, at timestamptz, v int);
CREATE INDEX ON keys.parent (at, id);
INSERT INTO keys.parent SELECT n, '2026-01-01Z', CASE n WHEN 12 THEN 0 ELSE 1 END FROM generate_series(1, 30) AS n;
CREATE TABLE keys.child (id int PRIMARY KEY REFERENCES keys.parent);
INSERT INTO keys.child SELECT n FROM generate_series(1, 9) AS n;
SELECT sweep.create_retention('keys.parent', 'at', '1 day', condition => '1 / v > 0', name => 'keys', batch_size => 7, max_batches => 1, schedule => NULL);
CALL sweep.run('keys');
CALL sweep.run('keys');
SELECT sweep.drop_job('keys');
DROP TABLE keys.child, keys.parent;
-- where they are known by the key alone, the run fails until it can be read
SELECT sweep.batched('UPDATE keys.stated SET v = v + 10', name => 'keys', batch_size => 7, max_batches => 1, keep_job => true) AS run_id \gset
CALL sweep.wait(:run_id, '1 min');
ALTER TYPE keys.state RENAME VALUE 'b' TO 'second';
CALL sweep.run('keys');
ALTER TYPE keys.state RENAME VALUE 'second' TO 'b';
SELECT sweep.alter_job('keys', '{"max_batches": null}');
CALL sweep.run('keys');
SELECT min(v) >= 10, max(v) < 20 FROM keys.stated;
SELECT sweep.drop_job('keys');
DROP TABLE keys.stated;

DELETE FROM sweep.run_live WHERE job = 'keys';
DELETE FROM sweep.run_history WHERE job = 'keys';
DROP SCHEMA keys CASCADE;
