-- room: makers
-- Jobs that sweep.create_backfill makes: each row that meets the condition is updated, once, whatever comes while they run.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS backfill CASCADE;
CREATE SCHEMA backfill;
SET timezone = 'UTC';
CREATE VIEW backfill.last_run AS SELECT status, stop_reason AS stop, batches, rows, cursor, detail FROM sweep.runs WHERE job LIKE 'backfill%' ORDER BY run_id DESC LIMIT 1;

-- a key of two columns, the second of which is in another order; paused, for else it would be started at once
CREATE TABLE backfill.line (order_id bigint, line_no numeric(8, 2), code char(3) NOT NULL, price int, quantity int, total int, updates int NOT NULL DEFAULT 0, PRIMARY KEY (order_id, line_no));
INSERT INTO backfill.line SELECT n / 10, (10 - n % 10) / 8.0, 'a' || n % 10, n, 2, CASE n % 3 WHEN 0 THEN 0 END FROM generate_series(1, 10000) AS n;
CREATE FUNCTION backfill.count_update() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.updates := OLD.updates + 1; RETURN NEW; END $$;
CREATE TRIGGER count_update BEFORE UPDATE ON backfill.line FOR EACH ROW EXECUTE FUNCTION backfill.count_update();
SELECT sweep.create_backfill('backfill.line', 'total = price * quantity', 'total IS NULL', paused => true, batch_size => 700);
SELECT schedule, timezone, step, args, cursor FROM sweep.job WHERE name = 'backfill_line';
SELECT rows, cursor FROM sweep.preview('backfill_line');
-- where a limit, or whoever has cancelled it, has stopped it, it goes on
SELECT sweep.alter_job('backfill_line', '{"max_rows": 4321}');
CALL sweep.run('backfill_line');
SELECT * FROM backfill.last_run;
-- meanwhile there are new ones on both sides of the cursor, and one has changed
INSERT INTO backfill.line VALUES (100, 0.01, 'b', 5, 5, NULL), (100, 9, 'b', 5, 6, NULL), (900, 9, 'b', 5, 7, NULL);
UPDATE backfill.line SET total = NULL WHERE (order_id, line_no) = (7, 0.25);
SELECT sweep.alter_job('backfill_line', '{"max_rows": null}');
CALL sweep.run('backfill_line');
SELECT * FROM backfill.last_run;
SELECT count(*) FILTER (WHERE total IS NULL) AS left, count(*) FILTER (WHERE updates = 1) AS once, count(*) FILTER (WHERE updates > 1) AS more,
	count(*) FILTER (WHERE total <> price * quantity AND total <> 0) AS wrong FROM backfill.line;
CALL sweep.run('backfill_line');
SELECT * FROM backfill.last_run;
-- few among many: a batch reads no more rows than it may update
UPDATE backfill.line SET total = NULL WHERE order_id IN (3, 990);
CALL sweep.run('backfill_line');
SELECT rows, batches, detail FROM backfill.last_run;

-- in another order: of all that a unique index may be
CREATE TABLE backfill.item (id int, code char(4) NOT NULL, at timestamp NOT NULL, v text NOT NULL, kind text, n int, UNIQUE (kind, n));
CREATE UNIQUE INDEX ON backfill.item (at DESC, code DESC);
CREATE UNIQUE INDEX ON backfill.item (v COLLATE "C" DESC, id);
CREATE UNIQUE INDEX ON backfill.item (v) WHERE id > 0;
INSERT INTO backfill.item SELECT n, n % 50, '2026-01-01'::timestamp + interval '1 us' * n, 'v' || n FROM generate_series(1, 1000) AS n;
SELECT sweep.create_backfill('backfill.item', 'kind = ''x''', 'kind IS NULL');
SELECT sweep.create_backfill('backfill.item', 'kind = ''x''', 'kind IS NULL', order_by => 'kind, n');
SELECT sweep.create_backfill('backfill.item', 'kind = ''x''', 'kind IS NULL', order_by => 'v, id');
SELECT sweep.create_backfill('backfill.item', 'kind = ''x''', 'kind IS NULL', order_by => 'v');
SELECT sweep.create_backfill('backfill.item', 'kind = ''x''', 'kind IS NULL', order_by => 'id');
SELECT sweep.create_backfill('backfill.item', 'kind = ''x''', 'kind IS NULL', order_by => 'no such, column');
SELECT sweep.create_backfill('backfill.item', 'kind = ''x''', 'kind IS NULL', order_by => 'at,"code"', paused => true, batch_size => 30);
CALL sweep.run('backfill_item');
SELECT rows, batches, detail, (SELECT count(*) FROM backfill.item WHERE kind IS NULL) AS left FROM backfill.last_run;

-- what would go on for ever
SELECT sweep.create_backfill('backfill.line', 'total = price', 'total <> price * 7', paused => true, name => 'backfill for ever');
\set VERBOSITY sqlstate
CALL sweep.run('backfill for ever');
\set VERBOSITY default
SELECT error FROM sweep.runs WHERE job = 'backfill for ever';
SELECT count(*) FROM backfill.line WHERE total = price AND price > 0;
CREATE FUNCTION backfill.suppress() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER suppress BEFORE UPDATE ON backfill.item FOR EACH ROW WHEN (OLD.id = 77) EXECUTE FUNCTION backfill.suppress();
UPDATE backfill.item SET kind = NULL WHERE id > 500;
ALTER TABLE backfill.item DISABLE TRIGGER suppress;
UPDATE backfill.item SET kind = NULL WHERE id = 77;
ALTER TABLE backfill.item ENABLE TRIGGER suppress;
\set VERBOSITY sqlstate
CALL sweep.run('backfill_item');
\set VERBOSITY default
SELECT rows, batches, detail, (SELECT array_agg(id) FROM backfill.item WHERE kind IS NULL) AS left FROM backfill.last_run;
SELECT error FROM sweep.runs WHERE job = 'backfill_item' AND status = 'failed';

-- a column that is generated, and a rule: no run could do it
CREATE TABLE backfill.fixed (id int PRIMARY KEY, n int, twice int GENERATED ALWAYS AS (n * 2) STORED);
SELECT sweep.create_backfill('backfill.fixed', 'twice = 1', 'n IS NULL');
SELECT sweep.create_job('backfill batch', batch_sql => 'UPDATE backfill.fixed SET twice = 1 WHERE id IN (SELECT id FROM backfill.fixed WHERE n IS NULL LIMIT $1)');
CREATE RULE also AS ON UPDATE TO backfill.fixed DO ALSO NOTIFY updated;
SELECT sweep.create_backfill('backfill.fixed', 'n = 1', 'n IS NULL');

-- a partitioned table, whose rows may change their partition
CREATE TABLE backfill.part (id int, region text NOT NULL DEFAULT 'none', PRIMARY KEY (id, region)) PARTITION BY LIST (region);
CREATE TABLE backfill.part_none PARTITION OF backfill.part FOR VALUES IN ('none');
CREATE TABLE backfill.part_some PARTITION OF backfill.part DEFAULT;
CREATE UNIQUE INDEX ON backfill.part (region, id);
INSERT INTO backfill.part SELECT generate_series(1, 1000);
SELECT sweep.create_backfill('backfill.part', 'region = ''r'' || id % 5', 'region = ''none''', paused => true);
ALTER TABLE backfill.part ADD COLUMN kind text;
SELECT sweep.create_backfill('backfill.part', '(kind) = ROW(''k'' || id % 5) -- the kind', 'kind IS NULL -- if it is not known', paused => true, batch_size => 64);
CALL sweep.run('backfill_part');
SELECT rows, batches, detail, (SELECT count(*) FROM backfill.part WHERE kind IS NULL) AS left FROM backfill.last_run;

SELECT sweep.drop_job(name) FROM sweep.job WHERE name LIKE 'backfill%' ORDER BY name;
DELETE FROM sweep.run_live WHERE job LIKE 'backfill%';
DELETE FROM sweep.run_history WHERE job LIKE 'backfill%';
DROP SCHEMA backfill CASCADE;
