-- room: engine
-- The row of a run, as its batches write it.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS run_row CASCADE;
CREATE SCHEMA run_row;
SELECT setval(pg_get_serial_sequence('sweep.run_live', 'run_id'), 3100000, false);
CREATE VIEW run_row.last_run AS
	SELECT * FROM sweep.runs WHERE job LIKE 'run\_row%' ORDER BY run_id DESC LIMIT 1;

-- Counts in its cursor, next to a text that does not fit into a page, however well compressed.
CREATE FUNCTION run_row.step(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
DECLARE
	nth int := coalesce((b.cursor ->> 'nth')::int, 0) + 1;
BEGIN
	IF b.args ? 'long' THEN
		RETURN ROW(1, jsonb_build_object('nth', nth, 'text', run_row.long_text(nth)), jsonb_build_object('text', run_row.long_text(-nth)))::sweep.progress;
	END IF;
	RETURN ROW(1, jsonb_build_object('nth', nth), jsonb_build_object('n', 1))::sweep.progress;
END
$$;
CREATE FUNCTION run_row.long_text(seed int) RETURNS text LANGUAGE sql IMMUTABLE AS $$
	SELECT string_agg(md5(seed || ' ' || i), '' ORDER BY i) FROM generate_series(1, 1000) AS i
$$;
SELECT sweep.create_job('run_row', step => 'run_row.step', batch_size => 1);

-- it stays in its page, however many versions of it there have been; without pruning there would be 700 more. Somebody may look at it for a while
VACUUM sweep.run_live;
SELECT pg_relation_size('sweep.run_live') AS size_before \gset
SELECT sweep.alter_job('run_row', '{"max_batches": 20000}');
CALL sweep.run('run_row');
SELECT pg_relation_size('sweep.run_live') - :size_before < 300 * current_setting('block_size')::int AS stays_small;
SELECT status, stop_reason, batches, rows, cursor, detail FROM run_row.last_run;

-- values that are kept out of it, those that change and those that do not
SELECT sweep.alter_job('run_row', '{"max_batches": 5}');
CALL sweep.run('run_row', jsonb_build_object('long', run_row.long_text(0)));
SELECT batches, rows, (cursor ->> 'nth') AS nth, cursor ->> 'text' = run_row.long_text(5) AS cursor_is_right,
	detail ->> 'text' = run_row.long_text(-5) AS detail_is_right, args ->> 'long' = run_row.long_text(0) AS args_are_right FROM run_row.last_run;

-- every column that a batch does not write is as it was
SELECT trigger, attempt, due_at <= started_at AS due, started_at < finished_at AS took_time, rescued, quarantined, sqlstate, error,
	pid = pg_backend_pid() AS my_pid, run_as = current_user AS my_role, bucket, shares_left FROM run_row.last_run;

-- a trigger that somebody has put on the table sees each of them
CREATE TABLE run_row.seen (batches int, status text);
CREATE FUNCTION run_row.note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO run_row.seen VALUES (new.batches, new.status);
	RETURN new;
END
$$;
CREATE TRIGGER note AFTER UPDATE ON sweep.run_live FOR EACH ROW EXECUTE FUNCTION run_row.note();
CALL sweep.run('run_row');
DROP TRIGGER note ON sweep.run_live;
VACUUM sweep.run_live;
SELECT array_agg(batches ORDER BY batches) AS batches, array_agg(DISTINCT status ORDER BY status) AS status FROM run_row.seen;

-- an index that somebody has put on what changes leads to each of them
CREATE FUNCTION run_row.find(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
	RETURN ROW(1, NULL, jsonb_build_object('found',
		(SELECT jsonb_agg(r.batches) FROM sweep.run_live r WHERE r.rescued < 1 AND r.rows > 0 AND r.status = 'running')))::sweep.progress;
END
$$;
CREATE INDEX run_row_rows ON sweep.run_live (rows) WHERE rescued < 1;
SELECT sweep.alter_job('run_row', '{"step": "run_row.find"}');
CALL sweep.run('run_row');
DROP INDEX sweep.run_row_rows;
SELECT detail FROM run_row.last_run;

-- what the step does to the row itself stands, but for what the engine writes
CREATE FUNCTION run_row.meddle(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
BEGIN
	UPDATE sweep.run_live SET attempt = attempt + 1, rows = 77 WHERE run_id = b.run_id;
	RETURN ROW(1, NULL, NULL)::sweep.progress;
END
$$;
SELECT sweep.alter_job('run_row', '{"step": "run_row.meddle"}');
CALL sweep.run('run_row');
SELECT status, stop_reason, batches, rows, attempt FROM run_row.last_run;

-- in a session a transaction that the step made read-only does not write it either
CREATE FUNCTION run_row.read_only(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('transaction_read_only', 'on', true);
	RETURN ROW(1, NULL, NULL)::sweep.progress;
END
$$;
SELECT sweep.alter_job('run_row', '{"step": "run_row.read_only"}');
CALL sweep.run('run_row');
SELECT status, stop_reason, batches, rows, sqlstate FROM run_row.last_run;

SELECT sweep.drop_job(name) FROM sweep.job WHERE name LIKE 'run\_row%';
DELETE FROM sweep.run_live WHERE job LIKE 'run\_row%';
DELETE FROM sweep.run_history WHERE job LIKE 'run\_row%';
DROP SCHEMA run_row CASCADE;
