-- room: makers
-- Constraints that PostgreSQL 18 need not check, and keys of times that do not overlap. Before, the column is nullable and there is no foreign key, or
-- the times are equal, which is to come to the same.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS unchecked CASCADE;
CREATE SCHEMA unchecked;
SELECT setval(pg_get_serial_sequence('sweep.run_live', 'run_id'), 7990000, false);
CREATE PROCEDURE unchecked.alter(command text) LANGUAGE plpgsql AS $$
BEGIN
	IF current_setting('server_version_num')::int >= 180000 THEN
		EXECUTE 'ALTER TABLE unchecked.' || command;
	END IF;
END $$;

-- ---------------------------------------------------------------- NOT NULL that is not valid: rows from before have a null, which is in no range
CREATE PROCEDURE unchecked.fill() LANGUAGE plpgsql AS $$
BEGIN
	DROP TABLE IF EXISTS unchecked.t, unchecked.n;
	CREATE TABLE unchecked.t (k int UNIQUE, at timestamptz, v int DEFAULT 0);
	CREATE INDEX ON unchecked.t (at, k);
	INSERT INTO unchecked.t SELECT nullif(n, 0), now() - interval '1 year' FROM generate_series(0, 100) AS n UNION ALL SELECT NULL, now() - interval '1 year' FROM generate_series(1, 9);
	CREATE TABLE unchecked.n (LIKE unchecked.t);
	CALL unchecked.alter('t ADD CONSTRAINT later NOT NULL k NOT VALID');
END $$;
CALL unchecked.fill();
SELECT sweep.batched('UPDATE unchecked.t SET v = v + 1', name => 'unchecked', batch_size => 10);
SELECT sweep.create_backfill('unchecked.t', 'v = 1', 'v = 0', order_by => 'k', name => 'unchecked', batch_size => 10);
SELECT sweep.create_copy('unchecked.t', 'unchecked.n', order_by => 'k', name => 'unchecked', batch_size => 10);
-- where no row of the condition has a null, it is an order for these
SELECT sweep.batched('UPDATE unchecked.t SET v = v + 1 WHERE k > 0', name => 'unchecked', batch_size => 10, keep_job => true) AS run_id \gset
CALL sweep.wait(:run_id, '1 min');
SELECT args ->> 'key' AS key, (SELECT sum(v) FROM unchecked.t) FROM sweep.job WHERE name = 'unchecked';
SELECT sweep.drop_job('unchecked');
SELECT run_id FROM sweep.delete('unchecked.t', 'v < 10', name => 'unchecked', batch_size => 10, keep_job => true) \gset
CALL sweep.wait(:run_id, '1 min');
SELECT args ->> 'key' AS key, (SELECT count(*) FROM unchecked.t) FROM sweep.job WHERE name = 'unchecked';
SELECT sweep.drop_job('unchecked');
CALL unchecked.fill();
SELECT sweep.create_retention('unchecked.t', 'at', '10 days', name => 'unchecked', schedule => NULL, batch_size => 10);
CALL sweep.run('unchecked');
SELECT count(*), (SELECT kept FROM sweep.retentions WHERE job = 'unchecked') FROM unchecked.t;
SELECT sweep.drop_job('unchecked');

-- it is an order for all rows when it was validated
CALL unchecked.fill();
DELETE FROM unchecked.t WHERE k IS NULL;
CALL unchecked.alter('t VALIDATE CONSTRAINT later');
ALTER TABLE unchecked.t ALTER k SET NOT NULL;
SELECT sweep.batched('UPDATE unchecked.t SET v = v + 1', name => 'unchecked', batch_size => 10, keep_job => true) AS run_id \gset
CALL sweep.wait(:run_id, '1 min');
SELECT args ->> 'key' AS key, (SELECT sum(v) FROM unchecked.t), (SELECT max(v) FROM unchecked.t) FROM sweep.job WHERE name = 'unchecked';
SELECT sweep.drop_job('unchecked');

-- ---------------------------------------------------------------- a foreign key that is not enforced: no row goes with another one by it, nor is kept
CREATE TABLE unchecked.parent (id int PRIMARY KEY, at timestamptz);
CREATE INDEX ON unchecked.parent (at);
CREATE TABLE unchecked.child (id int PRIMARY KEY, parent int);
CREATE TABLE unchecked.bill (id int PRIMARY KEY, parent int REFERENCES unchecked.parent);
CREATE INDEX ON unchecked.bill (parent);
CALL unchecked.alter('child ADD FOREIGN KEY (parent) REFERENCES unchecked.parent ON DELETE CASCADE NOT ENFORCED');
INSERT INTO unchecked.parent SELECT n, now() - n * interval '1 day' FROM generate_series(1, 100) AS n;
INSERT INTO unchecked.child SELECT n, n FROM generate_series(1, 100) AS n;
INSERT INTO unchecked.bill SELECT n, n FROM generate_series(50, 52) AS n;
SELECT sweep.create_retention('unchecked.parent', 'at', '20 days', name => 'unchecked', schedule => NULL, batch_size => 10);
CALL sweep.run('unchecked');
SELECT detail FROM sweep.runs WHERE job = 'unchecked' ORDER BY run_id DESC LIMIT 1;
SELECT sweep.alter_job('unchecked', jsonb_build_object('args', args || '{"cascade": "refuse"}')) FROM sweep.job WHERE name = 'unchecked';
CALL sweep.run('unchecked');
SELECT tables FROM sweep.delete('unchecked.parent', 'id < 5', dry_run => true);
SELECT run_id FROM sweep.delete('unchecked.parent', 'id < 5') \gset
CALL sweep.wait(:run_id, '1 min');
SELECT detail FROM sweep.runs WHERE run_id = :run_id;
SELECT (SELECT count(*) FROM unchecked.parent), (SELECT count(*) FROM unchecked.child);

-- ---------------------------------------------------------------- keys of times: each row is updated once by another unique key, and a foreign key goes by an index of what overlaps
CREATE TABLE unchecked.room (sid int NOT NULL UNIQUE, id int4range, during daterange, v int DEFAULT 0);
CREATE TABLE unchecked.stay (room int4range, during daterange);
DO $$
BEGIN
	IF current_setting('server_version_num')::int >= 180000 THEN
		EXECUTE 'ALTER TABLE unchecked.room ADD PRIMARY KEY (id, during WITHOUT OVERLAPS)';
		EXECUTE 'ALTER TABLE unchecked.stay ADD FOREIGN KEY (room, PERIOD during) REFERENCES unchecked.room (id, PERIOD during)';
		CREATE INDEX ON unchecked.stay USING gist (room, during);
	ELSE
		ALTER TABLE unchecked.room ADD UNIQUE (id, during);
		ALTER TABLE unchecked.stay ADD FOREIGN KEY (room, during) REFERENCES unchecked.room (id, during);
		CREATE INDEX ON unchecked.stay (room, during);
	END IF;
END $$;
INSERT INTO unchecked.room SELECT n, int4range(n % 7, n % 7, '[]'), daterange('2026-01-01'::date + n, '2026-01-02'::date + n) FROM generate_series(1, 100) AS n;
INSERT INTO unchecked.stay SELECT id, during FROM unchecked.room WHERE sid IN (5, 50);
SELECT sweep.batched('UPDATE unchecked.room SET v = v + 1', name => 'unchecked times', batch_size => 10, keep_job => true) AS run_id \gset
CALL sweep.wait(:run_id, '1 min');
SELECT args ->> 'key' AS key, (SELECT sum(v) FROM unchecked.room), (SELECT max(v) FROM unchecked.room) FROM sweep.job WHERE name = 'unchecked times';
SELECT sweep.drop_job('unchecked times');
SELECT run_id FROM sweep.delete('unchecked.room', 'true', name => 'unchecked times', batch_size => 10) \gset
CALL sweep.wait(:run_id, '1 min');
SELECT detail, (SELECT array_agg(sid ORDER BY sid) FROM unchecked.room) AS left FROM sweep.runs WHERE run_id = :run_id;

SELECT sweep.drop_job(name) FROM sweep.job WHERE name LIKE 'unchecked%' OR name LIKE 'delete_parent%';
DELETE FROM sweep.run_live WHERE job LIKE 'unchecked%' OR job LIKE 'delete_parent%';
DELETE FROM sweep.run_history WHERE job LIKE 'unchecked%' OR job LIKE 'delete_parent%';
DROP SCHEMA unchecked CASCADE;
