-- room: engine
-- Hooks at the end of a run: on_success and on_failure, what the queued runs are told, retries, lost runs, circles,
-- divided jobs. on_start is in children.sql; shares that end at once are in test/t/hook_runs.pl.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS hooks CASCADE;
CREATE SCHEMA hooks;
SET timezone = 'UTC';
SET intervalstyle = 'postgres';
SELECT setval(pg_get_serial_sequence('sweep.run_live', 'run_id'), 6000000, false);
-- Two batches, then it drains; or fails in its second one, or reports so many rows that it ends at a limit.
CREATE FUNCTION hooks.step(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
BEGIN
	IF b.cursor IS NOT NULL AND b.args ? 'fail' THEN
		RAISE EXCEPTION '%', b.args ->> 'fail' USING DETAIL = 'a detail', HINT = 'a hint', ERRCODE = '22012';
	END IF;
	RETURN ROW(CASE WHEN b.cursor IS NULL OR b.args ? 'on' THEN 1 ELSE 0 END, '1', NULL)::sweep.progress;
END
$$;
CREATE FUNCTION hooks.none(b sweep.batch) RETURNS int LANGUAGE sql AS 'SELECT 0';
CREATE VIEW hooks.queued AS
	SELECT job, status, due_at - (SELECT max(p.finished_at) FROM sweep.runs p WHERE p.run_id = r.parent_run_id) > interval '14 min' AS later, parent_run_id, hook_depth AS depth, args
	FROM sweep.runs r WHERE job LIKE 'hooks%' AND trigger = 'parent' AND shares_left IS NULL ORDER BY run_id;
CREATE PROCEDURE hooks.forget() LANGUAGE sql AS $$
	DELETE FROM sweep.run_live WHERE job LIKE 'hooks%';
	DELETE FROM sweep.run_history WHERE job LIKE 'hooks%';
$$;
RESET client_min_messages;

SELECT sweep.create_job('hooks ' || j, step => 'hooks.step', args => '{"own": 1}') FROM unnest(ARRAY['good', 'bad']) AS j;
SELECT sweep.create_job('hooks parent', step => 'hooks.step', on_success => '{"hooks good": "15 min"}', on_failure => '{"hooks bad": "1 day"}');

-- ------------------------------------------------------------------ success: in its last batch, drained or at a limit
CALL sweep.run('hooks parent', '{"x": 1}');
SELECT * FROM hooks.queued;
-- the commit that ends it is the one that queues: what keeps the one from being written undoes the other
CALL hooks.forget();
ALTER TABLE sweep.run_live ADD CONSTRAINT hooks_refused CHECK (job <> 'hooks good') NOT VALID;
\set VERBOSITY terse
CALL sweep.run('hooks parent');
\set VERBOSITY default
SELECT status, batches FROM sweep.runs WHERE job = 'hooks parent';
ALTER TABLE sweep.run_live DROP CONSTRAINT hooks_refused;
CALL hooks.forget();
SELECT sweep.alter_job('hooks parent', '{"max_batches": 3}');
CALL sweep.run('hooks parent', '{"on": 1}');
SELECT job, args FROM hooks.queued;
-- one that waits will do
CALL sweep.run('hooks parent');
SELECT count(*) FROM hooks.queued;
-- one that another job has queued is another one
SELECT sweep.create_job('hooks second', step => 'hooks.step', on_success => '{"hooks good": "15 min"}', on_failure => '{"hooks good": "15 min"}');
CALL sweep.run('hooks second');
CALL sweep.run('hooks second', '{"fail": "both hooks may name one job"}');
SELECT job, args FROM hooks.queued;

-- ------------------------------------------------------------------ failure
CALL hooks.forget();
CALL sweep.run('hooks parent', E'{"fail": "of two\\nlines"}');
SELECT * FROM hooks.queued;
-- a divided job whose buckets_function fails has not even begun
CALL hooks.forget();
SELECT sweep.create_job('hooks unbegun', step => 'hooks.step', buckets => 2, buckets_function => 'hooks.none', on_success => '{"hooks good": "1 day"}', on_failure => '{"hooks bad": "1 day"}');
CALL sweep.run('hooks unbegun');
SELECT count(*) AS skipped_queues FROM hooks.queued;
CREATE OR REPLACE FUNCTION hooks.none(b sweep.batch) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RAISE 'no idea'; END $$;
CALL sweep.run('hooks unbegun');
SELECT job, args FROM hooks.queued;

-- ------------------------------------------------------------------ only the last attempt has failed
CALL hooks.forget();
SELECT sweep.alter_job('hooks parent', '{"max_attempts": 2}');
CALL sweep.run('hooks parent', '{"fail": "first"}');
SELECT job FROM hooks.queued;
BEGIN;
UPDATE sweep.run_live SET status = 'failed', stop_reason = 'error', sqlstate = 'XX000', error = E'second\nDETAIL: more', finished_at = now()
	WHERE job = 'hooks parent' AND trigger = 'retry';
SELECT sweep._follow_end(run_id) FROM sweep.run_live WHERE job = 'hooks parent' AND trigger = 'retry';
SELECT job, args FROM hooks.queued;
ROLLBACK;
-- one that could not begin
BEGIN;
UPDATE sweep.job_definition SET max_attempts = 1 WHERE name = 'hooks parent';
SELECT sweep._fail_start(run_id, 'error', '08006', E'no process\nHINT: none') FROM sweep.run_live WHERE job = 'hooks parent' AND trigger = 'retry';
SELECT job, args FROM hooks.queued;
ROLLBACK;
BEGIN;
-- cancelled, skipped: neither
SELECT sweep._fail_start(run_id, 'cancelled', NULL, NULL) FROM sweep.run_live WHERE job = 'hooks parent' AND trigger = 'retry';
SELECT count(*) FROM hooks.queued;
ROLLBACK;

-- ------------------------------------------------------------------ lost
CALL hooks.forget();
SELECT sweep.alter_job('hooks parent', '{"max_attempts": 1}');
BEGIN;
INSERT INTO sweep.run_live (job, trigger, due_at, started_at, status, pid) VALUES ('hooks parent', 'manual', now(), now(), 'running', 0);
SELECT sweep._mark_lost() > 0 AS lost;
SELECT job, args FROM hooks.queued;
ROLLBACK;

-- ------------------------------------------------------------------ what is not started is no error of the run
SELECT sweep.pause('hooks good');
SELECT sweep.alter_job('hooks parent', '{"on_start": {"hooks no": "0"}, "on_success": {"hooks good": "1 day", "hooks never": "0"}}');
CALL sweep.run('hooks parent');
SELECT status, detail FROM sweep.runs WHERE job = 'hooks parent';
SELECT sweep.resume('hooks good');
-- no hooks any more
CALL hooks.forget();
SELECT sweep.alter_job('hooks parent', '{"on_start": null, "on_success": null, "on_failure": null}');
CALL sweep.run('hooks parent');
SELECT count(*) FROM hooks.queued;

-- ------------------------------------------------------------------ a circle has an end
CALL hooks.forget();
SELECT sweep.alter_job('hooks good', '{"on_success": {"hooks bad": "1 day"}}'), sweep.alter_job('hooks bad', '{"on_start": {"hooks good": "1 day"}}');
CALL sweep.run('hooks good');
SELECT job, depth, args FROM hooks.queued;
-- what a hook has queued has hooks as well, and they count on
CREATE FUNCTION hooks.as_if_succeeded(job text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	id bigint;
BEGIN
	UPDATE sweep.run_live r SET status = 'succeeded', stop_reason = 'drained', finished_at = now() WHERE r.job = as_if_succeeded.job AND status = 'waiting' RETURNING run_id INTO id;
	PERFORM sweep._follow_end(id), sweep._start_hooks(id);
END
$$;
BEGIN;
SELECT hooks.as_if_succeeded(CASE n % 2 WHEN 1 THEN 'hooks bad' ELSE 'hooks good' END) FROM generate_series(1, 20) AS n;
SELECT max(depth), count(*) FILTER (WHERE status = 'waiting') AS waiting FROM hooks.queued;
SELECT detail FROM sweep.run_live WHERE hook_depth = 16;
ROLLBACK;
-- so do retries
BEGIN;
UPDATE sweep.run_live SET status = 'failed', hook_depth = 7, finished_at = now() WHERE job = 'hooks bad';
UPDATE sweep.job_definition SET max_attempts = 2 WHERE name = 'hooks bad';
SELECT sweep._retry(run_id) FROM sweep.run_live WHERE job = 'hooks bad';
SELECT attempt, hook_depth FROM sweep.run_live WHERE job = 'hooks bad' ORDER BY attempt;
ROLLBACK;
-- one that was not tried again has failed for good, whatever has become of max_attempts since; and once
BEGIN;
UPDATE sweep.run_live SET status = 'failed', finished_at = now() WHERE job = 'hooks bad';
UPDATE sweep.job_definition SET max_attempts = 2, on_failure = '{"hooks good": "1 day"}' WHERE name = 'hooks bad';
DELETE FROM sweep.run_live WHERE job = 'hooks good';
SELECT sweep._end_hooks(run_id) FROM sweep.run_live WHERE job = 'hooks bad';
SELECT job, status, trigger FROM sweep.run_live WHERE job LIKE 'hooks %' ORDER BY run_id;
UPDATE sweep.run_live SET status = 'running', pid = 1 WHERE job = 'hooks good';
SELECT sweep._fail_start(run_id, 'error', '08006', 'ended') FROM sweep.run_live WHERE job = 'hooks bad';
SELECT job, status, trigger FROM sweep.run_live WHERE job LIKE 'hooks %' ORDER BY run_id;
ROLLBACK;
SELECT sweep.alter_job('hooks good', '{"on_success": null}'), sweep.alter_job('hooks bad', '{"on_start": null}');

-- ------------------------------------------------------------------ divided: when all shares have ended
CALL hooks.forget();
SELECT sweep.create_job('hooks divided', step => 'hooks.step', buckets => 3, max_attempts => 2, on_success => '{"hooks good": "1 day"}', on_failure => '{"hooks bad": "1 day"}');
CREATE PROCEDURE hooks.share(id bigint, parent bigint, status text, error text DEFAULT NULL, trigger text DEFAULT 'parent', args jsonb DEFAULT '{}') LANGUAGE sql AS $$
	INSERT INTO sweep.run_live (run_id, job, trigger, attempt, parent_run_id, due_at, finished_at, pid, status, sqlstate, error, shares_left, args, hook_depth) OVERRIDING SYSTEM VALUE
		VALUES (id, 'hooks divided', trigger, CASE trigger WHEN 'retry' THEN 2 ELSE 1 END, parent, now(), CASE WHEN status NOT IN ('waiting', 'running') THEN now() END, CASE WHEN status NOT IN ('waiting', 'running') THEN 1 END, status,
			CASE WHEN error IS NOT NULL THEN 'P0001' END, error, 0, args, 3)
$$;
CREATE FUNCTION hooks.told(id bigint) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM sweep._end_hooks(id);
	RETURN QUERY WITH gone AS (DELETE FROM sweep.run_live WHERE job IN ('hooks good', 'hooks bad') RETURNING *)
		SELECT job || ' ' || hook_depth || ' ' || (args -> 'parent')::text FROM gone;
END
$$;
BEGIN;
-- a run that divided it and its shares, one of which still waits
CALL hooks.share(7000000, NULL, 'succeeded', trigger => 'manual');
CALL hooks.share(7000001, 7000000, 'succeeded');
CALL hooks.share(7000002, 7000000, 'waiting');
SELECT hooks.told(7000001);
UPDATE sweep.run_live SET status = 'succeeded', finished_at = now() WHERE run_id = 7000002;
SELECT hooks.told(7000002);
-- the last one that ends may be one that found no bucket
CALL hooks.share(7000003, 7000000, 'skipped');
SELECT hooks.told(7000003);
-- one has failed and is tried again: not yet, and not when that succeeds
CALL hooks.share(7000004, 7000000, 'failed', 'of the first try');
CALL hooks.share(7000005, 7000004, 'waiting', trigger => 'retry');
SELECT hooks.told(7000004);
UPDATE sweep.run_live SET status = 'succeeded', finished_at = now() WHERE run_id = 7000005;
SELECT hooks.told(7000005);
-- it fails again; some of it is history by now
UPDATE sweep.run_live SET status = 'failed', error = 'of the last try', sqlstate = '22012' WHERE run_id = 7000005;
INSERT INTO sweep.run_history SELECT * FROM sweep.run_live WHERE run_id IN (7000000, 7000004);
DELETE FROM sweep.run_live WHERE run_id IN (7000000, 7000004);
SELECT hooks.told(7000005);
-- another run of the job is another dispatch
CALL hooks.share(7000010, NULL, 'waiting', trigger => 'schedule');
SELECT hooks.told(7000001);
-- somebody has stopped it: neither
CALL hooks.share(7000006, 7000002, 'cancelled');
SELECT hooks.told(7000001);
ROLLBACK;
-- divided by a run of another job, which another of its hooks has had queue this one, too
BEGIN;
CALL hooks.share(7000021, 7000020, 'succeeded', args => '{"parent": {"status": "running"}}');
CALL hooks.share(7000022, 7000020, 'running', args => '{"parent": {"status": "running"}}');
CALL hooks.share(7000023, 7000020, 'waiting', args => '{"parent": {"status": "succeeded"}}');
SELECT hooks.told(7000021);
UPDATE sweep.run_live SET status = 'lost', finished_at = now() WHERE run_id = 7000022;
SELECT hooks.told(7000022);
ROLLBACK;
-- really
SELECT sweep.alter_job('hooks divided', '{"buckets": 1, "max_attempts": 1}');
CALL sweep.run('hooks divided');
SELECT job, status, stop_reason, batches, rows, detail FROM sweep.runs WHERE job = 'hooks divided';
CALL sweep.run('hooks divided', '{"fail": "no"}');
SELECT job, args FROM hooks.queued;

-- ------------------------------------------------------------------ who decides
SET client_min_messages = warning;
CREATE ROLE regress_hooks LOGIN IN ROLE sweep_user;
CREATE ROLE regress_hooks_admin LOGIN IN ROLE sweep_admin;
RESET client_min_messages;
GRANT USAGE ON SCHEMA hooks TO regress_hooks;
SELECT sweep.create_job('hooks of a role', step => 'hooks.step', run_as => 'regress_hooks', on_success => '{"hooks good": "1 day"}', on_failure => '{"hooks good": "1 day"}');
SELECT current_user AS superuser \gset
\c - regress_hooks
\set SHOW_CONTEXT never
CALL sweep.run('hooks of a role');
\c - regress_hooks_admin
SELECT sweep.alter_job('hooks of a role', '{"on_success": {"hooks bad": "1 day"}}');
SELECT sweep.alter_job('hooks of a role', '{"on_failure": {}}');
\c - :superuser
SELECT status, detail FROM sweep.runs WHERE job = 'hooks of a role';

-- ------------------------------------------------------------------ another role's job of a name that was given up is not started, and told no error: neither by a superuser's job, nor by one that was let
CREATE ROLE regress_hooks_mallory LOGIN IN ROLE sweep_user;
GRANT USAGE ON SCHEMA hooks TO regress_hooks_mallory;
GRANT regress_hooks_mallory TO regress_hooks;
SELECT sweep.create_job('hooks cleaner', step => 'hooks.step');
SELECT sweep.create_job('hooks super', step => 'hooks.step', on_failure => '{"hooks cleaner": "1 day"}');
SELECT sweep.alter_job('hooks of a role', '{"on_success": {"hooks cleaner": "1 day"}, "on_failure": null}');
SELECT sweep.drop_job('hooks cleaner');
SET ROLE regress_hooks_mallory;
SELECT sweep.create_job('hooks cleaner', step => 'hooks.step');
RESET ROLE;
DELETE FROM sweep.run_live WHERE status = 'waiting' AND job LIKE 'hooks%';
CALL sweep.run('hooks super', '{"fail": "secret"}');
\c - regress_hooks
\set SHOW_CONTEXT never
CALL sweep.run('hooks of a role');
-- unless it is named again
SELECT sweep.alter_job('hooks of a role', '{"batch_size": 7}');
CALL sweep.run('hooks of a role');
SELECT sweep.alter_job('hooks of a role', '{"on_success": {"hooks cleaner": "1 day"}}');
CALL sweep.run('hooks of a role');
\c - :superuser
SELECT job, run_as, args -> 'parent' -> 'job' AS parent FROM sweep.run_live WHERE status = 'waiting' AND job LIKE 'hooks%';
DELETE FROM sweep.run_live WHERE status = 'waiting' AND job LIKE 'hooks%';

SET client_min_messages = warning;
SELECT count(sweep.drop_job(name)) FROM sweep.job WHERE name LIKE 'hooks%';
DELETE FROM sweep.run_live WHERE job LIKE 'hooks%';
DELETE FROM sweep.run_history WHERE job LIKE 'hooks%';
DROP SCHEMA hooks CASCADE;
DROP ROLE regress_hooks, regress_hooks_admin, regress_hooks_mallory;
