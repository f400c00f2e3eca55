-- room: engine
-- CALL sweep.run: batches, limits, stop reasons, what a step is given and what it reports.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS run_in_session CASCADE;
CREATE SCHEMA run_in_session;
SET timezone = 'UTC';
SET intervalstyle = 'postgres';
SELECT setval(pg_get_serial_sequence('sweep.run_live', 'run_id'), 1000000, false);
RESET client_min_messages;

CREATE TABLE run_in_session.item (id int PRIMARY KEY);
CREATE TABLE run_in_session.call (nth int GENERATED ALWAYS AS IDENTITY, batch sweep.batch, xid xid8 DEFAULT pg_current_xact_id(),
	at timestamptz DEFAULT clock_timestamp(), path text, flush text);

-- Deletes the next items after the cursor, and writes down what it was asked to do.
CREATE FUNCTION run_in_session.step(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
DECLARE
	progress sweep.progress;
	last int;
BEGIN
	INSERT INTO run_in_session.call (batch, path, flush)
		VALUES (b, current_setting('search_path'), current_setting('synchronous_commit'));
	WITH gone AS (DELETE FROM run_in_session.item WHERE id IN (SELECT id FROM run_in_session.item
			WHERE id > coalesce((b.cursor ->> 'id')::int, 0) ORDER BY id LIMIT b.size) RETURNING id)
		SELECT count(*), max(id) INTO progress.rows, last FROM gone;
	progress.cursor := jsonb_build_object('id', last);
	progress.detail := jsonb_build_object('deleted', progress.rows);
	RETURN progress;
END
$$;

CREATE PROCEDURE run_in_session.refill(n int) LANGUAGE sql AS $$
	TRUNCATE run_in_session.call RESTART IDENTITY;
	DELETE FROM run_in_session.item;
	INSERT INTO run_in_session.item SELECT generate_series(1, n);
$$;
CREATE VIEW run_in_session.last_run AS
	SELECT trigger, attempt, status, stop_reason AS stop, batches, rows, cursor, detail, sqlstate, error IS NOT NULL AS error,
		pid = pg_backend_pid() AS own_pid
	FROM sweep.runs WHERE job LIKE 'run\_in\_session%' ORDER BY run_id DESC LIMIT 1;
CREATE VIEW run_in_session.sizes AS
	SELECT array_agg((batch).size ORDER BY nth) AS sizes, count(DISTINCT xid) AS transactions FROM run_in_session.call;

SELECT sweep.create_job('run_in_session', step => 'run_in_session.step', batch_size => 3, args => '{"a": 1, "b": {"c": 2}}');

SELECT current_setting('search_path') AS path, current_setting('synchronous_commit') AS flush, current_setting('jit') AS jit,
	current_setting('max_parallel_workers_per_gather') AS workers \gset

-- drained: the last batch finds nothing and counts
CALL run_in_session.refill(7);
CALL sweep.run('run_in_session');
SELECT * FROM run_in_session.last_run;
SELECT * FROM run_in_session.sizes;
SELECT nth, (batch).cursor, (batch).args, (batch).bucket, (batch).buckets, (batch).items, (batch).run_id, path, flush
	FROM run_in_session.call ORDER BY nth;
-- the clock of a batch is that of its transaction, one after the other
SELECT bool_and((batch).as_of <= at) AS before_its_work, bool_and((batch).as_of >= previous) AS after_the_last_one
	FROM (SELECT *, lag(at) OVER (ORDER BY nth) AS previous FROM run_in_session.call) AS c;
SELECT count(*) AS runs, bool_and(due_at <= started_at AND started_at <= finished_at) AS in_order
	FROM sweep.runs WHERE job = 'run_in_session';
-- the session is as it was
SELECT current_setting('search_path') = :'path' AND current_setting('synchronous_commit') = :'flush'
	AND current_setting('jit') = :'jit' AND current_setting('max_parallel_workers_per_gather') = :'workers' AS same;
SELECT count(*) AS locks FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory';

-- nothing to do is one batch
CALL run_in_session.refill(0);
CALL sweep.run('run_in_session');
SELECT * FROM run_in_session.last_run;

-- max_batches
SELECT sweep.alter_job('run_in_session', '{"max_batches": 2}');
CALL run_in_session.refill(10);
CALL sweep.run('run_in_session');
SELECT * FROM run_in_session.last_run;
SELECT count(*), min(id) FROM run_in_session.item;
-- of limits met by the same batch the first of drained, max_batches, max_rows, stop_after is told
SELECT sweep.alter_job('run_in_session', '{"max_rows": 6, "stop_after": "0", "max_batches": 1}');
CALL sweep.run('run_in_session');
CALL run_in_session.refill(0);
CALL sweep.run('run_in_session');

-- max_rows: the last batch is cut to what is left
SELECT sweep.alter_job('run_in_session', '{"max_rows": 8, "stop_after": null, "max_batches": null}');
CALL run_in_session.refill(10);
CALL sweep.run('run_in_session');
SELECT * FROM run_in_session.sizes;
-- a multiple of the batch size is no further batch
SELECT sweep.alter_job('run_in_session', '{"max_rows": 9}');
CALL run_in_session.refill(10);
CALL sweep.run('run_in_session');
SELECT * FROM run_in_session.sizes;
-- one more is a batch of one
SELECT sweep.alter_job('run_in_session', '{"max_rows": 10}');
CALL run_in_session.refill(11);
CALL sweep.run('run_in_session');
SELECT * FROM run_in_session.sizes;
-- less than a batch
SELECT sweep.alter_job('run_in_session', '{"max_rows": 2}');
CALL run_in_session.refill(10);
CALL sweep.run('run_in_session');
SELECT * FROM run_in_session.sizes;

-- stop_after 0 is exactly one batch, a long one is no limit here
SELECT sweep.alter_job('run_in_session', '{"max_rows": null, "stop_after": "0"}');
CALL run_in_session.refill(10);
CALL sweep.run('run_in_session');
SELECT * FROM run_in_session.last_run;
SELECT sweep.alter_job('run_in_session', '{"stop_after": "1 hour"}');
CALL sweep.run('run_in_session');
SELECT sweep.alter_job('run_in_session', '{"stop_after": null}');

-- the args of the run over those of the job, at the first level; the job's own stay
CALL run_in_session.refill(0);
CALL sweep.run('run_in_session', '{"b": {"d": 3}, "e": null}');
SELECT (batch).args FROM run_in_session.call;
SELECT args FROM sweep.runs WHERE job = 'run_in_session' ORDER BY run_id DESC LIMIT 1;
SELECT args FROM sweep.job WHERE name = 'run_in_session';

-- as_of can be fixed by the run, or by the job; the run's stands
CALL run_in_session.refill(4);
CALL sweep.run('run_in_session', '{"as_of": "2026-01-01T00:00:00Z"}');
SELECT sweep.alter_job('run_in_session', '{"args": {"as_of": "2025-06-01 12:00:00+02"}}');
CALL sweep.run('run_in_session');
CALL sweep.run('run_in_session', '{"as_of": "2026-01-01T00:00:00Z"}');
SELECT nth, (batch).as_of FROM run_in_session.call ORDER BY nth;
SELECT sweep.alter_job('run_in_session', '{"args": {}}');
CALL sweep.run('run_in_session', '{"as_of": "no time"}');
\echo :LAST_ERROR_SQLSTATE

-- flush: every commit, or the last one only
SELECT sweep.alter_job('run_in_session', '{"flush": "batch"}');
CALL run_in_session.refill(4);
CALL sweep.run('run_in_session');
SELECT nth, flush FROM run_in_session.call ORDER BY nth;
SELECT sweep.alter_job('run_in_session', '{"flush": "run"}');

-- a pause concerns the schedule
SELECT sweep.pause('run_in_session');
CALL run_in_session.refill(4);
CALL sweep.run('run_in_session');
SELECT paused_at IS NOT NULL AS paused FROM sweep.job_state WHERE job = 'run_in_session';
SELECT sweep.resume('run_in_session');

-- the row of the run while it runs, as a step sees it: what is committed, not its own batch
CREATE TABLE run_in_session.seen (LIKE sweep.runs);
CREATE FUNCTION run_in_session.look(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO run_in_session.seen SELECT * FROM sweep.runs WHERE run_id = b.run_id;
	RETURN ROW(CASE WHEN b.cursor IS NULL THEN 5 ELSE 0 END, '1', '{"n": 1}')::sweep.progress;
END
$$;
SELECT sweep.create_job('run_in_session look', step => 'run_in_session.look', args => '{"x": 1}');
CALL sweep.run('run_in_session look', '{"y": 2}');
SELECT run_id, trigger, attempt, args, status, stop_reason, batches, rows, cursor, detail, started_at IS NOT NULL AS started,
	finished_at, pid = pg_backend_pid() AS own_pid FROM run_in_session.seen ORDER BY batches;

-- refused, and no run is recorded
SELECT count(*) AS runs FROM sweep.runs WHERE job LIKE 'run\_in\_session%' \gset before_
CALL sweep.run('no such job');
\echo :LAST_ERROR_SQLSTATE
CALL sweep.run(NULL);
\echo :LAST_ERROR_SQLSTATE
CALL sweep.run('run_in_session', NULL);
\echo :LAST_ERROR_SQLSTATE
CALL sweep.run('run_in_session', '[1]');
\echo :LAST_ERROR_SQLSTATE
BEGIN;
CALL sweep.run('run_in_session');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
DO $$ BEGIN CALL sweep.run('run_in_session'); EXCEPTION WHEN division_by_zero THEN NULL; END $$;
\echo :LAST_ERROR_SQLSTATE
CREATE FUNCTION run_in_session.call_it() RETURNS void LANGUAGE plpgsql AS $$ BEGIN CALL sweep.run('run_in_session'); END $$;
SELECT run_in_session.call_it();
\echo :LAST_ERROR_SQLSTATE
CREATE PROCEDURE run_in_session.with_path() LANGUAGE plpgsql SET search_path = pg_catalog AS $$ BEGIN CALL sweep.run('run_in_session'); END $$;
CALL run_in_session.with_path();
\echo :LAST_ERROR_SQLSTATE
CREATE PROCEDURE run_in_session.as_definer() LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN CALL sweep.run('run_in_session'); END $$;
CALL run_in_session.as_definer();
\echo :LAST_ERROR_SQLSTATE
SELECT count(*) - :before_runs AS new_runs FROM sweep.runs WHERE job LIKE 'run\_in\_session%';

-- a block or a procedure that may commit is none of these
DO $$ BEGIN FOR i IN 1..2 LOOP CALL sweep.run('run_in_session'); END LOOP; END $$;
CREATE PROCEDURE run_in_session.plain() LANGUAGE plpgsql AS $$ BEGIN CALL sweep.run('run_in_session'); END $$;
CALL run_in_session.plain();

SET client_min_messages = warning;
SELECT sweep.drop_job(name) FROM sweep.job WHERE name LIKE 'run\_in\_session%';
DELETE FROM sweep.run_live WHERE job LIKE 'run\_in\_session%';
DELETE FROM sweep.run_history WHERE job LIKE 'run\_in\_session%';
DROP SCHEMA run_in_session CASCADE;
