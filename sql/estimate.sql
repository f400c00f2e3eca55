-- room: engine
-- The setting estimate: what may be one, what comes of its answer, and what is not left behind. Time is in test/t/estimate_runs.pl.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS estimate CASCADE;
CREATE SCHEMA estimate;
CREATE TABLE estimate.item (id int PRIMARY KEY, n text);
INSERT INTO estimate.item SELECT n FROM generate_series(1, 20) AS n;
CREATE DOMAIN estimate.amount AS bigint;
CREATE SEQUENCE estimate.counter;

-- What create_job says to an estimate.
CREATE FUNCTION estimate.try(estimate text) RETURNS TABLE (state text, message text, hint text) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM sweep.create_job('estimate try', batch_sql => 'DELETE FROM estimate.item WHERE id = $1', estimate => estimate);
	PERFORM sweep.drop_job('estimate try');
	message := 'created';
	RETURN NEXT;
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
	RETURN NEXT;
END
$$;

-- ---------------------------------------------------------------- what may be one
SELECT e.text, t.state, t.message FROM (VALUES ('SELECT 1'), ('SELECT count(*) FROM estimate.item'), ('SELECT 1::smallint'), ('SELECT 1.5'), ('SELECT 1::real'),
		('SELECT reltuples FROM pg_class WHERE oid = ''estimate.item''::regclass'), ('SELECT 1::double precision'), ('SELECT 1::estimate.amount'), ('VALUES (3)'),
		('WITH i AS (SELECT id FROM estimate.item) SELECT sum(id) FROM i'), ('SELECT id FROM estimate.item ORDER BY n LIMIT 1'), ('SELECT NULL::int'),
		('SELECT count(*) FROM estimate.item WHERE id > ($1.args ->> ''id'')::int'), ('SELECT ($1).size; -- of a batch')) AS e (text), estimate.try(e.text) AS t;
\x
SELECT t.* FROM (VALUES (''), ('   '), ('SELECT 1; SELECT 2'), ('DELETE FROM estimate.item'), ('INSERT INTO estimate.item VALUES (100) RETURNING id'), ('VACUUM estimate.item'),
		('WITH gone AS (DELETE FROM estimate.item RETURNING id) SELECT count(*) FROM gone'), ('SELECT id FROM estimate.item FOR UPDATE'), ('SELECT id INTO estimate.other FROM estimate.item'),
		('SELECT 1, 2'), ('SELECT'), ('SELECT id, id + 1 FROM estimate.item ORDER BY n'), ('SELECT ''5'''), ('SELECT true'), ('SELECT now()'), ('SELECT i FROM estimate.item i'), ('SELECT ARRAY[1]'),
		('SELECT $2'), ('SELECT count(*) FROM item'), ('SELECT estimate.no_such()'), ('SELECT ($1).no_such'), ('SELECT count(* FROM estimate.item')) AS e (text), estimate.try(e.text) AS t;
\x
-- where the mistake is
SELECT sweep.create_job('estimate try', batch_sql => 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0', estimate => 'SELECT count(*) FORM estimate.item');
SELECT sweep.create_job('estimate try', batch_sql => 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0', estimate => 'SELECT count(*) + n FROM estimate.item');
SELECT state, left(message, 60) AS message, hint FROM estimate.try('SELECT 1 -- ' || repeat('x', 65536));
SELECT count(*) FROM sweep.job WHERE name = 'estimate try';

-- as the role of the job
CREATE ROLE regress_sweep_estimate LOGIN IN ROLE sweep_user;
CREATE ROLE regress_sweep_estimate_admin LOGIN IN ROLE sweep_admin;
GRANT USAGE ON SCHEMA estimate TO regress_sweep_estimate;
CREATE TABLE estimate.secret (n int);
SELECT sweep.create_job('estimate role', batch_sql => 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0', run_as => 'regress_sweep_estimate', estimate => 'SELECT n FROM estimate.secret');
SELECT sweep.alter_job('estimate role', '{"estimate": "SELECT n FROM estimate.no_such"}');
SELECT sweep.alter_job('estimate role', '{"estimate": "SELECT 1, 2"}');
SELECT estimate FROM sweep.job WHERE name = 'estimate role';
-- it is code that the role executes, so only who could be that role changes it
SET ROLE regress_sweep_estimate_admin;
SELECT sweep.alter_job('estimate role', '{"estimate": "SELECT 1"}');
SELECT sweep.alter_job('estimate role', '{"batch_size": 7}');
SET ROLE regress_sweep_estimate;
SELECT sweep.alter_job('estimate role', '{"estimate": "SELECT 1"}');
SELECT sweep.alter_job('estimate role', '{"estimate": null}');
RESET ROLE;
SELECT sweep.drop_job('estimate role');

-- ---------------------------------------------------------------- what comes of its answer
CREATE TABLE estimate.seen (nth serial, phase text, rows bigint, estimated_rows bigint, fraction numeric, has_eta bool, ahead bool, pid int DEFAULT pg_backend_pid());
CREATE FUNCTION estimate.step(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO estimate.seen (phase, rows, estimated_rows, fraction, has_eta, ahead)
		SELECT r.phase, r.rows, r.estimated_rows, r.fraction, r.eta IS NOT NULL, r.eta BETWEEN b.as_of AND clock_timestamp() + interval '10 min' FROM sweep.running r WHERE r.run_id = b.run_id;
	RETURN ROW(CASE WHEN b.cursor = '2' THEN 0 ELSE 10 END, to_jsonb(coalesce(b.cursor::int, 0) + 1), NULL)::sweep.progress;
END
$$;
SELECT sweep.create_job('estimate', step => 'estimate.step', batch_size => 10, estimate => 'SELECT count(*) FROM estimate.item');
SELECT setval(pg_get_serial_sequence('sweep.run_live', 'run_id'), 7300000, false);
SET client_min_messages = notice;
CREATE PROCEDURE estimate.look(changes jsonb) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM sweep.alter_job('estimate', changes);
	TRUNCATE estimate.seen;
END
$$;
\set look 'SELECT phase, rows, estimated_rows, fraction, has_eta, ahead FROM estimate.seen WHERE pid = pg_backend_pid() ORDER BY nth'
-- in the first run already, and with the right number
CALL estimate.look('{}');
CALL sweep.run('estimate');
:look;
-- it is asked each time, whatever the last run had to do
CALL estimate.look('{"estimate": "SELECT 40.0"}');
CALL sweep.run('estimate');
:look;
-- too low: then the end is not known
CALL estimate.look('{"estimate": "SELECT 15"}');
CALL sweep.run('estimate');
:look;
-- none at all
CALL estimate.look('{"estimate": "SELECT 0"}');
CALL sweep.run('estimate');
:look;
-- rounded up
CALL estimate.look('{"estimate": "SELECT 99.000001"}');
CALL sweep.run('estimate');
:look;
-- at most what the limits allow
CALL estimate.look('{"estimate": "SELECT 1000", "max_rows": 15}');
CALL sweep.run('estimate');
:look;
CALL estimate.look('{"estimate": "SELECT 12", "max_rows": null, "max_batches": 50}');
CALL sweep.run('estimate');
:look;
-- the batch is $1: size, args and clock
CALL estimate.look('{"max_batches": null, "estimate": "SELECT ($1).size * (($1).args ->> ''n'')::int + extract(year FROM ($1).as_of) + coalesce(($1).bucket, 0)", "args": {"as_of": "2000-01-01T12:00:00Z"}}');
CALL sweep.run('estimate', '{"n": 6}');
:look;

-- ---------------------------------------------------------------- no answer: one line, and the run goes on
CALL estimate.look('{"estimate": "SELECT 1 WHERE false", "args": {}}');
CALL sweep.run('estimate');
:look;
\set ECHO none
SELECT format('CALL estimate.look(%L)', jsonb_build_object('estimate', estimate)), 'CALL sweep.run(''estimate'')'
	FROM unnest(ARRAY['SELECT NULL::bigint', 'SELECT -1', 'SELECT ''NaN''::numeric', 'SELECT ''Infinity''::real', 'SELECT 1e300::numeric', 'SELECT 9223372036854775807',
		'SELECT id FROM estimate.item', 'SELECT 1 / (count(*) - 20) FROM estimate.item']) WITH ORDINALITY AS e (estimate, nth) ORDER BY nth \gexec
\set ECHO all
:look;
-- limits still say something
CALL estimate.look('{"max_rows": 15}');
CALL sweep.run('estimate');
:look;
-- what is no longer what it was when the job was created
CREATE VIEW estimate.number AS SELECT 5 AS n;
CALL estimate.look('{"max_rows": null, "estimate": "SELECT n FROM estimate.number"}');
DROP VIEW estimate.number;
CALL sweep.run('estimate');
CREATE VIEW estimate.number AS SELECT text '5' AS n;
CALL estimate.look('{}');
CALL sweep.run('estimate');
-- an error that says it was cancelled, without anybody having asked for that: of another server, for one
CREATE FUNCTION estimate.says_cancelled() RETURNS int LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'cancelled elsewhere' USING ERRCODE = '57014'; END $$;
CALL estimate.look('{"estimate": "SELECT estimate.says_cancelled()"}');
CALL sweep.run('estimate');

-- ---------------------------------------------------------------- it writes nothing
CREATE FUNCTION estimate.execute(what text) RETURNS int LANGUAGE plpgsql AS $$ BEGIN EXECUTE what; RETURN 5; END $$;
SELECT sweep.create_queue('estimate');
CREATE PROCEDURE estimate.say(what text) LANGUAGE plpgsql AS $$
BEGIN
	CALL estimate.look(jsonb_build_object('estimate', format('SELECT estimate.execute(%L)', what)));
END
$$;
\set ECHO none
SELECT format('CALL estimate.say(%L)', what), 'CALL sweep.run(''estimate'')'
	FROM unnest(ARRAY['DELETE FROM estimate.item', 'CREATE TEMP TABLE estimate_temp (id int)', 'SELECT nextval(''estimate.counter'')', 'SELECT sweep.send(''estimate'', ''{}'')',
		'SELECT sweep.start(''estimate'')', 'SET TRANSACTION READ WRITE', 'SELECT set_config(''transaction_read_only'', ''off'', false)',
		'SELECT FROM estimate.item FOR UPDATE']) WITH ORDINALITY AS e (what, nth) ORDER BY nth \gexec
\set ECHO all
SELECT (SELECT count(*) FROM estimate.item) AS items, (SELECT is_called FROM estimate.counter) AS counted, to_regclass('pg_temp.estimate_temp') AS temporary,
	(SELECT count(*) FROM sweep.run_live WHERE job = 'estimate' AND status = 'waiting') AS started;

-- ---------------------------------------------------------------- and leaves nothing in the session
CALL estimate.say('PREPARE estimate_stays AS SELECT 1');
CALL sweep.run('estimate');
CALL estimate.say('DISCARD PLANS');
CALL sweep.run('estimate');
CALL estimate.say('SELECT set_config(''role'', ''regress_sweep_estimate'', false)');
CALL sweep.run('estimate');
CALL estimate.say('LOCK TABLE estimate.item IN ACCESS SHARE MODE; SELECT pg_advisory_xact_lock(77), set_config(''work_mem'', ''77kB'', false), set_config(''search_path'', ''estimate'', false), set_config(''estimate.x'', ''y'', false); NOTIFY estimate');
LISTEN estimate;
CALL sweep.run('estimate');
:look;
-- in the step of the run, and in the session afterwards
CREATE FUNCTION estimate.step_looks(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
BEGIN
	RAISE NOTICE 'step: work_mem %, search_path %, locks %, read only %', current_setting('work_mem'), current_setting('search_path'),
		(SELECT count(*) FROM pg_locks l WHERE l.pid = pg_backend_pid() AND (l.relation = 'estimate.item'::regclass OR l.locktype = 'advisory' AND l.objid = 77)),
		current_setting('transaction_read_only');
	RETURN ROW(0, NULL, NULL)::sweep.progress;
END
$$;
CALL estimate.look('{"step": "estimate.step_looks"}');
CALL sweep.run('estimate');
SELECT current_setting('work_mem') <> '77kB' AS work_mem, current_setting('search_path') AS path, coalesce(current_setting('estimate.x', true), '') AS x, current_user = session_user AS me,
	current_setting('transaction_read_only') AS read_only;
SELECT count(*) FROM pg_prepared_statements WHERE name = 'estimate_stays';
UNLISTEN *;

-- ---------------------------------------------------------------- cancelled while it is asked, in a session: the run is cancelled
CALL estimate.look('{"step": "estimate.step", "estimate": "SELECT CASE WHEN pg_cancel_backend(pg_backend_pid()) THEN (SELECT count(*) FROM pg_sleep(600)) END"}'); -- the sleep is the work
CALL sweep.run('estimate');
SELECT status, stop_reason, batches FROM sweep.runs WHERE job = 'estimate' ORDER BY run_id DESC LIMIT 1;
:look;

-- ---------------------------------------------------------------- divided jobs: a share has its part
CALL estimate.look('{"buckets": 3, "estimate": "SELECT 20 + coalesce(($1).buckets, 0)"}');
CALL sweep.run('estimate');
:look;

SET client_min_messages = warning;
SELECT sweep.drop_job('estimate');
SELECT sweep.drop_queue('estimate');
DELETE FROM sweep.run_live WHERE job LIKE 'estimate%';
DELETE FROM sweep.run_history WHERE job LIKE 'estimate%';
DROP SCHEMA estimate CASCADE;
DROP ROLE regress_sweep_estimate;
DROP ROLE regress_sweep_estimate_admin;
