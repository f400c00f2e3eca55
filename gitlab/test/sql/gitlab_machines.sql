-- The step ci_runners_stale_machines_cleanup: its bounds, order, counts and
-- cursor, on the partitioned table and on a plain one.
\set ECHO none
\i gitlab/test/include/gitlab.sql
CREATE SCHEMA plain;
CREATE TABLE plain.ci_runner_machines (LIKE gitlab.ci_runner_machines INCLUDING ALL);

CREATE PROCEDURE pg_temp.machine(id bigint, created_at timestamptz, contacted_at timestamptz, runner_type int DEFAULT 1)
	LANGUAGE sql AS $$
	INSERT INTO gitlab.ci_runner_machines (id, runner_id, created_at, updated_at, contacted_at, runner_type, system_xid)
		VALUES (id, id, created_at, created_at, contacted_at, runner_type, id);
	INSERT INTO plain.ci_runner_machines (id, runner_id, created_at, updated_at, contacted_at, runner_type, system_xid)
		VALUES (id, id, created_at, created_at, contacted_at, runner_type, id);
$$;
-- the batches of one run, each with the cursor of the one before: what each deleted, in which schema
CREATE FUNCTION pg_temp.run(size int, schema text DEFAULT 'gitlab', max_rows int DEFAULT 1000,
		as_of timestamptz DEFAULT '2026-01-08 00:00:00Z', stale_after text DEFAULT '7 days')
	RETURNS TABLE (batch int, rows bigint, deleted bigint[], detail jsonb)
	LANGUAGE plpgsql AS $$
DECLARE
	cursor_in jsonb;
	before bigint[];
	total bigint := 0;
BEGIN
	FOR i IN 1 .. 20 LOOP
		batch := i;
		EXECUTE format('SELECT array_agg(id) FROM %I.ci_runner_machines', schema) INTO before;
		SELECT p.rows, p.cursor, p.detail INTO rows, cursor_in, detail
			FROM sweep_gitlab.ci_runners_stale_machines_cleanup(ROW(size, cursor_in,
				jsonb_build_object('schema', schema, 'stale_after', stale_after), as_of, NULL, NULL, NULL, 1)::sweep.batch) AS p;
		EXECUTE format('SELECT array_agg(i ORDER BY i) FROM unnest($1) AS i WHERE i NOT IN (SELECT id FROM %I.ci_runner_machines)', schema)
			INTO deleted USING before;
		RETURN NEXT;
		total := total + rows;
		EXIT WHEN rows = 0 OR total >= max_rows;
	END LOOP;
END
$$;

-- nothing there: the 0 is counted
SELECT * FROM pg_temp.run(100);
SELECT * FROM pg_temp.run(100, 'plain');

-- both bounds inclusive, to the microsecond; the bound is 2026-01-01 00:00
CALL pg_temp.machine(1, '2025-06-01Z', '2025-12-31 23:59:59.999999Z');
CALL pg_temp.machine(2, '2025-06-01Z', '2026-01-01 00:00:00Z', 2);
CALL pg_temp.machine(3, '2025-06-01Z', '2026-01-01 00:00:00.000001Z', 3);
CALL pg_temp.machine(4, '2025-12-31 23:59:59.999999Z', NULL, 3);
CALL pg_temp.machine(5, '2026-01-01 00:00:00Z', NULL, 2);
CALL pg_temp.machine(6, '2026-01-01 00:00:00.000001Z', NULL);
CALL pg_temp.machine(7, '2026-01-01 00:00:00Z', '2025-12-31Z');
CALL pg_temp.machine(8, '2026-01-01 00:00:00.000001Z', '2025-12-31Z');
CALL pg_temp.machine(9, '2025-06-01Z', '2026-01-08Z');
CALL pg_temp.machine(10, '2026-01-03Z', NULL);
BEGIN;
SELECT * FROM pg_temp.run(100);
SELECT * FROM pg_temp.run(100, 'plain');
ROLLBACK;
-- a microsecond earlier and later
BEGIN;
SELECT rows, deleted FROM pg_temp.run(100, as_of => '2026-01-07 23:59:59.999999Z');
ROLLBACK;
BEGIN;
SELECT rows, deleted FROM pg_temp.run(100, as_of => '2026-01-08 00:00:00.000001Z');
ROLLBACK;
-- the same in every time zone, also when the clocks change within the seven days
BEGIN;
SET LOCAL timezone = 'America/New_York';
SELECT rows, deleted FROM pg_temp.run(100);
ROLLBACK;
BEGIN;
UPDATE gitlab.ci_runner_machines SET created_at = created_at + interval '82 days', contacted_at = contacted_at + interval '82 days';
SELECT rows, deleted FROM pg_temp.run(100, as_of => '2026-03-31 00:00:00Z');
ROLLBACK;
BEGIN;
UPDATE gitlab.ci_runner_machines SET created_at = created_at + interval '82 days', contacted_at = contacted_at + interval '82 days';
SET LOCAL timezone = 'Europe/Berlin';
SELECT rows, deleted FROM pg_temp.run(100, as_of => '2026-03-31 00:00:00Z');
ROLLBACK;
-- the age is an arg
BEGIN;
SELECT rows, deleted FROM pg_temp.run(100, stale_after => '5 days');
ROLLBACK;

-- the order: never contacted ones by id, then the longest silent; each batch is full until the last
BEGIN;
SELECT * FROM pg_temp.run(2);
SELECT array_agg(id ORDER BY id) AS left_alone FROM gitlab.ci_runner_machines;
ROLLBACK;
BEGIN;
SELECT rows, deleted FROM pg_temp.run(1);
ROLLBACK;
BEGIN;
SELECT rows, deleted FROM pg_temp.run(3);
SELECT rows, deleted FROM pg_temp.run(3, 'plain');
ROLLBACK;
-- a cap ends the run in the middle: no trailing 0, the rest is for the next run
BEGIN;
SELECT rows, deleted, detail FROM pg_temp.run(2, max_rows => 4);
SELECT rows, deleted, detail FROM pg_temp.run(2, max_rows => 4);
ROLLBACK;
TRUNCATE gitlab.ci_runner_machines;

-- ties, over partitions
INSERT INTO gitlab.ci_runner_machines (id, runner_id, created_at, updated_at, contacted_at, runner_type, system_xid)
	SELECT i, i, '2025-06-01Z', '2025-06-01Z', CASE WHEN i < 25 THEN '2025-12-01Z'::timestamptz END, i % 3 + 1, i
	FROM generate_series(11, 29) AS i;
SELECT rows, deleted FROM pg_temp.run(4);

-- ids are of a partition, and runner_type is part of the key: no batch has more than its size, no run more than its cap, each goes once
CREATE PROCEDURE pg_temp.shared_ids() LANGUAGE sql AS $$
	TRUNCATE gitlab.ci_runner_machines, plain.ci_runner_machines;
	INSERT INTO gitlab.ci_runner_machines (id, runner_id, created_at, updated_at, contacted_at, runner_type, system_xid)
		SELECT i, i, '2026-01-01Z', '2025-06-01Z', CASE WHEN i > 1 THEN '2025-12-01Z'::timestamptz WHEN i < 0 THEN '-infinity' END, t, i
		FROM unnest('{-9223372036854775807, -1, 0, 1, 2, 3, 9223372036854775807}'::bigint[]) AS i, generate_series(1, 3) AS t;
	ALTER TABLE plain.ci_runner_machines DROP CONSTRAINT ci_runner_machines_pkey, ADD PRIMARY KEY (runner_type, id);
	INSERT INTO plain.ci_runner_machines SELECT * FROM gitlab.ci_runner_machines;
$$;
CALL pg_temp.shared_ids();
BEGIN;
CREATE TABLE pg_temp.expected AS SELECT row_number() OVER (ORDER BY contacted_at NULLS FIRST, id, runner_type) AS nth, id, runner_type FROM gitlab.ci_runner_machines;
CREATE FUNCTION pg_temp.gone(schema text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	gone text;
BEGIN
	EXECUTE format('SELECT string_agg(nth::text, '' '' ORDER BY nth) FROM pg_temp.expected WHERE (id, runner_type) NOT IN (SELECT id, runner_type FROM %I.ci_runner_machines)', schema) INTO gone;
	RETURN gone;
END
$$;
CREATE FUNCTION pg_temp.go(sizes int[], schema text) RETURNS TABLE (rows bigint, cursor jsonb, gone text) LANGUAGE plpgsql AS $$
DECLARE
	size int;
BEGIN
	FOREACH size IN ARRAY sizes LOOP
		SELECT p.rows, p.cursor INTO rows, cursor FROM sweep_gitlab.ci_runners_stale_machines_cleanup(ROW(size, cursor,
			jsonb_build_object('schema', schema, 'stale_after', '7 days'), '2026-01-08Z', NULL, NULL, NULL, 1)::sweep.batch) AS p;
		gone := pg_temp.gone(schema);
		RETURN NEXT;
	END LOOP;
END
$$;
SELECT * FROM pg_temp.go('{1,1,2,3,4,2,3,2,2,5,5}', 'gitlab');
SELECT rows, gone FROM pg_temp.go('{5,5,5,5,5,5}', 'plain');
ROLLBACK;
BEGIN;
SELECT batch, rows FROM pg_temp.run(2, max_rows => 8);
SELECT count(*) FROM gitlab.ci_runner_machines;
ROLLBACK;
TRUNCATE gitlab.loose_foreign_keys_deleted_records;
SELECT sum(rows) FROM pg_temp.run(4);
-- those among them that are too young, or of the other kind, do not count
TRUNCATE gitlab.ci_runner_machines;
INSERT INTO gitlab.ci_runner_machines (id, runner_id, created_at, updated_at, contacted_at, runner_type, system_xid)
	SELECT i, i, CASE WHEN (i, t) IN ((1, 3), (6, 3)) THEN '2026-01-07Z' ELSE '2025-06-01Z' END::timestamptz, '2025-06-01Z',
		CASE WHEN (i, t) = (2, 3) THEN '2025-12-20Z' WHEN (i, t) = (5, 3) THEN '2025-12-10Z' WHEN i > 3 THEN '2025-12-09Z'::timestamptz - i * interval '1 day' END, t, i
	FROM generate_series(1, 7) AS i, generate_series(1, 3) AS t;
BEGIN;
SELECT batch, rows FROM pg_temp.run(1);
ROLLBACK;
BEGIN;
SELECT batch, rows, deleted FROM pg_temp.run(3);
ROLLBACK;
BEGIN;
SELECT batch, rows FROM pg_temp.run(2);
SELECT batch, rows FROM pg_temp.run(4);
SELECT id, runner_type FROM gitlab.ci_runner_machines ORDER BY 1, 2;
ROLLBACK;
-- nothing before the cursor is looked at again
CREATE FUNCTION pg_temp.behind(cursor jsonb, size int) RETURNS TABLE (rows bigint, gone text) LANGUAGE plpgsql AS $$
BEGIN
	CREATE TEMP TABLE before ON COMMIT DROP AS SELECT id, runner_type FROM gitlab.ci_runner_machines;
	rows := (sweep_gitlab.ci_runners_stale_machines_cleanup(ROW(size, cursor, '{"schema": "gitlab", "stale_after": "7 days"}', '2026-01-08Z', NULL, NULL, NULL, 1)::sweep.batch)).rows;
	gone := (SELECT string_agg(format('%s/%s', id, runner_type), ' ' ORDER BY id, runner_type) FROM pg_temp.before b
		WHERE NOT EXISTS (SELECT FROM gitlab.ci_runner_machines m WHERE (m.id, m.runner_type) = (b.id, b.runner_type)));
	RETURN NEXT;
	DROP TABLE pg_temp.before;
END
$$;
BEGIN;
SELECT * FROM pg_temp.behind('{"id": 2}', 2);
SELECT * FROM pg_temp.behind('{"id": 5, "contacted_at": "2025-12-04Z"}', 2);
SELECT * FROM pg_temp.behind('{"id": 9, "contacted_at": "2025-12-04Z"}', 20);
ROLLBACK;
TRUNCATE gitlab.ci_runner_machines;
-- nor is one of those deleted with the others of its id, whose types are behind its own
INSERT INTO gitlab.ci_runner_machines (id, runner_id, created_at, updated_at, contacted_at, runner_type, system_xid)
	SELECT i, i, CASE WHEN (i, t) IN ((1, 1), (6, 1)) THEN '2026-01-07Z' ELSE '2025-06-01Z' END::timestamptz, '2025-06-01Z',
		CASE WHEN (i, t) = (2, 1) THEN '2025-12-20Z' WHEN (i, t) = (5, 1) THEN '2025-12-10Z' WHEN i > 3 THEN '2025-12-09Z'::timestamptz - i * interval '1 day' END, t, i
	FROM generate_series(1, 7) AS i, generate_series(1, 3) AS t;
SELECT batch, rows, deleted FROM pg_temp.run(1);
SELECT id, runner_type FROM gitlab.ci_runner_machines ORDER BY 1, 2;
TRUNCATE gitlab.ci_runner_machines;

-- the triggers of the table have fired for each
SELECT fully_qualified_table_name, count(*), min(primary_key_value), max(primary_key_value)
	FROM gitlab.loose_foreign_keys_deleted_records GROUP BY 1;

DROP SCHEMA gitlab, gitlab_partitions_dynamic, plain CASCADE;
