-- room: makers
-- What sweep.running says while the first run of a job that was made is in progress: how many rows there are, how far it is, and when it
-- will have ended. It is known from the statistics of the table, of an ordinary one as of a partitioned one.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS first_numbers CASCADE;
CREATE SCHEMA first_numbers;
CREATE TABLE first_numbers.seen (nth serial, job text, rows bigint, estimated_rows bigint, fraction numeric, has_eta bool);
CREATE FUNCTION first_numbers.look() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO first_numbers.seen (job, rows, estimated_rows, fraction, has_eta)
		SELECT r.job, r.rows, r.estimated_rows, r.fraction, r.eta IS NOT NULL FROM sweep.running r WHERE r.pid = pg_backend_pid();
	RETURN NULL;
END
$$;
CREATE PROCEDURE first_numbers.watch(target regclass, event text) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE TRIGGER look BEFORE %s ON %s FOR EACH STATEMENT EXECUTE FUNCTION first_numbers.look()', event, target);
END
$$;
\set first 'SELECT rows, estimated_rows, fraction, has_eta FROM first_numbers.seen WHERE rows = 400 ORDER BY nth DESC LIMIT 1'

-- ---------------------------------------------------------------- backfill
CREATE TABLE first_numbers.line (id int PRIMARY KEY, price int NOT NULL, total int);
INSERT INTO first_numbers.line SELECT n, n FROM generate_series(1, 1000) AS n;
ANALYZE first_numbers.line;
CALL first_numbers.watch('first_numbers.line', 'UPDATE');
SELECT sweep.create_backfill('first_numbers.line', 'total = price * 2', 'total IS NULL', paused => true, batch_size => 400, pause => NULL);
CALL sweep.run('backfill_line');
:first;
-- the partitions of a table, of two levels and with a name to be quoted, and one of them alone
CREATE TABLE first_numbers."Part" (id int PRIMARY KEY, total int) PARTITION BY RANGE (id);
CREATE TABLE first_numbers.part_1 PARTITION OF first_numbers."Part" FOR VALUES FROM (1) TO (500);
CREATE TABLE first_numbers.part_2 PARTITION OF first_numbers."Part" FOR VALUES FROM (500) TO (5000) PARTITION BY RANGE (id);
CREATE TABLE first_numbers.part_3 PARTITION OF first_numbers.part_2 DEFAULT;
INSERT INTO first_numbers."Part" SELECT n FROM generate_series(1, 1600) AS n;
ANALYZE first_numbers."Part", first_numbers.part_1, first_numbers.part_3;
CALL first_numbers.watch('first_numbers."Part"', 'UPDATE');
SELECT sweep.create_backfill('first_numbers."Part"', 'total = 1', 'total IS NULL', paused => true, batch_size => 400, pause => NULL);
CALL sweep.run('backfill_Part');
:first;
CALL first_numbers.watch('first_numbers.part_3', 'UPDATE');
SELECT sweep.create_backfill('first_numbers.part_3', 'total = 2', 'total = 1', paused => true, batch_size => 400, pause => NULL);
CALL sweep.run('backfill_part_3');
:first;
-- a table that was never analysed: not known, and the run goes on
CREATE TABLE first_numbers.fresh (id int PRIMARY KEY, total int) WITH (autovacuum_enabled = off);
INSERT INTO first_numbers.fresh SELECT n FROM generate_series(1, 1000) AS n;
CALL first_numbers.watch('first_numbers.fresh', 'UPDATE');
SELECT sweep.create_backfill('first_numbers.fresh', 'total = 1', 'total IS NULL', paused => true, batch_size => 400, pause => NULL);
SET client_min_messages = notice;
SELECT setval(pg_get_serial_sequence('sweep.run_live', 'run_id'), 7500000, false);
CALL sweep.run('backfill_fresh');
SET client_min_messages = warning;
:first;

-- ---------------------------------------------------------------- retention, copy
-- How many rows are too old, or are to be copied, no statistics say: it is not known unless the job has an estimate, or has drained before.
CREATE TABLE first_numbers.event (id int PRIMARY KEY, at timestamptz NOT NULL);
CREATE INDEX ON first_numbers.event (at);
INSERT INTO first_numbers.event SELECT n, now() - interval '1 day' * n FROM generate_series(1, 1000) AS n;
ANALYZE first_numbers.event;
CREATE TABLE first_numbers.event_copy (LIKE first_numbers.event INCLUDING ALL);
CALL first_numbers.watch('first_numbers.event_copy', 'INSERT');
SELECT sweep.create_copy('first_numbers.event', 'first_numbers.event_copy', paused => true, batch_size => 400, cursor => 'run', on_conflict => 'nothing');
CALL sweep.run('copy_event');
:first;
SELECT sweep.create_copy('first_numbers.event', 'first_numbers.event_copy', paused => true, batch_size => 400, cursor => 'run', on_conflict => 'nothing', replace => true,
	estimate => 'SELECT count(*) FROM first_numbers.event');
CALL sweep.run('copy_event');
:first;
CALL first_numbers.watch('first_numbers.event', 'DELETE');
SELECT sweep.create_retention('first_numbers.event', 'at', '100 days', paused => true, batch_size => 400);
CALL sweep.run('retention_event');
:first;
INSERT INTO first_numbers.event SELECT n, now() - interval '1 day' * n FROM generate_series(1001, 2000) AS n;
SELECT sweep.create_retention('first_numbers.event', 'at', '100 days', paused => true, batch_size => 400, replace => true,
	estimate => 'SELECT count(*) FROM first_numbers.event AS e WHERE e.at < ($1).as_of - interval ''100 days''');
CALL sweep.run('retention_event');
:first;

SELECT count(sweep.drop_job(j.name)) FROM sweep.job j WHERE j.name IN (SELECT s.job FROM first_numbers.seen s);
DELETE FROM sweep.run_live r WHERE r.job IN (SELECT s.job FROM first_numbers.seen s);
DELETE FROM sweep.run_history r WHERE r.job IN (SELECT s.job FROM first_numbers.seen s);
DROP SCHEMA first_numbers CASCADE;
