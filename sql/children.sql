-- room: engine
-- Children: which runs a run of a parent queues, when, and which it does not. Locks are in test/t/item_runs.pl.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS children CASCADE;
DROP ROLE IF EXISTS children_one, children_two, children_operator;
CREATE SCHEMA children;
SET timezone = 'UTC';
SET intervalstyle = 'postgres';
SELECT setval(pg_get_serial_sequence('sweep.run_live', 'run_id'), 4000000, false);

-- Takes the children that wait while it runs into its detail, and fails when asked to.
CREATE FUNCTION children.step(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
BEGIN
	IF b.args ? 'fail' THEN
		RAISE EXCEPTION 'as asked';
	END IF;
	RETURN ROW(0, NULL, jsonb_build_object('children', (SELECT count(*) FROM sweep.runs
		WHERE trigger = 'parent' AND status = 'waiting' AND job LIKE 'children%')))::sweep.progress;
END
$$;
-- The children queued, as minutes behind the start of their parent.
CREATE VIEW children.queued AS
	SELECT job, trigger, status, stop_reason, attempt, args,
		round(extract(epoch FROM due_at - (SELECT max(started_at) FROM sweep.runs WHERE job = 'children parent')) / 60) AS minutes
	FROM sweep.runs WHERE job LIKE 'children%' AND trigger = 'parent' ORDER BY run_id;
CREATE PROCEDURE children.forget() LANGUAGE sql AS $$
	DELETE FROM sweep.run_live WHERE job LIKE 'children%' AND trigger = 'parent';
	DELETE FROM sweep.run_history WHERE job LIKE 'children%' AND trigger = 'parent';
$$;
RESET client_min_messages;

SELECT sweep.create_job('children ' || j, step => 'children.step') FROM unnest(ARRAY['a', 'b', 'c']) AS j;
SELECT sweep.create_job('children parent', step => 'children.step',
	on_start => '{"children a": "15 min", "children b": "30 min", "children c": "01:00:00"}');
SELECT on_start FROM sweep.job WHERE name = 'children parent';

-- ------------------------------------------------------------------ queued before the step, each with its delay
CALL sweep.run('children parent', '{"x": 1}');
SELECT job, trigger, status, attempt, args, minutes FROM children.queued;
SELECT trigger, status, detail FROM sweep.runs WHERE job = 'children parent' ORDER BY run_id DESC LIMIT 1;
-- one that waits is not queued a second time
CALL sweep.run('children parent');
SELECT job, minutes FROM children.queued;
DELETE FROM sweep.run_live WHERE job = 'children b';
CALL sweep.run('children parent');
SELECT job FROM children.queued;
-- a run of the child that waits for another reason is none in the way
CALL children.forget();
SELECT count(sweep.start('children a', delay => '1 hour'));
CALL sweep.run('children parent');
SELECT job, trigger, status FROM sweep.runs WHERE job = 'children a' ORDER BY run_id;
DELETE FROM sweep.run_live WHERE job = 'children a';
-- whatever becomes of the parent
CALL children.forget();
CALL sweep.run('children parent', '{"fail": true}');
SELECT job, status FROM children.queued;

-- ------------------------------------------------------------------ not queued: paused, unknown
CALL children.forget();
SELECT sweep.pause('children a'), sweep.alter_job('children b', '{"paused": true}');
SELECT sweep.alter_job('children parent', '{"on_start": {"children a": "1 hour", "children b": "1 hour", "children c": "1 hour", "children no": "1 hour"}}');
CALL sweep.run('children parent');
SELECT job FROM children.queued;
-- which the run says as well
SELECT status, detail -> 'not_started' AS not_started FROM sweep.runs WHERE job = 'children parent' ORDER BY run_id DESC LIMIT 1;
-- If a run is lost, the scheduler looks at all names while everybody waits: an object of the reasons must not be copied for each of them.
DO $$
DECLARE
	hooks constant jsonb := (SELECT jsonb_object_agg('children no ' || n, '0') FROM generate_series(1, 2500) AS n);
	run bigint;
	started timestamptz;
	took interval;
	reasons jsonb := '{}';
BEGIN
	SET LOCAL client_min_messages = warning;
	PERFORM sweep.create_job('children many', step => 'children.step', on_failure => hooks);
	run := sweep.start('children many', delay => '1 hour');
	-- The process may stand still during one of several tries.
	FOR try IN 1 .. 5 LOOP
		started := clock_timestamp();
		PERFORM sweep._queue_hooks(run, 'on_failure', '{}');
		took := clock_timestamp() - started;
		started := clock_timestamp();
		reasons := '{}';
		FOR n IN 1 .. 2500 LOOP
			reasons := reasons || jsonb_build_object('children no ' || n, 'it does not exist');
		END LOOP;
		EXIT WHEN took * 2 < clock_timestamp() - started;
		IF try = 5 THEN
			RAISE EXCEPTION 'the names of 2500 jobs took %, copies of their reasons %', took, clock_timestamp() - started;
		END IF;
	END LOOP;
	PERFORM sweep.drop_job('children many');
END
$$;
SELECT sweep.resume('children a'), sweep.alter_job('children b', '{"paused": false}');
CALL sweep.run('children parent');
SELECT job, status FROM children.queued;
-- a pause cancels those that wait, a dropped job as well
SELECT sweep.pause('children a'), sweep.drop_job('children b');
SELECT job, status, stop_reason FROM children.queued;
SELECT sweep.resume('children a');
CALL sweep.run('children parent');
SELECT job, status FROM children.queued;
-- the child can be started by hand meanwhile
CALL sweep.run('children c');
SELECT status FROM sweep.runs WHERE job = 'children c' AND trigger = 'manual';

-- ------------------------------------------------------------------ no children any more
CALL children.forget();
SELECT sweep.alter_job('children parent', '{"on_start": null}');
CALL sweep.run('children parent');
SELECT job FROM children.queued;
SELECT sweep.alter_job('children parent', '{"on_start": {}}');
CALL sweep.run('children parent');
SELECT job FROM children.queued;

-- ------------------------------------------------------------------ a job of a role queues only what that role may start
SET client_min_messages = warning;
CREATE ROLE children_one LOGIN IN ROLE sweep_user;
CREATE ROLE children_two LOGIN IN ROLE sweep_user;
CREATE ROLE children_operator LOGIN IN ROLE sweep_user, sweep_operator;
GRANT USAGE ON SCHEMA children TO PUBLIC;
RESET client_min_messages;
SELECT sweep.create_job('children own', step => 'children.step', run_as => 'children_one');
SELECT sweep.create_job('children foreign', step => 'children.step', run_as => 'children_two');
SELECT sweep.create_job('children parent one', step => 'children.step', run_as => 'children_one',
	on_start => '{"children own": "1 hour", "children foreign": "1 hour"}');
SELECT current_user AS superuser \gset
\c - children_one
CALL sweep.run('children parent one');
\c - :superuser
SET timezone = 'UTC';
SET intervalstyle = 'postgres';
SELECT job FROM children.queued;
GRANT children_two TO children_one;
\c - children_one
CALL sweep.run('children parent one');
\c - :superuser
SET timezone = 'UTC';
SET intervalstyle = 'postgres';
SELECT job FROM children.queued;
REVOKE children_two FROM children_one;
CALL children.forget();
SELECT sweep.create_job('children parent operator', step => 'children.step', run_as => 'children_operator',
	on_start => '{"children own": "1 hour", "children foreign": "1 hour"}');
\c - children_operator
CALL sweep.run('children parent operator');
\c - :superuser
SET timezone = 'UTC';
SET intervalstyle = 'postgres';
SELECT job FROM children.queued ORDER BY job;
-- an operator who is no member does not change whom a job starts
\c - children_operator
SELECT sweep.alter_job('children parent one', '{"on_start": {"children foreign": "0"}}');
\c - :superuser
SET timezone = 'UTC';
SET intervalstyle = 'postgres';

-- ------------------------------------------------------------------ a job is not its own child
SELECT sweep.alter_job('children parent', '{"on_start": {"children a": "0", "children parent": "1 hour"}}');
SELECT sweep.create_job('children x', step => 'children.step', on_success => '{"children x": "0"}');
SELECT sweep.create_job('children x', step => 'children.step', on_failure => '{"children x": "0"}');

-- ------------------------------------------------------------------ a child runs, at once
CALL children.forget();
SELECT sweep.alter_job('children parent', '{"on_start": {"children c": "0"}}');
CALL sweep.run('children parent');
SELECT run_id AS child FROM sweep.runs WHERE job = 'children c' AND trigger = 'parent' \gset
CALL sweep.wait(:child);
SELECT job, trigger, status, stop_reason FROM children.queued;

-- ------------------------------------------------------------------ what is no set of children
CREATE PROCEDURE children.try(on_start jsonb) LANGUAGE plpgsql AS $$
DECLARE
	hint text;
BEGIN
	PERFORM sweep.alter_job('children parent', jsonb_build_object('on_start', on_start));
	RAISE INFO '% is accepted', on_start;
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
	RAISE INFO '%: % (%) %', on_start, SQLERRM, SQLSTATE, hint;
END
$$;
CALL children.try('[]');
CALL children.try('"children a"');
CALL children.try('3');
CALL children.try('{"children a": "soon"}');
CALL children.try('{"children a": ""}');
CALL children.try('{"children a": null}');
CALL children.try('{"children a": "-1 s"}');
CALL children.try('{"children a": {}}');
CALL children.try('{"children a": "999999999999 years"}');
CALL children.try('{"children a": "9999999999999 hours"}');
CALL children.try('{"children a": 5}');
CALL children.try('{"children a": "0"}');
CALL children.try('{"": "1 day"}');
SELECT sweep.create_job('children x', step => 'children.step', on_start => '[1]');
SELECT sweep.create_job('children x', step => 'children.step', on_start => 'null');

SET client_min_messages = warning;
SELECT sweep.drop_job(name) FROM sweep.job WHERE name LIKE 'children%' ORDER BY name;
DELETE FROM sweep.run_live WHERE job LIKE 'children%';
DELETE FROM sweep.run_history WHERE job LIKE 'children%';
DROP SCHEMA children CASCADE;
DROP ROLE children_one, children_two, children_operator;
