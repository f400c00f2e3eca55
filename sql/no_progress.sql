-- room: engine
-- Nothing runs away: batches that go on reporting rows end with no_progress after a bounded amount of work, and
-- those that get on are never ended. Without the time that is allowed for, so that only the work counts. What others do
-- meanwhile is in test/t/endless_runs.pl, what is refused in create_job.
\set SHOW_CONTEXT never
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS runaway CASCADE;
CREATE SCHEMA runaway;
SELECT setval(pg_get_serial_sequence('sweep.run_live', 'run_id'), 4700000, false);
SET pg_sweep.no_progress_after = 0;

CREATE TABLE runaway.item (id int PRIMARY KEY, tenant int NOT NULL, done boolean, v text);
CREATE TABLE runaway.other (id int, tenant int, done boolean, v text);
CREATE TABLE runaway.log (at timestamptz DEFAULT clock_timestamp());
CREATE PROCEDURE runaway.fill(n int) LANGUAGE sql AS $$
	TRUNCATE runaway.item, runaway.other, runaway.log;
	INSERT INTO runaway.item SELECT i, i % 3, NULL, 'v' FROM generate_series(1, n) AS i;
$$;
-- What became of the runs; "bounded": within twice the rows of the table, a page of it and ten batches.
CREATE VIEW runaway.ended AS
	SELECT job, status, stop_reason, rows <= 2 * 300 + 400 AS bounded, rows, sqlstate FROM sweep.runs WHERE job LIKE 'runaway%' ORDER BY run_id;
CREATE VIEW runaway.last_run AS
	SELECT job, status, stop_reason, bounded, rows, sqlstate FROM runaway.ended OFFSET (SELECT count(*) - 1 FROM runaway.ended);

-- A step that does what its args say, and returns a number of rows and a cursor that they say.
CREATE FUNCTION runaway.step(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
DECLARE
	n bigint := 0;
	next jsonb;
BEGIN
	IF b.args ? 'sql' THEN
		EXECUTE b.args ->> 'sql' USING b;
		GET DIAGNOSTICS n = ROW_COUNT;
	END IF;
	IF b.args ? 'cursor' THEN
		EXECUTE 'SELECT ' || (b.args ->> 'cursor') INTO next USING b;
	END IF;
	IF b.args ? 'rows' THEN
		EXECUTE 'SELECT ' || (b.args ->> 'rows') INTO n USING b, n;
	END IF;
	RETURN ROW(n, next, NULL)::sweep.progress;
END
$$;
CREATE FUNCTION runaway.pick(b sweep.batch) RETURNS SETOF jsonb LANGUAGE sql AS $$ SELECT to_jsonb(id) FROM runaway.item ORDER BY id LIMIT b.size $$;

-- ------------------------------------------------------------------ what runs away
SELECT sweep.create_job('runaway ' || name, batch_size => 10, batch_sql => text) FROM (VALUES
	('update', 'UPDATE runaway.item SET v = ''w'' WHERE id IN (SELECT id FROM runaway.item LIMIT $1)'),
	('upsert', 'INSERT INTO runaway.item SELECT * FROM runaway.item LIMIT $1 ON CONFLICT (id) DO UPDATE SET v = excluded.v'),
	('insert', 'INSERT INTO runaway.other SELECT * FROM runaway.item LIMIT $1'),
	('merge', 'MERGE INTO runaway.item AS i USING (SELECT id FROM runaway.item LIMIT $1) AS s ON s.id = i.id WHEN MATCHED THEN UPDATE SET v = ''w'''),
	('again', 'WITH gone AS (DELETE FROM runaway.other WHERE ctid = ANY (ARRAY(SELECT ctid FROM runaway.other LIMIT $1)) RETURNING *) INSERT INTO runaway.other SELECT * FROM gone'),
	-- one row each time, also when nothing is left
	('count', 'WITH gone AS (DELETE FROM runaway.item WHERE id IN (SELECT id FROM runaway.item LIMIT $1) RETURNING id) SELECT count(*) FROM gone'),
	-- its TOAST table has fewer rows after each second batch
	('toast', 'UPDATE runaway.item SET v = CASE WHEN length(v) > 9 THEN ''v'' ELSE (SELECT string_agg(md5(n::text), '''') FROM generate_series(1, 200) AS n) END WHERE id <= $1')
) AS r (name, text) \g /dev/null
SELECT sweep.create_job('runaway ' || name, batch_size => 10, step => 'runaway.step', args => args) FROM (VALUES
	('one', '{"rows": "1"}'::jsonb),
	('log', '{"sql": "INSERT INTO runaway.log DEFAULT VALUES"}'),
	('circle', '{"sql": "SELECT FROM runaway.item LIMIT ($1).size", "cursor": "to_jsonb((coalesce(($1).cursor::int, 0) + 1) % 3)"}'),
	('constant', '{"sql": "UPDATE runaway.item SET v = v WHERE id <= ($1).size", "cursor": "''{\"phase\": 1}''::jsonb"}'),
	-- through the whole table, and from the start again
	('start', '{"sql": "SELECT FROM runaway.item WHERE id > coalesce(($1).cursor::int, 0) ORDER BY id LIMIT ($1).size", "cursor": "nullif(coalesce(($1).cursor::int, 0) + 10, 300)::text::jsonb"}')
) AS r (name, args) \g /dev/null
SELECT sweep.create_job('runaway pick', batch_size => 10, pick => 'runaway.pick', step => 'runaway.step', args => '{"rows": "1"}', max_attempts => 2);
CALL runaway.fill(300);
INSERT INTO runaway.other SELECT * FROM runaway.item;
-- each in turn, when the number of rows is known exactly
\set ECHO none
SELECT CASE WHEN name = 'update' THEN 'TRUNCATE runaway.other' END, 'DO $$ BEGIN PERFORM pg_stat_force_next_flush(); END $$',
		'VACUUM ANALYZE runaway.item, runaway.other, runaway.log', format('CALL sweep.run(%L)', 'runaway ' || name)
	FROM unnest('{again,update,upsert,insert,merge,toast,one,log,circle,constant,start,pick,count}'::text[]) WITH ORDINALITY AS r (name, nth) ORDER BY nth \gexec
\set ECHO all
SELECT job, status, stop_reason, bounded, sqlstate FROM runaway.ended;
SELECT count(*) AS left FROM runaway.item;
-- the error says why, and what to change
SELECT job, regexp_replace(error, '\d+', 'N', 'g') AS error FROM sweep.runs WHERE job IN ('runaway one', 'runaway circle', 'runaway update', 'runaway pick') ORDER BY job \gx
-- it is not tried again: it would run away again
SELECT count(*) FROM sweep.runs WHERE job LIKE 'runaway%' AND trigger = 'retry';
-- a limit ends it before, and the setting may be off
CALL runaway.fill(300);
SELECT sweep.alter_job('runaway update', '{"max_batches": 5}');
CALL sweep.run('runaway update');
SELECT job, status, stop_reason, rows FROM runaway.last_run;
SET pg_sweep.no_progress_after = -1;
SELECT sweep.alter_job('runaway update', '{"max_batches": 200}');
CALL sweep.run('runaway update');
SELECT job, status, stop_reason, rows FROM runaway.last_run;
-- who is no superuser cannot switch it off
CREATE ROLE regress_sweep_runaway;
SET ROLE regress_sweep_runaway;
SET pg_sweep.no_progress_after = -1;
RESET ROLE;
DROP ROLE regress_sweep_runaway;
SET pg_sweep.no_progress_after = 0;

-- ------------------------------------------------------------------ what gets on
-- twice as many rows as there are say the statistics, and the planner
CREATE TABLE runaway.parent (id int PRIMARY KEY);
CREATE TABLE runaway.child (id int PRIMARY KEY, parent int REFERENCES runaway.parent ON DELETE CASCADE);
CREATE INDEX ON runaway.child (parent);
CREATE FUNCTION runaway.audit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO runaway.log SELECT FROM generate_series(1, 3); RETURN NULL; END $$;
CREATE TRIGGER audit AFTER DELETE ON runaway.parent FOR EACH ROW EXECUTE FUNCTION runaway.audit();
INSERT INTO runaway.parent SELECT generate_series(1, 500);
INSERT INTO runaway.child SELECT i, i FROM generate_series(1, 500) AS i;
CREATE TABLE runaway.part (id int, day int, done boolean) PARTITION BY LIST (day);
SELECT format('CREATE TABLE runaway.part_%s PARTITION OF runaway.part FOR VALUES IN (%s)', i, i) FROM generate_series(1, 20) AS i \gexec
INSERT INTO runaway.part SELECT i, i % 20 + 1, NULL FROM generate_series(1, 4000) AS i;
SELECT format('CREATE TABLE runaway.old_%s ()', i) FROM generate_series(1, 30) AS i \gexec
-- One partition after the other, each by its own name.
CREATE TABLE runaway.day (day int);
INSERT INTO runaway.day VALUES (1);
CREATE FUNCTION runaway.by_partition(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
DECLARE
	today int := (SELECT day FROM runaway.day);
	n int := 0;
BEGIN
	WHILE n = 0 AND today <= 20 LOOP
		EXECUTE format('UPDATE runaway.part_%1$s SET done = true WHERE ctid = ANY (ARRAY(SELECT ctid FROM runaway.part_%1$s WHERE done IS NULL LIMIT $1))', today) USING b.size;
		GET DIAGNOSTICS n = ROW_COUNT;
		today := today + (n = 0)::int;
	END LOOP;
	UPDATE runaway.day SET day = today;
	RETURN ROW(n, NULL, NULL)::sweep.progress;
END
$$;
SELECT sweep.create_job('runaway not partitions', batch_size => 5, step => 'runaway.by_partition');

SELECT sweep.create_job('runaway not ' || name, batch_size => 10, batch_sql => text) FROM (VALUES
	('purge', 'DELETE FROM runaway.item WHERE id IN (SELECT id FROM runaway.item LIMIT $1)'),
	('update', 'UPDATE runaway.item SET done = true WHERE id IN (SELECT id FROM runaway.item WHERE done IS NULL LIMIT $1)'),
	('copy', 'INSERT INTO runaway.other SELECT * FROM runaway.item AS i WHERE NOT EXISTS (SELECT FROM runaway.other AS o WHERE o.id = i.id) LIMIT $1'),
	('archive', 'WITH gone AS (DELETE FROM runaway.item WHERE id IN (SELECT id FROM runaway.item LIMIT $1) RETURNING *) INSERT INTO runaway.other SELECT * FROM gone'),
	('cascade', 'DELETE FROM runaway.parent WHERE id IN (SELECT id FROM runaway.parent LIMIT $1)')
) AS r (name, text) \g /dev/null
SELECT sweep.create_job('runaway not ' || name, batch_size => 10, step => 'runaway.step', args => args) FROM (VALUES
	('read', '{"sql": "SELECT FROM runaway.item WHERE id > coalesce(($1).cursor::int, 0) ORDER BY id LIMIT ($1).size", "cursor": "to_jsonb(coalesce(($1).cursor::int, 0) + 10)"}'::jsonb),
	('one', '{"rows": "(coalesce(($1).cursor::int, 0) < 3000)::int", "cursor": "to_jsonb(coalesce(($1).cursor::int, 0) + 1)"}'),
	('round delete', '{"sql": "DELETE FROM runaway.item WHERE id IN (SELECT id FROM runaway.item WHERE tenant = coalesce(($1).cursor::int, 0) LIMIT ($1).size)", "cursor": "to_jsonb((coalesce(($1).cursor::int, 0) + 1) % 3)"}'),
	('round update', '{"sql": "UPDATE runaway.item SET done = true WHERE id IN (SELECT id FROM runaway.item WHERE done IS NULL AND tenant = coalesce(($1).cursor::int, 0) LIMIT ($1).size)", "cursor": "to_jsonb((coalesce(($1).cursor::int, 0) + 1) % 3)"}'),
	('constant', '{"sql": "DELETE FROM runaway.item WHERE id IN (SELECT id FROM runaway.item LIMIT ($1).size)", "cursor": "''1''::jsonb"}'),
	-- counts something larger than what it changes
	('bytes', '{"sql": "UPDATE runaway.item SET done = true WHERE id IN (SELECT id FROM runaway.item WHERE done IS NULL LIMIT ($1).size)", "rows": "$2 * 8192"}'),
	('drop', '{"sql": "DO $do$ DECLARE t regclass; BEGIN SELECT oid INTO t FROM pg_class WHERE relname LIKE ''old\\_%'' AND relnamespace = ''runaway''::regnamespace LIMIT 1; IF FOUND THEN EXECUTE ''DROP TABLE '' || t; END IF; END $do$", "rows": "(SELECT count(*) * 1000000 FROM pg_class WHERE relname LIKE ''old\\_%'' AND relnamespace = ''runaway''::regnamespace)"}')
) AS r (name, args) \g /dev/null

-- The statistics of the planner are from when there were few.
CREATE PROCEDURE runaway.outgrow(n int) LANGUAGE plpgsql AS $$
BEGIN
	CALL runaway.fill(10);
	ANALYZE runaway.item;
	INSERT INTO runaway.item SELECT i, i % 3, NULL, 'v' FROM generate_series(11, n) AS i;
END
$$;
\set ECHO none
SELECT 'CALL runaway.' || rows, format('CALL sweep.run(%L)', 'runaway not ' || name) FROM (VALUES
	(1, 'outgrow(3000)', 'purge'), (2, 'outgrow(3000)', 'update'), (3, 'outgrow(3000)', 'archive'), (4, 'fill(3000)', 'copy'), (5, NULL, 'read'), (6, NULL, 'one'),
	(7, 'fill(300)', 'round update'), (8, 'fill(300)', 'bytes'), (9, NULL, 'round delete'), (10, 'fill(300)', 'constant'), (11, NULL, 'partitions'), (12, NULL, 'drop'),
	(13, NULL, 'cascade')) AS r (nth, rows, name) ORDER BY nth \gexec
\set ECHO all
SELECT job, status, stop_reason, rows, sqlstate FROM runaway.ended WHERE job LIKE 'runaway not%';

SELECT count(sweep.drop_job(name)) FROM sweep.job WHERE name LIKE 'runaway%';
DELETE FROM sweep.run_live WHERE job LIKE 'runaway%';
DELETE FROM sweep.run_history WHERE job LIKE 'runaway%';
DROP SCHEMA runaway CASCADE;
