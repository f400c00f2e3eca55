-- room: makers
-- sweep.delete: rows that meet a condition go once, by a job of their own, with all that hangs on them.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS del CASCADE;
CREATE SCHEMA del;
CREATE ROLE regress_sweep_deleter LOGIN IN ROLE sweep_user;
GRANT USAGE ON SCHEMA del TO regress_sweep_deleter;
CREATE VIEW del.last AS SELECT regexp_replace(job, '\d+$', 'N') AS job, status, stop_reason AS stop, rows, batches, detail FROM sweep.runs WHERE job LIKE 'delete%' ORDER BY run_id DESC LIMIT 1;

-- a tenant is forgotten
CREATE TABLE del.tenant (id int PRIMARY KEY, name text, region text);
CREATE TABLE del.project (id int PRIMARY KEY, tenant_id int NOT NULL REFERENCES del.tenant ON DELETE CASCADE);
CREATE TABLE del.item (id int PRIMARY KEY, project_id int NOT NULL REFERENCES del.project ON DELETE CASCADE, tenant_id int REFERENCES del.tenant ON DELETE CASCADE);
CREATE TABLE del.note (id int PRIMARY KEY, item_id int REFERENCES del.item ON DELETE SET NULL);
CREATE TABLE del.bill (id int PRIMARY KEY, tenant_id int REFERENCES del.tenant);
CREATE INDEX ON del.project (tenant_id);
CREATE INDEX ON del.item (project_id);
CREATE INDEX ON del.item (tenant_id);
CREATE INDEX ON del.note (item_id);
CREATE INDEX ON del.bill (tenant_id);
INSERT INTO del.tenant SELECT n, 't' || n, 'r' || n % 3 FROM generate_series(1, 50) AS n;
INSERT INTO del.project SELECT n, 1 + n % 50 FROM generate_series(1, 500) AS n;
INSERT INTO del.item SELECT n, 1 + n % 500, CASE n % 3 WHEN 0 THEN 1 + (1 + n % 500) % 50 END FROM generate_series(1, 5000) AS n;
INSERT INTO del.note SELECT n, n FROM generate_series(1, 5000) AS n;
INSERT INTO del.bill VALUES (1, 7);
ANALYZE del.tenant, del.project, del.item, del.note, del.bill;
SELECT run_id, jsonb_pretty(tables) AS tables FROM sweep.delete('del.tenant', 'id IN (42, 7)', dry_run => true);
SELECT count(*) AS jobs FROM sweep.job WHERE name LIKE 'delete%';
SELECT (SELECT count(*) FROM del.item) AS items, (SELECT count(*) FROM del.note WHERE item_id IS NULL) AS nulled;
SELECT run_id FROM sweep.delete('del.tenant', 'id IN (42, 7)', batch_size => 50) \gset
CALL sweep.wait(:run_id, '1 min');
SELECT job = 'delete_tenant_' || run_id AS named FROM sweep.runs WHERE run_id = :run_id;
SELECT job, status, stop, detail FROM del.last;
SELECT (SELECT count(*) FROM del.tenant) AS tenants, (SELECT count(*) FROM del.project) AS projects, (SELECT count(*) FROM del.item) AS items,
	(SELECT count(*) FROM del.note WHERE item_id IS NULL) AS nulled;

-- what is left is counted once, and not for each column that says so
CREATE FUNCTION del.limits_in_plan(statement text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	plan text;
BEGIN
	EXECUTE 'EXPLAIN (COSTS OFF, FORMAT JSON) ' || statement INTO plan;
	RETURN (SELECT count(*) FROM regexp_matches(plan, '"Node Type": "Limit"', 'g'));
END
$$;
SELECT del.limits_in_plan(sweep._rest_statement('del.item', 'id > 0', 'true', NULL)) AS one, del.limits_in_plan('SELECT ' || sweep._count_up_to('del.item', 'id > 0')) AS proof;

-- Most rows meet the condition: at the end the table is read block by block, and not the dead entries of the index.
CREATE TABLE del.most AS SELECT n AS id, repeat('x', 100) AS filler FROM generate_series(1, 5000) AS n;
ALTER TABLE del.most ADD PRIMARY KEY (id);
ANALYZE del.most;
SELECT pg_stat_force_next_flush() \g /dev/null
SELECT seq_scan AS scans FROM pg_stat_user_tables WHERE relid = 'del.most'::regclass \gset
SELECT run_id FROM sweep.delete('del.most', 'id > 0', pause => NULL) \gset
CALL sweep.wait(:run_id, '1 min');
SELECT set_config('del.scans', :'scans', false) \g /dev/null
DO $$
BEGIN
	WHILE (SELECT seq_scan FROM pg_stat_user_tables WHERE relid = 'del.most'::regclass) <= current_setting('del.scans')::bigint AND clock_timestamp() < statement_timestamp() + interval '30 s' LOOP
		PERFORM pg_stat_clear_snapshot();
	END LOOP;
END $$;
SELECT seq_scan - :scans AS by_blocks FROM pg_stat_user_tables WHERE relid = 'del.most'::regclass;

-- an index that serves the condition, also one that has nulls and equal keys
SELECT run_id FROM sweep.delete('del.item', 'tenant_id = 5', batch_size => 7, description => 'five') \gset
CALL sweep.wait(:run_id, '1 min');
SELECT args FROM sweep.job WHERE description = 'five';
SELECT job, status, stop, rows, batches > 1 AS more, detail->'deleted' AS deleted, (SELECT count(*) FROM del.item WHERE tenant_id = 5) AS left FROM del.last;
-- none serves it: a batch looks at as many rows as it may delete
CREATE TABLE del.event (id int PRIMARY KEY, kind int, at timestamptz, payload text);
INSERT INTO del.event SELECT n, n % 100, '2026-01-01'::timestamptz + n * interval '1 min', 'x' FROM generate_series(1, 5000) AS n;
ANALYZE del.event;
SET client_min_messages = notice;
SELECT run_id FROM sweep.delete('del.event', 'kind = 3 -- all of them', batch_size => 10, pause => NULL, name => 'delete_event') \gset
SET client_min_messages = warning;
CALL sweep.wait(:run_id, '1 min');
SELECT job, status, stop, rows, batches, detail FROM del.last;
SELECT count(*) FROM del.event;
-- all
SELECT run_id FROM sweep.delete('del.event', 'true', max_rows => 1234) \gset
CALL sweep.wait(:run_id, '1 min');
SELECT status, stop, rows, detail FROM del.last;
INSERT INTO del.event VALUES (100000, 3), (-5, 3);
SELECT job AS unfinished FROM sweep.runs WHERE run_id = :run_id \gset
SELECT sweep.alter_job(:'unfinished', '{"max_rows": null}');
CALL sweep.run(:'unfinished');
-- what came behind the greatest key, when the run began, stays
SELECT status, stop, rows, detail, (SELECT array_agg(id) FROM del.event) AS left FROM del.last;

-- the key is chosen by the cost of the whole condition
CREATE TABLE del.log (a int, b int, c text NOT NULL, d int);
INSERT INTO del.log SELECT n, n % 500, 'c' || n, n FROM generate_series(1, 20000) AS n;
SELECT sweep._run_key(current_user::text, 'del.log', 'b = 3', NULL, '{}', false);
CREATE INDEX ON del.log (d) WHERE d > 0;
CREATE INDEX ON del.log (lower(c));
CREATE INDEX ON del.log USING hash (b);
SELECT sweep._run_key(current_user::text, 'del.log', 'b = 3', NULL, '{}', false);
CREATE INDEX log_a ON del.log (a);
CREATE INDEX log_b ON del.log (b, c);
CREATE INDEX log_c ON del.log (c COLLATE "C");
ANALYZE del.log;
SELECT k.condition, c.* FROM (VALUES ('b = 3'), ('a < 100'), ('a < 100 AND b IN (1, 2)'), ('d = 5 AND a > 0'), ('c = ''c7'' AND b IS NOT NULL')) AS k (condition),
	LATERAL sweep._run_key(current_user::text, 'del.log', k.condition, NULL, '{}', false) AS c;
SELECT sweep._run_key(current_user::text, 'del.log', 'd = 5', NULL, '{}', false);
SELECT sweep._run_key(current_user::text, 'del.log', 'b IS NULL OR a = 1', NULL, '{}', false);
ALTER TABLE del.log ALTER a SET NOT NULL, ADD UNIQUE (a, c);
SELECT k.condition, c.* FROM (VALUES ('b = 3'), ('d = 5'), ('true'), ('a < 10 OR b = 5')) AS k (condition), LATERAL sweep._run_key(current_user::text, 'del.log', k.condition, NULL, '{}', false) AS c;
SELECT run_id FROM sweep.delete('del.log', 'b = 3', batch_size => 15) \gset
CALL sweep.wait(:run_id, '1 min');
SELECT job, status, stop, rows, batches, detail FROM del.last;
-- an index that is gone
SELECT sweep.delete('del.log', 'b = 4', name => 'delete gone', max_rows => 1) IS NOT NULL AS made \gset
SELECT run_id FROM sweep.runs WHERE job = 'delete gone' \gset
CALL sweep.wait(:run_id, '1 min');
DROP INDEX del.log_b;
\set VERBOSITY sqlstate
CALL sweep.run('delete gone');
\set VERBOSITY default
SELECT error FROM sweep.runs WHERE job = 'delete gone' AND status = 'failed';

-- partitions one after the other, and a table that refers to itself
CREATE TABLE del.part (id int, region text NOT NULL, parent int, PRIMARY KEY (id, region)) PARTITION BY LIST (region);
CREATE TABLE del.part_a PARTITION OF del.part FOR VALUES IN ('a');
CREATE TABLE del.part_b PARTITION OF del.part FOR VALUES IN ('b');
CREATE TABLE del.part_c PARTITION OF del.part FOR VALUES IN ('c');
INSERT INTO del.part SELECT n, chr(97 + n % 2), n FROM generate_series(1, 1000) AS n;
-- the greatest key is asked for once: later batches neither lock nor plan the other partitions
CREATE TABLE del.locked (part text, others bigint);
CREATE FUNCTION del.note_locks() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO del.locked SELECT TG_TABLE_NAME, count(DISTINCT l.relation) FROM pg_locks l JOIN pg_inherits i ON i.inhrelid = l.relation
		WHERE l.pid = pg_backend_pid() AND i.inhparent = 'del.part'::regclass AND i.inhrelid <> TG_RELID;
	RETURN OLD;
END $$;
CREATE TRIGGER note_locks BEFORE DELETE ON del.part FOR EACH ROW EXECUTE FUNCTION del.note_locks();
SELECT run_id FROM sweep.delete('del.part', 'id % 5 = 0', batch_size => 40) \gset
CALL sweep.wait(:run_id, '1 min');
SELECT job, status, stop, rows, batches, detail FROM del.last;
SELECT count(*) FROM del.part;
SELECT part, min(others) AS others_locked FROM del.locked GROUP BY part ORDER BY part;
-- the name of the table in a condition is a row of it, not of a partition with its columns in another order
CREATE TABLE del.orders (region int, n int) PARTITION BY RANGE (region);
CREATE TABLE del.orders_1 (n int, region int);
ALTER TABLE del.orders ATTACH PARTITION del.orders_1 FOR VALUES FROM (0) TO (100);
INSERT INTO del.orders SELECT 5 + n % 2, n FROM generate_series(1, 20) AS n;
SELECT sweep.delete('del.orders', 'orders::text LIKE ''(5,%''', name => 'delete_orders');
ALTER TABLE del.orders ADD PRIMARY KEY (n, region);
SELECT run_id FROM sweep.delete('del.orders', 'ORDERS::text LIKE ''(5,%''', name => 'delete_orders') \gset
CALL sweep.wait(:run_id, '1 min');
SELECT status, detail, (SELECT count(*) FILTER (WHERE region = 5) || ' of ' || count(*) FROM del.orders) AS left FROM del.last;
CREATE TABLE del.tree (id int PRIMARY KEY, parent int REFERENCES del.tree ON DELETE CASCADE);
CREATE INDEX ON del.tree (parent);
INSERT INTO del.tree SELECT n, nullif(n / 2, 0) FROM generate_series(1, 1000) AS n;
SELECT tables FROM sweep.delete('del.tree', 'id IN (2, 4, 7)', dry_run => true);
SELECT run_id FROM sweep.delete('del.tree', 'id IN (2, 4, 7)', batch_size => 20) \gset
CALL sweep.wait(:run_id, '1 min');
SELECT job, status, stop, detail, (SELECT count(*) FROM del.tree) AS left FROM del.last;
-- a row that a cycle of triggers keeps does not keep the run
CREATE FUNCTION del.keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER keep BEFORE DELETE ON del.tree FOR EACH ROW WHEN (OLD.id = 3) EXECUTE FUNCTION del.keep();
SELECT run_id FROM sweep.delete('del.tree', 'id < 6', batch_size => 2000) \gset
CALL sweep.wait(:run_id, '1 min');
SELECT status, stop, detail, (SELECT count(*) FROM del.tree WHERE id < 6) AS left FROM del.last;

-- equal keys, of which a trigger keeps more than a batch has rows
CREATE FUNCTION del.keep_first() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN CASE WHEN OLD.id > 30 THEN OLD END; END $$;
CREATE TABLE del.equal (id int, kind int);
INSERT INTO del.equal SELECT n, 1 FROM generate_series(1, 200) AS n;
INSERT INTO del.equal SELECT n, n FROM generate_series(201, 20000) AS n;
CREATE INDEX ON del.equal (kind);
ANALYZE del.equal;
CREATE TRIGGER keep BEFORE DELETE ON del.equal FOR EACH ROW EXECUTE FUNCTION del.keep_first();
SELECT run_id FROM sweep.delete('del.equal', 'kind = 1', name => 'delete equal', batch_size => 10, pause => NULL) \gset
CALL sweep.wait(:run_id, '1 min');
SELECT args -> 'key' AS key FROM sweep.job WHERE name = 'delete equal';
SELECT status, stop, detail, (SELECT count(*) FROM del.equal WHERE kind = 1) AS left FROM del.last;
INSERT INTO del.equal SELECT n, 1 FROM generate_series(31, 200) AS n;
ALTER TABLE del.equal ADD UNIQUE (id);
CREATE TABLE del.equal_child (id int PRIMARY KEY, equal_id int REFERENCES del.equal (id) ON DELETE CASCADE);
CREATE INDEX ON del.equal_child (equal_id);
INSERT INTO del.equal_child SELECT n, n FROM generate_series(1, 200) AS n WHERE n > 30;
ANALYZE del.equal;
SELECT run_id FROM sweep.delete('del.equal', 'kind = 1', name => 'delete equal with others', batch_size => 10, pause => NULL) \gset
CALL sweep.wait(:run_id, '1 min');
SELECT args -> 'key' AS key FROM sweep.job WHERE name = 'delete equal with others';
SELECT status, stop, detail, (SELECT count(*) FROM del.equal WHERE kind = 1) AS left FROM del.last;

-- as whom
GRANT SELECT ON del.event TO regress_sweep_deleter;
SET ROLE regress_sweep_deleter;
SELECT sweep.delete('del.event', 'true');
SELECT sweep.delete('del.event', 'true', dry_run => true);
RESET ROLE;
GRANT SELECT, DELETE ON del.tenant, del.event TO regress_sweep_deleter;
GRANT SELECT ON del.bill TO regress_sweep_deleter;
CREATE FUNCTION del.me() RETURNS text LANGUAGE sql STABLE AS $$ SELECT current_user::text $$;
SET ROLE regress_sweep_deleter;
-- the children are counted as their owner, the condition is read as the role
SELECT tables FROM sweep.delete('del.tenant', 'id = 9 AND del.me() = ''regress_sweep_deleter''', dry_run => true);
SELECT run_id FROM sweep.delete('del.tenant', 'id = 9 AND del.me() = ''regress_sweep_deleter''') \gset
CALL sweep.wait(:run_id, '1 min');
SELECT status, stop_reason, detail FROM sweep.runs WHERE run_id = :run_id;
SELECT sweep.delete('del.event', 'true', run_as => 'pg_database_owner', name => 'delete as another');
RESET ROLE;
ALTER TABLE del.event ENABLE ROW LEVEL SECURITY;
CREATE POLICY p ON del.event TO regress_sweep_deleter USING (id > 0);
INSERT INTO del.event VALUES (1, 1), (2, 1), (-7, 1);
SELECT tables FROM sweep.delete('del.event', 'true', run_as => 'regress_sweep_deleter', dry_run => true);
SELECT run_id FROM sweep.delete('del.event', 'true', run_as => 'regress_sweep_deleter') \gset
CALL sweep.wait(:run_id, '1 min');
SELECT status, detail, (SELECT array_agg(id) FROM del.event) AS left FROM del.last;

-- what is refused changes nothing
SELECT count(*) AS before FROM sweep.job \gset
SELECT sweep.delete(NULL, 'true');
SELECT sweep.delete('del.nothing', 'true');
SELECT sweep.delete('del.last', 'true');
SELECT sweep.delete('del.event', NULL);
SELECT sweep.delete('del.event', 'id = 1); DROP TABLE del.event; --');
SELECT sweep.delete('del.event', 'id = $1');
SELECT sweep.delete('del.event', 'id');
SELECT sweep.delete('del.event', 'nothing = 1');
SELECT sweep.delete('del.event', 'id = (SELECT max(id) FROM del.event)');
SELECT sweep.delete('del.event', 'id = (SELECT max(id) FROM del.event)', dry_run => true);
SELECT sweep.delete('del.event', 'id IN (SELECT id FROM del.event ORDER BY id LIMIT 10)');
SELECT sweep.delete('del.event', 'random() < 0.1');
SELECT sweep.delete('del.event', 'true', dry_run => NULL);
SELECT sweep.delete('del.event', 'true', keep_job => NULL);
SELECT sweep.delete('del.event', 'true', batch_size => 0);
SELECT sweep.delete('del.event', 'true', settings => '[1]');
SELECT sweep.delete('del.event', 'true', settings => '{"no_such": 1}');
SELECT sweep.delete('del.event', 'true', dry_run => true, settings => '[1]');
SELECT sweep.delete('del.event', 'true', dry_run => true, settings => '{"no_such": 1}');
SELECT sweep.delete('del.event', 'true', dry_run => true, settings => '{"work_mem": null}');
SELECT sweep.delete('del.event', 'true', name => 'delete gone');
SELECT count(*) - :before AS made FROM sweep.job;

-- the job goes with its history, once it has done all; one that is to be kept, or has not, stays
SELECT run_id FROM sweep.delete('del.event', 'false', name => 'delete kept', keep_job => true) \gset
CALL sweep.wait(:run_id, '1 min');
-- (nor does a run with another condition, which each batch would understand in its own way)
INSERT INTO del.event SELECT n, 1 FROM generate_series(1001, 1009) AS n;
\set VERBOSITY sqlstate
CALL sweep.run('delete kept', '{"condition": "id = (SELECT max(id) FROM del.event)"}');
CALL sweep.run('delete kept', '{"condition": "random() < 0.5"}');
\set VERBOSITY default
SELECT error FROM sweep.runs WHERE job = 'delete kept' AND status = 'failed' ORDER BY run_id;
SELECT count(*) FROM del.event WHERE id > 1000;
-- (the names in it are found in the path of the run)
CREATE FUNCTION del.twice(bigint) RETURNS bigint LANGUAGE sql STABLE AS 'SELECT $1 * 2';
SELECT run_id FROM sweep.delete('del.event', 'twice(id) > 2000', name => 'delete by path', settings => '{"search_path": "del"}') \gset
CALL sweep.wait(:run_id, '1 min');
DO $$
DECLARE
	deadline constant timestamptz := clock_timestamp() + interval '1 min';
BEGIN
	WHILE EXISTS (SELECT FROM sweep.run_live WHERE job LIKE 'delete%' AND finished_at IS NOT NULL) AND clock_timestamp() < deadline LOOP
		PERFORM sweep._archive_runs(false);
		COMMIT;
	END LOOP;
END
$$;
SELECT count(*) > 10 AS many FROM sweep.job WHERE name LIKE 'delete%';
DELETE FROM sweep.run_history WHERE job LIKE 'delete%';
SELECT sweep._drop_jobs_without_history();
SELECT name, (SELECT drained_rows FROM sweep.job_state s WHERE s.job = j.name) AS drained FROM sweep.job j WHERE name LIKE 'delete%' ORDER BY name;
SELECT count(*) AS states FROM sweep.job_state WHERE job LIKE 'delete%';
SELECT sweep.drop_job(name) FROM sweep.job WHERE name LIKE 'delete%';

DELETE FROM sweep.run_live WHERE job LIKE 'delete%';
DELETE FROM sweep.run_history WHERE job LIKE 'delete%';
DROP SCHEMA del CASCADE;
DROP ROLE regress_sweep_deleter;
