-- room: engine
-- CALL sweep.run when something goes wrong: what was committed stays, the rest is told.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS run_failures CASCADE;
CREATE SCHEMA run_failures;
SELECT setval(pg_get_serial_sequence('sweep.run_live', 'run_id'), 1100000, false);
RESET client_min_messages;

CREATE TABLE run_failures.done (batch int);
CREATE VIEW run_failures.last_run AS
	SELECT status, stop_reason AS stop, batches, rows, cursor, detail, sqlstate, split_part(error, E'\nCONTEXT', 1) AS error,
		error ~ '\nCONTEXT: ' AS with_context
	FROM sweep.runs WHERE job = 'run_failures' ORDER BY run_id DESC LIMIT 1;

-- Writes down each batch; the third one does what the args say.
CREATE FUNCTION run_failures.step(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
DECLARE
	nth int := coalesce(b.cursor::int, 0) + 1;
	progress sweep.progress := ROW(10, to_jsonb(nth), '{"n": 1}');
BEGIN
	INSERT INTO run_failures.done VALUES (nth);
	IF nth < 3 THEN
		RETURN progress;
	END IF;
	CASE b.args ->> 'third'
		WHEN 'raise' THEN
			RAISE EXCEPTION 'the third batch failed' USING DETAIL = 'One row is bad.', HINT = 'Mend it.', ERRCODE = 'P0042';
		WHEN 'division' THEN
			PERFORM 1 / (nth - 3);
		WHEN 'null' THEN
			RETURN NULL;
		WHEN 'null rows' THEN
			progress.rows := NULL;
		WHEN 'negative' THEN
			progress.rows := -1;
		WHEN 'array' THEN
			progress.detail := '[1]';
		WHEN 'json null' THEN
			progress.detail := 'null';
		WHEN 'commit' THEN
			COMMIT;
		WHEN 'unlock' THEN
			PERFORM pg_advisory_unlock_all();
			progress := ROW(CASE WHEN sweep._run_is_alive(b.run_id) THEN 0 END, NULL, '{"n": 1}');
		WHEN 'missing table' THEN
			PERFORM 1 FROM run_failures_missing;
		WHEN 'drop row' THEN
			DELETE FROM sweep.run_live WHERE run_id = b.run_id;
		WHEN 'deferred' THEN
			INSERT INTO run_failures.child VALUES (1);
		WHEN 'serialization' THEN
			RAISE EXCEPTION USING ERRCODE = 'serialization_failure', MESSAGE = 'could not serialize';
		WHEN 'cancel' THEN
			PERFORM sweep.cancel(b.run_id);
		WHEN 'cancel backend' THEN
			PERFORM pg_cancel_backend(pg_backend_pid());
			PERFORM count(*) FROM generate_series(1, 10000000);
		WHEN 'query_canceled' THEN
			RAISE EXCEPTION USING ERRCODE = 'query_canceled', MESSAGE = 'canceled on another server';
		ELSE
			progress.rows := 0;
	END CASE;
	RETURN progress;
END
$$;
CREATE TABLE run_failures.parent (id int PRIMARY KEY);
CREATE TABLE run_failures.child (id int REFERENCES run_failures.parent DEFERRABLE INITIALLY DEFERRED);

SELECT sweep.create_job('run_failures', step => 'run_failures.step');

-- what each of the ways to fail leaves behind: the record of the run, and the batches that are there
\set call 'TRUNCATE run_failures.done; CALL sweep.run(\'run_failures\', jsonb_build_object(\'third\', :\'third\')); SELECT * FROM run_failures.last_run; SELECT array_agg(batch ORDER BY batch) AS committed FROM run_failures.done;'

\set third 'nothing'
:call
\set third 'raise'
:call
\set third 'division'
:call
\set third 'null'
:call
\set third 'null rows'
:call
\set third 'negative'
:call
\set third 'array'
:call
\set third 'json null'
:call
\set third 'commit'
:call
\set third 'unlock'
:call
-- the hint about the path is in the record, for whoever reads it later
\set third 'missing table'
:call
-- what fails at the commit
\set third 'deferred'
:call
\set third 'serialization'
:call
-- nobody has cancelled this run, as when a statement_timeout ends its query on another server
\set third 'query_canceled'
:call
\set third 'cancel'
:call
\set third 'cancel backend'
:call
-- a run without its row cannot tell
\set third 'drop row'
:call

-- nothing is left behind by any of these
SELECT count(*) AS locks FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory';
SELECT count(*) AS unfinished FROM sweep.runs WHERE job = 'run_failures' AND (finished_at IS NULL OR status = 'running');
SELECT count(*) AS running FROM sweep.running WHERE pid = pg_backend_pid();
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_transaction;

-- a statement timeout of the session is that of the CALL
\set third 'nothing'
CREATE FUNCTION run_failures.spin(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO run_failures.done VALUES (coalesce(b.cursor::int, 0) + 1);
	IF b.cursor IS NOT NULL THEN
		LOOP
			PERFORM 1;
		END LOOP;
	END IF;
	RETURN ROW(1, '1', NULL)::sweep.progress;
END
$$;
SELECT sweep.alter_job('run_failures', '{"step": "run_failures.spin"}');
TRUNCATE run_failures.done;
SET statement_timeout = '4 s';
CALL sweep.run('run_failures');
\echo :LAST_ERROR_SQLSTATE
RESET statement_timeout;
SELECT array_agg(batch ORDER BY batch) AS committed FROM run_failures.done;
SELECT status, stop, batches, rows FROM run_failures.last_run;

-- timeout is the hard limit: the batch in flight is rolled back, the others stay; the hint depends on whether there are any
SELECT sweep.alter_job('run_failures', '{"timeout": "4 s"}');
TRUNCATE run_failures.done;
CALL sweep.run('run_failures');
\echo :LAST_ERROR_SQLSTATE
SELECT array_agg(batch ORDER BY batch) AS committed FROM run_failures.done;
SELECT * FROM run_failures.last_run;
CREATE OR REPLACE FUNCTION run_failures.spin(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
BEGIN
	LOOP
		PERFORM 1;
	END LOOP;
END
$$;
CALL sweep.run('run_failures');
SELECT status, stop, batches, rows FROM run_failures.last_run;
-- and is over with the run
SELECT sweep.alter_job('run_failures', '{"step": "run_failures.step", "timeout": "1 hour"}');
TRUNCATE run_failures.done;
CALL sweep.run('run_failures');

-- a conflict with other transactions that passes: each batch fails so many times, that of one row at most three times
CREATE SEQUENCE run_failures.tries;
CREATE FUNCTION run_failures.in_conflict(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
DECLARE
	done int := coalesce((b.cursor ->> 'done')::int, 0);
BEGIN
	IF done < 2 AND nextval('run_failures.tries') % ((b.args ->> 'times')::int + 1) <> 0 THEN
		RAISE EXCEPTION USING ERRCODE = b.args ->> 'code', MESSAGE = 'not at this try';
	END IF;
	RETURN ROW((done < 2)::int, jsonb_build_object('done', done + 1), jsonb_build_object('sizes', jsonb_build_array(b.size)))::sweep.progress;
END
$$;
SELECT sweep.create_job('run_failures in_conflict', step => 'run_failures.in_conflict', batch_size => 1);
CALL sweep.run('run_failures in_conflict', '{"times": 3, "code": "40001"}');
CALL sweep.run('run_failures in_conflict', '{"times": 3, "code": "40P01"}');
CALL sweep.run('run_failures in_conflict', '{"times": 4, "code": "40P01"}');
ALTER SEQUENCE run_failures.tries RESTART;
SELECT sweep.alter_job('run_failures in_conflict', '{"batch_size": 100}');
CALL sweep.run('run_failures in_conflict', '{"times": 2, "code": "40P01"}');
SELECT status, batches, rows, detail, sqlstate FROM sweep.runs WHERE job = 'run_failures in_conflict' ORDER BY run_id;

-- a step that is gone, or another's by now
SELECT sweep.create_job('run_failures gone', step => 'run_failures.spin');
DROP FUNCTION run_failures.spin(sweep.batch);
CALL sweep.run('run_failures gone');
SELECT status, stop_reason, batches, sqlstate FROM sweep.runs WHERE job = 'run_failures gone';

-- a batch_sql whose table is gone
CREATE TABLE run_failures.short (id int);
SELECT sweep.create_job('run_failures table', batch_sql => 'DELETE FROM run_failures.short WHERE $1 > 0');
DROP TABLE run_failures.short;
CALL sweep.run('run_failures table');
SELECT status, stop_reason, batches, sqlstate FROM sweep.runs WHERE job = 'run_failures table';

SET client_min_messages = warning;
SELECT sweep.drop_job(name) FROM sweep.job WHERE name LIKE 'run\_failures%';
DELETE FROM sweep.run_live WHERE job LIKE 'run\_failures%';
DELETE FROM sweep.run_history WHERE job LIKE 'run\_failures%';
DROP SCHEMA run_failures CASCADE;
