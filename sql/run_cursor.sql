-- room: engine
-- The cursor: handed on from batch to batch, and from run to run while the job keeps it.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS run_cursor CASCADE;
CREATE SCHEMA run_cursor;

SELECT setval(pg_get_serial_sequence('sweep.run_live', 'run_id'), 1700000, false);

CREATE TABLE run_cursor.call (nth int GENERATED ALWAYS AS IDENTITY, cursor jsonb, run_id bigint);

-- Counts up to "last" of the args; fails at "fails", and returns a NULL cursor at "forgets".
CREATE FUNCTION run_cursor.step(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
DECLARE
	here int := coalesce((b.cursor ->> 'at')::int, 0) + 1;
BEGIN
	INSERT INTO run_cursor.call (cursor, run_id) VALUES (b.cursor, b.run_id);
	IF here = (b.args ->> 'fails')::int THEN
		RAISE EXCEPTION 'failed at %', here;
	END IF;
	RETURN ROW(CASE WHEN here > (b.args ->> 'last')::int THEN 0 ELSE 1 END,
		CASE WHEN here IS DISTINCT FROM (b.args ->> 'forgets')::int THEN jsonb_build_object('at', here) END, NULL)::sweep.progress;
END
$$;
CREATE VIEW run_cursor.cursors AS SELECT array_agg(cursor -> 'at' ORDER BY nth) AS cursors FROM run_cursor.call;
CREATE VIEW run_cursor.last_run AS
	SELECT status, stop_reason AS stop, batches, cursor FROM sweep.runs WHERE job = 'run_cursor' ORDER BY run_id DESC LIMIT 1;
\set run 'TRUNCATE run_cursor.call; CALL sweep.run(\'run_cursor\', :\'args\'); SELECT * FROM run_cursor.last_run; SELECT * FROM run_cursor.cursors;'

-- cursor 'run': each run begins without one; 'drain': each begins where the last one stopped
SELECT sweep.create_job('run_cursor', step => 'run_cursor.step', max_batches => 2, args => '{"last": 8}');
\set args '{}'
:run
:run
SELECT sweep.alter_job('run_cursor', '{"cursor": "drain"}');
:run
:run

-- also after an error: where the last committed batch stopped
\set args '{"fails": 7}'
:run
\set args '{}'
:run

-- a run that did no batch remembers nothing: one that failed at once, or was skipped
\set args '{"fails": 9}'
:run
INSERT INTO sweep.run_live (job, trigger, due_at, started_at, finished_at, pid, status, stop_reason)
	VALUES ('run_cursor', 'manual', now(), now(), now(), 1, 'skipped', 'skipped');
\set args '{"last": 100}'
:run
-- the same from the history
DO $$
BEGIN
	WHILE EXISTS (SELECT FROM sweep.run_live WHERE job = 'run_cursor') LOOP
		PERFORM sweep._archive_runs(false);
		COMMIT;
	END LOOP;
END
$$;
:run
-- or with one run in the history and a later one not yet there
:run

-- drained: the next run begins anew
\set args '{"last": 12}'
SELECT sweep.alter_job('run_cursor', '{"max_batches": null}');
:run
SELECT sweep.alter_job('run_cursor', '{"max_batches": 2}');
:run

-- NULL is from the start again, within a run and between runs
\set args '{"last": 100, "forgets": 5}'
:run
:run
\set args '{"last": 100}'
:run

-- cursor 'always': also after a run that drained, in or out of the history
SELECT sweep.alter_job('run_cursor', '{"cursor": "always", "max_batches": null}');
\set args '{"last": 9}'
:run
\set args '{"last": 11}'
:run
DO $$
BEGIN
	WHILE EXISTS (SELECT FROM sweep.run_live WHERE job = 'run_cursor') LOOP
		PERFORM sweep._archive_runs(false);
		COMMIT;
	END LOOP;
END
$$;
\set args '{"last": 13}'
:run
-- a batch that finds nothing and names no cursor forgets none; one that did something begins anew
\set args '{"last": 14, "forgets": 15}'
:run
SELECT sweep.alter_job('run_cursor', '{"max_batches": 2}');
\set args '{"last": 16, "forgets": 16}'
:run

-- any JSON is a cursor
CREATE FUNCTION run_cursor.any_json(b sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$
	INSERT INTO run_cursor.call (cursor) VALUES (b.cursor);
	SELECT ROW(CASE WHEN b.cursor = b.args -> -1 THEN 0 ELSE 1 END,
		(SELECT v FROM jsonb_array_elements(b.args -> 'values') WITH ORDINALITY AS a (v, n) WHERE n = (SELECT max(nth) FROM run_cursor.call)),
		NULL)::sweep.progress
$$;
SELECT sweep.create_job('run_cursor any', step => 'run_cursor.any_json', max_batches => 7,
	args => '{"values": ["a", 1.50, [1, [2]], {"x": null}, null, true, ""]}');
TRUNCATE run_cursor.call RESTART IDENTITY;
CALL sweep.run('run_cursor any');
SELECT cursor, cursor IS NULL AS is_null FROM run_cursor.call ORDER BY nth;

-- a job that was dropped and created anew begins anew, also right after its last run
SELECT sweep.drop_job('run_cursor any');
SELECT sweep.create_job('run_cursor any', step => 'run_cursor.any_json', max_batches => 2, cursor => 'always', args => '{"values": [1, 2, 3]}');
TRUNCATE run_cursor.call RESTART IDENTITY;
CALL sweep.run('run_cursor any');
SELECT sweep.drop_job('run_cursor any');
SELECT sweep.create_job('run_cursor any', step => 'run_cursor.any_json', max_batches => 1, cursor => 'always', args => '{"values": [1, 2, 3]}');
CALL sweep.run('run_cursor any');
SELECT cursor FROM run_cursor.call ORDER BY nth;

SELECT sweep.drop_job(name) FROM sweep.job WHERE name LIKE 'run\_cursor%';
DELETE FROM sweep.run_live WHERE job LIKE 'run\_cursor%';
DELETE FROM sweep.run_history WHERE job LIKE 'run\_cursor%';
DROP SCHEMA run_cursor CASCADE;
